"""What the list of sweeps counts is found in an index alone: cells themselves are large."""

from __future__ import annotations

from alembic import op

revision = "0003_counts_of_sweeps"
down_revision = "0003_queue"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_cells_sweep_id_ok", "cells", ["sweep_id", "ok"])


def downgrade() -> None:
    op.drop_index("ix_cells_sweep_id_ok", "cells")
