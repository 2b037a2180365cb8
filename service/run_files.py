"""The files that the arms of a run left, and reading them without ever leaving their folders.

A path starts with the name of an arm's folder: ``cold/engine.log``. A folder is entered and a file is opened one name
at a time, each from the one before, and no link is followed: what an engine put there cannot lead anywhere else, also
when it changes in the meantime. Only plain files are given out; opening a pipe would wait for its writer.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from service.store.records import UnknownRecord

CHUNK_BYTES = 1 << 16
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class Artifact:
    """A file of a run; ``path`` starts with the arm's folder. ``modified_at`` is absent where nobody knows it."""

    path: str
    bytes: int
    modified_at: datetime | None


@dataclass(frozen=True)
class Opened:
    """An open file and its size when it was opened; a log may grow."""

    file: BinaryIO
    size: int

    def chunks(self, begin: int = 0) -> Iterator[bytes]:
        """What it holds from ``begin`` on, up to that size. The file is closed at the end."""
        with self.file as file:
            file.seek(begin)
            left = self.size - begin
            while left > 0 and (chunk := file.read(min(left, CHUNK_BYTES))):
                left -= len(chunk)
                yield chunk


class RunFiles:
    """``folders``: the arms' folders by the name they go by. Those that do not lie below ``root`` are left out."""

    def __init__(self, root: Path, folders: Mapping[str, Path]) -> None:
        self._root = root
        self._folders = {
            name: folder.relative_to(root).parts
            for name, folder in sorted(folders.items())
            if folder.is_relative_to(root) and ".." not in folder.parts
        }

    def __contains__(self, name: object) -> bool:
        """Is there an arm's folder of this name?"""
        return name in self._folders

    def __iter__(self) -> Iterator[Artifact]:
        """Every file, by arm and then by path."""
        for name, parts in self._folders.items():
            with contextlib.suppress(OSError), _entered(self._root, parts) as folder:
                yield from sorted(_below(name, folder), key=lambda item: item.path)

    def open(self, path: str) -> Opened:
        """The file at ``path``. The caller closes it, or reads its chunks to their end.

        Raises:
            UnknownRecord: if there is no such file, or it lies elsewhere.
        """
        name, *inner = path.split("/")
        if name not in self._folders or not inner or any(part in ("", ".", "..") or "\0" in part for part in inner):
            raise UnknownRecord("artifact", path)
        try:
            with _entered(self._root, (*self._folders[name], *inner[:-1])) as folder:
                return _opened(os.open(inner[-1], _FILE, dir_fd=folder))
        except OSError as error:
            raise UnknownRecord("artifact", path) from error


@contextlib.contextmanager
def _entered(root: Path, parts: tuple[str, ...]) -> Iterator[int]:
    """A descriptor of the folder that ``parts`` lead to from ``root``."""
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts:
            inner = os.open(part, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = inner
        yield folder
    finally:
        os.close(folder)


def _opened(descriptor: int) -> Opened:
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise FileNotFoundError
    return Opened(os.fdopen(descriptor, "rb"), found.st_size)


def _below(name: str, folder: int) -> Iterator[Artifact]:
    for place, _, names, inside in os.fwalk(dir_fd=folder):
        for file in names:
            path = os.path.normpath(os.path.join(name, place, file))
            # A name that is not UTF-8 cannot be asked for.
            with contextlib.suppress(OSError, UnicodeEncodeError):
                path.encode()
                found = os.stat(file, dir_fd=inside, follow_symlinks=False)
                if stat.S_ISREG(found.st_mode):
                    yield _described(path, found)


def _described(path: str, found: os.stat_result) -> Artifact:
    return Artifact(path, found.st_size, datetime.fromtimestamp(found.st_mtime, UTC))
