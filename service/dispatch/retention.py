"""What sweeps leave on disk, and taking it away. Reports, evidence and verdicts are in the store and stay.

Below the artifacts folder each sweep has a folder of its own, named by its id, with the id of its controller process in
it. A folder of a sweep that the store does not know, left by a controller with another database, counts as that of an
ended sweep unless its controller is still there. What was copied to ``SHARDPROOF_ARTIFACTS_URL`` goes with the folder;
there, what the store does not know is somebody else's, and stays.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from service.dispatch import identity
from service.domain.retention import Bound, Kept, beyond
from service.settings import Settings
from service.store import Store, repositories
from service.store.records import SweepState, UnknownRecord
from workers.artifacts import ArtifactPlace

OWNER = "owner"
CACHES = ("arms/*/cache", "cells/*/*/cache", "cells/*/*/*-cache")
"""Cache roots of arms. The actor of a run takes them away, unless it is killed."""

PIPE = "events"
"""By which the processes of an arm tell its actor what they do."""

_SWEEP = re.compile(r"\d{8}-\d{6}-[0-9a-f]{6}")
"""Other folders were not made here."""

_one_at_a_time = threading.Lock()


def claim(folder: Path) -> None:
    """Note in ``folder``, which is made, that this process drives its sweep."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / OWNER).write_text(identity.me())


def forget_caches(folder: Path) -> None:
    """Take away the compile caches and pipes below a sweep's ``folder`` that its runs did not come to take away."""
    for pattern in CACHES:
        for cache in folder.glob(pattern):
            shutil.rmtree(cache, ignore_errors=True)
    for path in folder.rglob(PIPE):
        if path.is_fifo():
            path.unlink(missing_ok=True)


def tidy(settings: Settings, store: Store) -> list[str]:
    """Take away the oldest artifacts until the rest is within the bound; the ids of the sweeps that lost theirs."""
    bound = Bound(settings.retention_sweeps, settings.retention_bytes)
    with _one_at_a_time:
        sizes = Counter({folder.name: _size(folder) for folder in _folders(settings) if _has_ended(folder, store)})
        place = None if settings.artifacts_url is None else ArtifactPlace(settings.artifacts_url)
        sizes.update(_copied(place, store) if place is not None else {})
        gone = beyond(bound, [Kept(sweep_id, size) for sweep_id, size in sizes.items()])
        for sweep_id in gone:
            # Said first: half a folder is not taken for a whole one, and is tried again.
            _note(store, sweep_id)
            shutil.rmtree(settings.artifacts_dir / sweep_id, ignore_errors=True)
            if place is not None:
                place.remove(sweep_id)
    return gone


def _copied(place: ArtifactPlace, store: Store) -> Counter[str]:
    """Bytes of each ended sweep of this store that are kept at ``place``."""
    sizes: Counter[str] = Counter()
    for stored in place.files():
        sizes[stored.name.partition("/")[0]] += stored.size
    return Counter({name: size for name, size in sizes.items() if _SWEEP.fullmatch(name) and _is_ended(name, store)})


def _is_ended(sweep_id: str, store: Store) -> bool:
    """Known, and ended."""
    with store.reading() as session:
        try:
            return repositories.get_sweep(session, sweep_id).state is SweepState.ENDED
        except UnknownRecord:
            return False


def _folders(settings: Settings) -> Iterator[Path]:
    if settings.artifacts_dir.is_dir():
        found = settings.artifacts_dir.iterdir()
        yield from (path for path in found if _SWEEP.fullmatch(path.name) and path.is_dir() and not path.is_symlink())


def _has_ended(folder: Path, store: Store) -> bool:
    with store.reading() as session:
        try:
            return repositories.get_sweep(session, folder.name).state is SweepState.ENDED
        except UnknownRecord:
            return not _is_claimed(folder)


def _is_claimed(folder: Path) -> bool:
    try:
        return identity.alive((folder / OWNER).read_text())
    except OSError:
        return False


def _note(store: Store, sweep_id: str) -> None:
    with store.transaction() as session:
        try:
            known = repositories.get_sweep(session, sweep_id)
        except UnknownRecord:
            return
        if known.artifacts_removed_at is None:
            repositories.note_artifacts_removed(session, sweep_id, time.time())


def _size(folder: Path) -> int:
    """Bytes of the files below ``folder``; one that goes meanwhile counts nothing."""
    size = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                size += os.lstat(os.path.join(root, name)).st_size
            except OSError:
                continue
    return size
