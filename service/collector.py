"""Garbage collection in a process that answers requests."""

from __future__ import annotations

import gc
from importlib import import_module

LATE = "ruptures"
"""Takes a second to import: not every command does, and whoever serves does before the first answer needs it."""


def spare_what_stays() -> None:
    """Import what requests will need, and walk nothing of all that is there now again.

    It stays for good, and walking it again and again is seen as slow answers now and then.
    """
    import_module(LATE)
    gc.collect()
    gc.freeze()
