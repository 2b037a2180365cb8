"""Schedules, and what they fired."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0003_access"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _create_schedules()
    _create_fires()


def downgrade() -> None:
    op.drop_table("schedule_fires")
    op.drop_table("schedules")


def _create_schedules() -> None:
    op.create_table(
        "schedules",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("cron", sa.Text(), nullable=False),
        sa.Column("timezone", sa.Text(), nullable=False),
        sa.Column("missed", sa.Text(), nullable=False),
        sa.Column("suspended", sa.Boolean(), nullable=False),
        sa.Column("matrix", sa.JSON(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("served_until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("next_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("name", name="pk_schedules"),
    )
    op.create_index("ix_schedules_next_at", "schedules", ["next_at"])


def _create_fires() -> None:
    op.create_table(
        "schedule_fires",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("schedule", sa.Text(), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("claimed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("sweep_id", sa.Text(), nullable=True),
        sa.Column("detail", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_schedule_fires"),
        sa.ForeignKeyConstraint(
            ["schedule"], ["schedules.name"], name="fk_schedule_fires_schedule_schedules", ondelete="CASCADE"
        ),
        sa.UniqueConstraint("schedule", "due_at", name="uq_schedule_fires_schedule_due_at"),
    )
    op.create_index("ix_schedule_fires_schedule_id", "schedule_fires", ["schedule", "id"])
    op.create_index("ix_schedule_fires_state_lease_until", "schedule_fires", ["state", "lease_until"])
