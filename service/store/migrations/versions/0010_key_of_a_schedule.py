"""The API key that a schedule was made with."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("schedules", sa.Column("key_id", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("schedules", "key_id")
