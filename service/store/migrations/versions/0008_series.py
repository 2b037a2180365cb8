"""Series, their outcomes and points, how they stand, and what people should hear of."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _create_series()
    _create_outcomes()
    _create_points()
    _create_what_people_say()
    _create_standings()
    _create_notices()


def downgrade() -> None:
    for table in ("notices", "standings", "mutes", "baselines", "points", "outcomes", "series"):
        op.drop_table(table)


def _counted() -> sa.types.TypeEngine[int]:
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _time(name: str) -> sa.Column[object]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=False)


def _create_series() -> None:
    op.create_table(
        "series",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("settings", sa.JSON(), nullable=False),
        sa.Column("environment", sa.Text(), nullable=False),
        sa.Column("device", sa.Text(), nullable=False),
        sa.Column("devices", sa.Integer(), nullable=False),
        sa.Column("cores", sa.Integer(), nullable=False),
        sa.Column("pinned", sa.Boolean(), nullable=False),
        _time("created_at"),
        _time("last_at"),
        sa.Column("last_verdict", sa.Text(), nullable=False),
        sa.Column("last_ok", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_series"),
    )
    op.create_index("ix_series_name_id", "series", ["name", "id"])
    op.create_index("ix_series_pinned_name_id", "series", ["pinned", "name", "id"])
    op.create_index("ix_series_last_ok_last_at", "series", ["last_ok", "last_at"])


def _create_outcomes() -> None:
    op.create_table(
        "outcomes",
        sa.Column("id", _counted(), nullable=False),
        sa.Column("series_id", sa.Text(), nullable=False),
        sa.Column("sweep_id", sa.Text(), nullable=False),
        sa.Column("cell_id", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=True),
        _time("at"),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("ok", sa.Boolean(), nullable=False),
        sa.Column("versions", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_outcomes"),
        sa.ForeignKeyConstraint(["series_id"], ["series.id"], name="fk_outcomes_series_id_series"),
        sa.UniqueConstraint("sweep_id", "cell_id", name="uq_outcomes_sweep_id_cell_id"),
    )
    op.create_index("ix_outcomes_series_id_at", "outcomes", ["series_id", "at"])


def _create_points() -> None:
    op.create_table(
        "points",
        sa.Column("id", _counted(), nullable=False),
        sa.Column("outcome_id", _counted(), nullable=False),
        sa.Column("series_id", sa.Text(), nullable=False),
        sa.Column("figure", sa.Text(), nullable=False),
        sa.Column("at", sa.Float(53), nullable=False),
        sa.Column("value", sa.Float(53), nullable=False),
        sa.Column("lowest", sa.Float(53), nullable=False),
        sa.Column("highest", sa.Float(53), nullable=False),
        sa.Column("repeats", sa.Integer(), nullable=False),
        sa.Column("baseline", sa.Float(53), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_points"),
        sa.ForeignKeyConstraint(
            ["outcome_id"], ["outcomes.id"], name="fk_points_outcome_id_outcomes", ondelete="CASCADE"
        ),
        sa.UniqueConstraint("outcome_id", "figure", name="uq_points_outcome_id_figure"),
    )
    op.create_index("ix_points_series_id_figure_at", "points", ["series_id", "figure", "at"])


def _create_what_people_say() -> None:
    op.create_table(
        "baselines",
        sa.Column("id", _counted(), nullable=False),
        sa.Column("series_id", sa.Text(), nullable=False),
        sa.Column("figure", sa.Text(), nullable=False),
        sa.Column("point_id", _counted(), nullable=False),
        sa.Column("from_at", sa.Float(53), nullable=False),
        sa.Column("value", sa.Float(53), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        _time("at"),
        sa.PrimaryKeyConstraint("id", name="pk_baselines"),
        sa.ForeignKeyConstraint(["series_id"], ["series.id"], name="fk_baselines_series_id_series"),
    )
    op.create_index("ix_baselines_series_id_figure_id", "baselines", ["series_id", "figure", "id"])
    op.create_table(
        "mutes",
        sa.Column("id", _counted(), nullable=False),
        sa.Column("series_id", sa.Text(), nullable=False),
        _time("until"),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        _time("at"),
        sa.PrimaryKeyConstraint("id", name="pk_mutes"),
        sa.ForeignKeyConstraint(["series_id"], ["series.id"], name="fk_mutes_series_id_series"),
    )
    op.create_index("ix_mutes_series_id_until", "mutes", ["series_id", "until"])


def _create_standings() -> None:
    op.create_table(
        "standings",
        sa.Column("series_id", sa.Text(), nullable=False),
        sa.Column("figure", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("point_id", _counted(), nullable=False),
        sa.Column("at", sa.Float(53), nullable=False),
        sa.Column("value", sa.Float(53), nullable=False),
        *(sa.Column(name, sa.Float(53), nullable=True) for name in ("baseline", "lower", "upper", "noise", "ratio")),
        sa.Column("points", sa.Integer(), nullable=False),
        sa.Column("missing", sa.Integer(), nullable=False),
        sa.Column("from_at", sa.Float(53), nullable=False),
        sa.Column("since_point_id", _counted(), nullable=True),
        sa.PrimaryKeyConstraint("series_id", "figure", name="pk_standings"),
        sa.ForeignKeyConstraint(["series_id"], ["series.id"], name="fk_standings_series_id_series"),
    )
    op.create_index("ix_standings_state_at", "standings", ["state", "at"])


def _create_notices() -> None:
    op.create_table(
        "notices",
        sa.Column("id", _counted(), nullable=False),
        _time("at"),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("series_id", sa.Text(), nullable=True),
        sa.Column("figure", sa.Text(), nullable=True),
        sa.Column("sweep_id", sa.Text(), nullable=False),
        sa.Column("cell_id", sa.Text(), nullable=False),
        sa.Column("what", sa.Text(), nullable=False),
        *(sa.Column(name, sa.Float(53), nullable=True) for name in ("before", "after", "ratio")),
        sa.Column("since_sweep_id", sa.Text(), nullable=True),
        sa.Column("versions_before", sa.JSON(), nullable=False),
        sa.Column("versions_after", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_notices"),
        sa.ForeignKeyConstraint(["series_id"], ["series.id"], name="fk_notices_series_id_series"),
    )
    op.create_index("ix_notices_kind_id", "notices", ["kind", "id"])
    op.create_index("ix_notices_series_id_id", "notices", ["series_id", "id"])
    op.create_index("ix_notices_sweep_id", "notices", ["sweep_id"])
