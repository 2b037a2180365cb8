"""What is kept: sweeps, cells, runs, shared arms and events. SQLite by default, PostgreSQL for teams."""

from service.store.database import Store, StoreError, open_store

__all__ = ["Store", "StoreError", "open_store"]
