"""The environments of this machine: which there are, and those that nobody uses taken away."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.environments import share
from workers.environments.lock import opened
from workers.environments.provide import read_mark
from workers.protocol.environments import MARK


@dataclass(frozen=True)
class Shelved:
    """``description`` is ``None`` where it was never finished. ``used_at``: Unix time.

    ``own_bytes`` go when it goes; ``shared_bytes`` are of files that other environments have as well.
    """

    folder: Path
    description: dict[str, Any] | None
    in_use: bool
    used_at: float
    own_bytes: int
    shared_bytes: int


def shelved(root: Path) -> list[Shelved]:
    """Every environment below ``root``, finished or not, the one used last first."""
    return sorted((_look(folder) for folder in _folders(root)), key=lambda item: -item.used_at)


def described(root: Path) -> list[tuple[str, dict[str, Any] | None]]:
    """Name and description of every environment below ``root``, by name. Nothing is measured, so it takes no time."""
    return [(folder.name, read_mark(folder)) for folder in _folders(root)]


def collect(root: Path, unused_s: float) -> list[Shelved]:
    """Delete what was never finished, and what nobody has used for so many seconds; what is in use stays.

    An interpreter that was only pointed at stays as well: nothing is deleted but the pointer.
    """
    gone = []
    for folder in _folders(root):
        with opened(_lock(folder)) as lock:
            if not lock.alone_at_once():
                continue
            found = _look(folder, in_use=False)
            if found.description is None or time.time() - found.used_at >= unused_s:
                _delete(folder)
                gone.append(found)
    return gone


def _delete(folder: Path) -> None:
    # The mark first: whatever becomes of the rest, nobody takes it for an environment.
    (folder / MARK).unlink(missing_ok=True)
    shutil.rmtree(folder)
    folder.with_suffix(".log").unlink(missing_ok=True)


def _folders(root: Path) -> Iterator[Path]:
    return (path for path in sorted(root.glob("*")) if path.is_dir())


def _lock(folder: Path) -> Path:
    return folder.with_suffix(".lock")


def _look(folder: Path, in_use: bool | None = None) -> Shelved:
    if in_use is None:
        with opened(_lock(folder)) as lock:
            in_use = not lock.alone_at_once()
    own, shared = share.size(folder)
    return Shelved(folder, read_mark(folder), in_use, _lock(folder).stat().st_mtime, own, shared)
