"""The queue: jobs, what they wait for, and who leads."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003_queue"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _create_queue()
    _create_jobs()
    _create_job_needs()
    _create_leaders()


def downgrade() -> None:
    for table in ("leaders", "job_needs", "jobs", "queue"):
        op.drop_table(table)


def _of_a_sweep(table: str) -> sa.ForeignKeyConstraint:
    name = f"fk_{table}_sweep_id_sweeps"
    return sa.ForeignKeyConstraint(["sweep_id"], ["sweeps.id"], name=name, ondelete="CASCADE")


def _create_queue() -> None:
    op.create_table(
        "queue",
        sa.Column("sweep_id", sa.Text(), nullable=False),
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("max_parallel", sa.Integer(), nullable=True),
        sa.Column("key_id", sa.Text(), nullable=True),
        sa.Column("places", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("sweep_id", name="pk_queue"),
        _of_a_sweep("queue"),
    )


def _create_jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("sweep_id", sa.Text(), nullable=False),
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("cell_id", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("waits", sa.Integer(), nullable=False),
        sa.Column("due", sa.Float(53), nullable=False),
        sa.Column("lost", sa.Integer(), nullable=False),
        sa.Column("leases", sa.Integer(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("run_id", sa.Text(), nullable=True),
        sa.Column("ranks", sa.Integer(), nullable=False),
        sa.Column("devices", sa.Integer(), nullable=False),
        sa.Column("work", sa.JSON(), nullable=False),
        sa.Column("story", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
        _of_a_sweep("jobs"),
    )
    order = ["queue", "state", "waits", "rank", "sweep_id", "position"]
    op.create_index("ix_jobs_queue_state_waits_rank_sweep_id_position", "jobs", order)
    op.create_index("ix_jobs_sweep_id_cell_id", "jobs", ["sweep_id", "cell_id"])


def _create_job_needs() -> None:
    def job(column: str) -> sa.ForeignKeyConstraint:
        name = f"fk_job_needs_{column}_jobs"
        return sa.ForeignKeyConstraint([column], ["jobs.id"], name=name, ondelete="CASCADE")

    op.create_table(
        "job_needs",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("needs_id", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "needs_id", name="pk_job_needs"),
        job("job_id"),
        job("needs_id"),
    )
    op.create_index("ix_job_needs_needs_id", "job_needs", ["needs_id"])


def _create_leaders() -> None:
    op.create_table(
        "leaders",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("beat", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_leaders"),
    )
