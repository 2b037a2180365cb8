"""Whether an engine could write its compile cache: found out before it starts, and again after."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

ROOM_BYTES = 1 << 20
"""So much has to fit: not that a cache does, but that a full disk is not mistaken for an engine's fault."""


def trouble(root: str) -> str | None:
    """Why nothing can be written to the folder ``root``, which is made; ``None`` when something can."""
    try:
        Path(root).mkdir(parents=True, exist_ok=True)
        # It never has a name, so it is no content of the cache and is gone whatever happens.
        with tempfile.TemporaryFile(dir=root) as file:
            file.write(bytes(ROOM_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return f"the cache root {root} cannot be written: {error.strerror or error}"
    return None
