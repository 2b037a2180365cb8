"""Alembic's entry: runs the migrations on the connection that ``service.store.database`` hands over.

One transaction holds all of it, so a migration that fails leaves the database as it was, and two processes that start
at once upgrade one after the other.
"""

from __future__ import annotations

from alembic import context

from service.store.models import Base

context.configure(
    connection=context.config.attributes["connection"], target_metadata=Base.metadata, transactional_ddl=True
)
context.run_migrations()
