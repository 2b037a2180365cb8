"""What is remarked of a cell stands with the cell: among the terms of its sweep, all of it was read for each run."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

QUEUE = sa.table("queue", sa.column("sweep_id", sa.Text()), sa.column("places", sa.JSON()))
CELLS = sa.table(
    "cells",
    sa.column("sweep_id", sa.Text()),
    sa.column("id", sa.Text()),
    sa.column("notes", sa.JSON(none_as_null=True)),
)


def upgrade() -> None:
    op.add_column("cells", sa.Column("notes", sa.JSON(), nullable=True))
    connection = op.get_bind()
    for sweep_id, places in connection.execute(sa.select(QUEUE)).all():
        notes = places.pop("notes", {})
        for cell_id, said in notes.items():
            cell = sa.update(CELLS).where(CELLS.c.sweep_id == sweep_id, CELLS.c.id == cell_id)
            connection.execute(cell.values(notes=said))
        connection.execute(sa.update(QUEUE).where(QUEUE.c.sweep_id == sweep_id).values(places=places))


def downgrade() -> None:
    connection = op.get_bind()
    notes: dict[str, dict[str, list[str]]] = {}
    for sweep_id, cell_id, said in connection.execute(sa.select(CELLS).where(CELLS.c.notes.is_not(None))).all():
        notes.setdefault(sweep_id, {})[cell_id] = said
    for sweep_id, places in connection.execute(sa.select(QUEUE)).all():
        whole = {**places, "notes": notes.get(sweep_id, {})}
        connection.execute(sa.update(QUEUE).where(QUEUE.c.sweep_id == sweep_id).values(places=whole))
    op.drop_column("cells", "notes")
