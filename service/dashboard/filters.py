"""What of a sweep its page is asked to show. All of it stands in the address. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from service.dashboard.axes import NONE, UNWRITTEN, Axis, Layout
from service.dashboard.lines import CellLine

NOT_YET = "not-yet"
"""Stands for the verdict of a cell that has none."""


@dataclass(frozen=True)
class Filter:
    """``values``: axis and value, as ``key=value``. ``changed``: only what is not as expected, slower or faster."""

    x: str = ""
    y: str = ""
    by: str = ""
    verdicts: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    changed: bool = False
    page: int = 1

    @property
    def narrows(self) -> bool:
        return bool(self.verdicts or self.values or self.changed)

    def address(self, **changes: Any) -> str:
        """The query of the address that shows this, with ``changes``; the first page unless one is among them."""
        asked = replace(self, **{"page": 1, **changes})
        written = [
            *((key, getattr(asked, key)) for key in ("x", "y", "by") if getattr(asked, key)),
            *(("verdict", verdict) for verdict in asked.verdicts),
            *(("value", value) for value in asked.values),
            *([("changed", "1")] if asked.changed else []),
            *([("page", str(asked.page))] if asked.page > 1 else []),
        ]
        return "?" + urlencode(written)

    def toggled(self, verdict: str) -> str:
        """The address with ``verdict`` added to those that are shown, or taken away."""
        kept = tuple(item for item in self.verdicts if item != verdict)
        return self.address(verdicts=kept if verdict in self.verdicts else (*kept, verdict))

    def apply(self, lines: Sequence[CellLine]) -> list[CellLine]:
        """Of ``lines`` those to be shown: of several values of one axis either may hold."""
        wanted: dict[str, set[str]] = {}
        for item in self.values:
            key, _, value = item.partition("=")
            wanted.setdefault(key, set()).add(value)
        return [line for line in lines if self._shows(line, wanted)]

    def remarks(self, axes: Sequence[Axis], layout: Layout) -> list[str]:
        """What the address asks for and is not shown: what this sweep does not have, and an axis in two places."""
        keys = {axis.key for axis in axes}
        asked = [item for item in (self.x, self.y, self.by) if item not in ("", NONE)]
        asked += [item.partition("=")[0] for item in self.values]
        unknown = [f"No axis of this sweep is called {key!r}." for key in dict.fromkeys(asked) if key not in keys]
        return unknown + self._twice(layout)

    def _twice(self, layout: Layout) -> list[str]:
        places = {axis.key: place for place, axis in (("columns", layout.x), ("rows", layout.y)) if axis is not None}
        found = []
        if self.x == self.y and self.y in places:
            found.append(f"{self.y!r} makes the rows, so it makes no columns too.")
        if self.by in places:
            found.append(f"{self.by!r} makes the {places[self.by]}, so it makes no small multiples too.")
        return found

    def _shows(self, line: CellLine, wanted: dict[str, set[str]]) -> bool:
        verdict = NOT_YET if line.glance.verdict is None else str(line.glance.verdict)
        return (
            (not self.verdicts or verdict in self.verdicts)
            and (not self.changed or line.differs)
            and all(line.written.get(key, UNWRITTEN) in values for key, values in wanted.items())
        )


ALL = Filter()
