"""The engine environment that a cell was audited in."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("cells", sa.Column("environment", sa.JSON(), nullable=True))


def downgrade() -> None:
    op.drop_column("cells", "environment")
