"""What a matrix would become, for somebody who decides whether to submit it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from service.domain.verdict import Verdict
from workers.protocol import Change, Check, Environment


@dataclass(frozen=True)
class PreviewCell:
    """A cell as it would be run. ``duplicate_of``: name of the cell whose result it would share.

    ``cannot_run``: why it would not be run at all; ``effective`` is ``None`` then. ``ranks``: processes of its engine.
    """

    id: str
    name: str
    expect: tuple[Verdict, ...]
    checks: tuple[Check, ...]
    requested: Mapping[str, Any]
    effective: Mapping[str, Any] | None
    changes: tuple[Change, ...]
    ranks: int | None
    environment: str
    duplicate_of: str | None
    cannot_run: str | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Preview:
    """``environments``: the engine environments that answered, by name. ``runs``: cells that would be run."""

    name: str
    cells: tuple[PreviewCell, ...]
    runs: int
    environments: Mapping[str, Environment]
