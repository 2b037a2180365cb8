"""Matrix files that come with Shardproof."""

from __future__ import annotations

import sys
from pathlib import Path

FOLDERS = (
    Path(__file__).parent.parent / "deploy" / "matrices",
    Path(sys.prefix) / "share" / "shardproof" / "matrices",
)
"""In a checkout, and where an installed distribution puts its data."""


def quickstart() -> Path:
    """The matrix that ``shardproof demo`` runs."""
    return next((folder / "quickstart.yaml" for folder in FOLDERS if folder.is_dir()), FOLDERS[0] / "quickstart.yaml")
