"""Where in a matrix file something stands."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

Path = tuple[str | int, ...]
"""Keys and 0-based list indices from the top of the file, e.g. ``("matrix", "tensor_parallel_size", 0)``."""

_PLAIN = re.compile(r"[\w.-]{1,100}")


@dataclass(frozen=True, order=True)
class Place:
    """A position in the text; line and column count from 1."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"


def show_path(path: Path) -> str:
    """``matrix.tensor_parallel_size[0]``; empty for the top of the file."""
    return "".join(_show_part(part) for part in path).removeprefix(".")


def _show_part(part: str | int) -> str:
    if isinstance(part, int):
        return f"[{part}]"
    if _PLAIN.fullmatch(part):
        return f".{part}"
    return "." + json.dumps(part if len(part) <= 100 else part[:97] + "...")
