"""Recorded runs that come with Shardproof, for the null engine."""

from __future__ import annotations

import sys
from pathlib import Path

NAME = "tiny-llama-tp2"
FOLDERS = (
    Path(__file__).parent.parent / "deploy" / "recordings",
    Path(sys.prefix) / "share" / "shardproof" / "recordings",
)
"""In a checkout, and where an installed distribution puts its data."""


def recorded() -> Path:
    """A run of ``tiny:llama`` on two ranks."""
    return next((folder / NAME for folder in FOLDERS if folder.is_dir()), FOLDERS[0] / NAME)
