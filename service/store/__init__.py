"""What is kept: sweeps, cells, runs, shared arms and events. SQLite by default, PostgreSQL for teams."""

from service.store.database import Store, open_store
from service.store.trouble import StoreError, StoreUnavailable

__all__ = ["Store", "StoreError", "StoreUnavailable", "open_store"]
