"""What a command was given, and refusing it: exit status 2, nothing was started."""

from __future__ import annotations

from pathlib import Path


class Refused(Exception):
    """The input cannot be used; the text says what, where and what to do."""


def read_bytes(path: Path) -> bytes:
    """The content of a matrix file.

    Raises:
        Refused: if it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise Refused(f"{path}: cannot be read ({error.strerror}); name an existing matrix file") from error


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file that the user named.

    Raises:
        Refused: if it cannot be written.
    """
    try:
        path.write_bytes(content)
    except OSError as error:
        raise Refused(f"{path}: cannot be written ({error.strerror}); name a file in an existing folder") from error
