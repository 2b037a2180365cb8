"""Processes of Ray's actors, as the machine sees them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import psutil


def actors() -> list[psutil.Process]:
    """Those that this process has started. Of the others some go while they are asked for their names."""
    return list(_actors())


def _actors() -> Iterator[psutil.Process]:
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if "RunActor" in child.name():
                yield child
