"""Which driver the GPUs have: it changes without any package changing, and starts may take longer for it."""

from __future__ import annotations

import re
from pathlib import Path

SAYS = Path("/proc/driver/nvidia/version")
"""Where NVIDIA's kernel module says which it is."""


def driver_version(says: Path = SAYS) -> str | None:
    """The version of NVIDIA's driver; ``None`` where there is none, or it does not say."""
    try:
        text = says.read_text()
    except OSError:
        return None
    found = re.search(r"Kernel Module.*?\s(\d+(?:\.\d+)+)\s", text)
    return found[1] if found else None
