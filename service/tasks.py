"""Where the files of evaluation tasks lie: the operator's own, then those that come with Shardproof."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from service.settings import Settings
from workers.protocol import Evaluation

FOLDERS = (
    Path(__file__).parent.parent / "deploy" / "tasks",
    Path(sys.prefix) / "share" / "shardproof" / "tasks",
)
"""In a checkout, and where an installed distribution puts its data."""


def evaluation_of(fields: Mapping[str, Any] | None, settings: Settings) -> Evaluation | None:
    """What is asked of an arm, with the folders in which it looks for tasks; ``None`` where it evaluates nothing."""
    if not fields:
        return None
    shipped = next((folder for folder in FOLDERS if folder.is_dir()), None)
    folders = [str(folder) for folder in (settings.tasks_dir, shipped) if folder is not None]
    return Evaluation(**fields, folders=folders)
