"""Where the files of runs are kept beside the machine that made them: below an fsspec URL.

A file goes by its name, ``SWEEP/cells/CELL/RUN/cold/engine.log``, whatever lies below the URL: a folder, a bucket. Only
plain files are kept; no link is followed and no pipe is opened.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from workers.protocol import Event, RunSpec

CACHE = "cache"
"""A compile cache in an arm's folder. It is most of it, and serves nobody later."""


class ArtifactsError(OSError):
    """Files cannot be kept, or read back. Says which and why."""


@dataclass(frozen=True)
class StoredFile:
    """``size`` in bytes."""

    name: str
    size: int


class ArtifactPlace:
    """What is below ``url``. Safe to use from several processes at once; each file is written by one."""

    def __init__(self, url: str) -> None:
        """
        Raises:
            ArtifactsError: if there is no such kind of place, or its library is not installed.
        """
        # Most commands never need it, and start sooner without.
        import fsspec

        self.url = url
        try:
            self._system, self._root = fsspec.core.url_to_fs(url)
        except (ValueError, ImportError) as error:
            raise ArtifactsError(f"artifacts cannot be kept at {url}: {error}; see SHARDPROOF_ARTIFACTS_URL") from error

    def put(self, folder: Path, name: str) -> int:
        """Keep every file below ``folder``, under ``name``; how many there were. What is there already is replaced."""
        number = 0
        for file in plain_files(folder):
            target = self._path(f"{name}/{file.relative_to(folder).as_posix()}")
            self._do(partial(self._put, file, target), f"{file} cannot be kept")
            number += 1
        return number

    def get(self, name: str, folder: Path) -> int:
        """Bring what is kept under ``name`` into ``folder``; how many files that are."""
        found = list(self.files(name))
        for stored in found:
            target = folder / PurePosixPath(stored.name).relative_to(name)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(self.read(stored.name))
        return len(found)

    def files(self, name: str = "") -> Iterator[StoredFile]:
        """What is kept under ``name``, sorted; nothing if there is nothing."""
        path = self._path(name)
        found: dict[str, dict[str, Any]] = self._do(
            lambda: self._system.find(path, detail=True), f"what is kept under {name} cannot be listed"
        )
        start = len(self._root.rstrip("/")) + 1
        for place, about in sorted(found.items()):
            yield StoredFile(place[start:], int(about.get("size") or 0))

    def names(self) -> list[str]:
        """The folders right below the URL: sweeps."""
        return sorted({stored.name.split("/", 1)[0] for stored in self.files() if "/" in stored.name})

    def read(self, name: str) -> bytes:
        """The content of one file.

        Raises:
            ArtifactsError: if there is no such file.
        """
        content: bytes = self._do(lambda: self._system.cat_file(self._path(name)), f"{name} cannot be read")
        return content

    def remove(self, name: str) -> None:
        """Take away all that is kept under ``name``, which is not everything."""
        path = self._path(name)
        if path == self._root.rstrip("/"):
            raise ArtifactsError(f"{name!r} names no sweep; everything is not removed at once")
        if self._do(lambda: self._system.exists(path), f"{name} cannot be looked for"):
            self._do(lambda: self._system.rm(path, recursive=True), f"{name} cannot be removed")

    def _put(self, file: Path, target: str) -> None:
        self._system.makedirs(target.rpartition("/")[0], exist_ok=True)
        self._system.put_file(str(file), target)

    def _path(self, name: str) -> str:
        """Where ``name`` lies. It never leads out of the place."""
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if ".." in parts or "\0" in name or "\\" in name:
            raise ArtifactsError(f"{name!r} is no name of an artifact")
        return "/".join([self._root.rstrip("/"), *parts])

    def _do(self, work: Callable[[], Any], what: str) -> Any:
        try:
            return work()
        except Exception as error:
            # Every kind of place has errors of its own.
            raise ArtifactsError(f"{what} at {self.url}: {type(error).__name__}: {error}") from error


def keep(spec: RunSpec) -> Iterator[Event]:
    """Keep what the arms of a run left, where its specification says; nothing if it names no place.

    A place that does not take it costs no run: the files stay where they are, and the event says so.
    """
    if spec.artifacts is None:
        return
    said: dict[str, Any] = {"url": spec.artifacts.url}
    try:
        place = ArtifactPlace(spec.artifacts.url)
        root = Path(spec.artifacts.root)
        folders = [Path(arm.folder) for arm in spec.arms]
        said["files"] = sum(place.put(folder, folder.relative_to(root).as_posix()) for folder in folders)
    except (ArtifactsError, ValueError) as error:
        said["problem"] = str(error)
    yield Event(kind="artifacts-kept", at=time.time(), data=said)


def fetch_shared(spec: RunSpec) -> None:
    """Have the folders of the shared arms that a run looks at: those that ran on another machine are brought here."""
    if spec.artifacts is None:
        return
    shared = (spec.probe, spec.replicated, spec.reference, spec.evaluated)
    missing = [Path(folder) for folder in shared if folder is not None and not Path(folder).exists()]
    for folder in missing:
        place = ArtifactPlace(spec.artifacts.url)
        place.get(folder.relative_to(spec.artifacts.root).as_posix(), folder)


def plain_files(folder: Path) -> Iterator[Path]:
    """Files below ``folder`` that are neither links nor pipes, without those of compile caches."""
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != CACHE)
        for name in sorted(names):
            path = Path(root, name)
            if path.is_file() and not path.is_symlink():
                yield path
