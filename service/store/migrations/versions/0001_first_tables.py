"""The first tables: sweeps, cells, runs, arms, events."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    _create_sweeps()
    _create_cells()
    _create_runs()
    _create_arms()
    _create_events()


def downgrade() -> None:
    for table in ("events", "arms", "runs", "cells", "sweeps"):
        op.drop_table(table)


def _create_sweeps() -> None:
    op.create_table(
        "sweeps",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("matrix", sa.JSON(), nullable=False),
        sa.Column("timeouts", sa.JSON(), nullable=False),
        sa.Column("environment", sa.JSON(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_sweeps"),
    )
    op.create_index("ix_sweeps_state_owner", "sweeps", ["state", "owner"])


def _create_cells() -> None:
    op.create_table(
        "cells",
        sa.Column("sweep_id", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("requested", sa.JSON(), nullable=False),
        sa.Column("expect", sa.JSON(), nullable=False),
        sa.Column("checks", sa.JSON(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("effective", sa.JSON(), nullable=True),
        sa.Column("changes", sa.JSON(), nullable=False),
        sa.Column("patches", sa.JSON(), nullable=False),
        sa.Column("shape", sa.JSON(), nullable=True),
        sa.Column("problems", sa.JSON(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=True),
        sa.Column("duplicate_of", sa.Text(), nullable=True),
        sa.Column("verdict", sa.Text(), nullable=True),
        sa.Column("ok", sa.Boolean(), nullable=True),
        sa.Column("reasons", sa.JSON(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("sweep_id", "id", name="pk_cells"),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweeps.id"], name="fk_cells_sweep_id_sweeps", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["sweep_id", "duplicate_of"], ["cells.sweep_id", "cells.id"], name="fk_cells_sweep_id_duplicate_of_cells"
        ),
        sa.UniqueConstraint("sweep_id", "position", name="uq_cells_sweep_id_position"),
    )
    op.create_index("ix_cells_sweep_id_state", "cells", ["sweep_id", "state"])


def _create_runs() -> None:
    op.create_table(
        "runs",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("sweep_id", sa.Text(), nullable=False),
        sa.Column("cell_id", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("evidence", sa.JSON(), nullable=True),
        sa.Column("failure", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_runs"),
        sa.ForeignKeyConstraint(
            ["sweep_id", "cell_id"],
            ["cells.sweep_id", "cells.id"],
            name="fk_runs_sweep_id_cell_id_cells",
            ondelete="CASCADE",
        ),
        sa.UniqueConstraint("sweep_id", "cell_id", "attempt", name="uq_runs_sweep_id_cell_id_attempt"),
    )


def _create_arms() -> None:
    op.create_table(
        "arms",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("folder", sa.Text(), nullable=False),
        sa.Column("report", sa.JSON(), nullable=True),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_arms"),
    )
    op.create_index("ix_arms_state_owner", "arms", ["state", "owner"])


def _create_events() -> None:
    op.create_table(
        "events",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("sweep_id", sa.Text(), nullable=False),
        sa.Column("cell_id", sa.Text(), nullable=True),
        sa.Column("run_id", sa.Text(), nullable=True),
        sa.Column("at", sa.Float(53), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("arm", sa.Text(), nullable=True),
        sa.Column("rank", sa.Integer(), nullable=True),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_events"),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweeps.id"], name="fk_events_sweep_id_sweeps", ondelete="CASCADE"),
    )
    op.create_index("ix_events_sweep_id_id", "events", ["sweep_id", "id"])
    op.create_index("ix_events_sweep_id_kind_cell_id_rank_id", "events", ["sweep_id", "kind", "cell_id", "rank", "id"])
