"""Files that a command was given."""

from __future__ import annotations

from pathlib import Path

from service.commands.refused import Refused


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
