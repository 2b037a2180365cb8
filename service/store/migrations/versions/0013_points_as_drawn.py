"""The index on a figure's points has all that a chart is drawn from."""

from __future__ import annotations

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_BEFORE, _NOW = "ix_points_series_id_figure_at", "ix_points_drawn"
_FOUND_BY = ["series_id", "figure", "at"]


def upgrade() -> None:
    op.drop_index(_BEFORE, table_name="points")
    op.create_index(_NOW, "points", [*_FOUND_BY, "value", "lowest", "highest", "outcome_id"])


def downgrade() -> None:
    op.drop_index(_NOW, table_name="points")
    op.create_index(_BEFORE, "points", _FOUND_BY)
