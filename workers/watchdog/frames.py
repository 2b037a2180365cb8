"""A process's stack as plain data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Frame:
    function: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.function} ({self.file}:{self.line})"

    def short(self) -> str:
        """With the file as its package names it."""
        inside = self.file.rpartition("/site-packages/")[2].rsplit("/", 3)
        return f"{self.function} ({'/'.join(inside[-3:])}:{self.line})"


@dataclass(frozen=True)
class Thread:
    """``frames``: the innermost first."""

    name: str
    main: bool
    frames: tuple[Frame, ...]


@dataclass(frozen=True)
class Stack:
    """``problem``: why there are no threads."""

    pid: int
    parent: int
    command: str
    threads: tuple[Thread, ...] = ()
    problem: str | None = None

    @property
    def main(self) -> tuple[Frame, ...]:
        """The main thread's frames, the innermost first."""
        return next((thread.frames for thread in self.threads if thread.main), ())
