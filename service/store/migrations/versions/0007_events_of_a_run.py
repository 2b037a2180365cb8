"""The events of one run are found by an index."""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0003_counts_of_sweeps"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_events_run_id_id", "events", ["run_id", "id"])


def downgrade() -> None:
    op.drop_index("ix_events_run_id_id", "events")
