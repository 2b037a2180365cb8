"""History of the tables; ``service.store.database.upgrade`` applies it."""
