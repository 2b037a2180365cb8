"""The numbers of the dots that a chart may have."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

MOST = 400


def upgrade() -> None:
    numbers = op.create_table(
        "numbers",
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_numbers"),
    )
    op.bulk_insert(numbers, [{"number": number} for number in range(MOST)])


def downgrade() -> None:
    op.drop_table("numbers")
