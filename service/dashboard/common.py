"""Settings that every cell of a report has in common: one file with many cells has them once. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from service.dashboard.cell_view import CellView, Common

Item = TypeVar("Item")


def apart(views: Sequence[CellView]) -> tuple[Common, list[CellView]]:
    """What the cells that were resolved have in common, where that is more than one; and ``views`` with the rest."""
    resolved = [view for view in views if view.effective]
    if len(resolved) < 2:
        return Common(), [*views]
    common = Common(
        adapted=_in_all(resolved, lambda view: view.adapted),
        effective=_in_all(resolved, lambda view: view.effective),
    )
    return common, [_without(view, common) if view.effective else view for view in views]


def _in_all(views: Sequence[CellView], items: Callable[[CellView], Iterable[Item]]) -> tuple[Item, ...]:
    """In the order of the first cell."""
    first, *others = views
    kept = set(items(first))
    for view in others:
        kept &= set(items(view))
    return tuple(item for item in items(first) if item in kept)


def _without(view: CellView, common: Common) -> CellView:
    adapted, effective = set(common.adapted), set(common.effective)
    return replace(
        view,
        adapted=[item for item in view.adapted if item not in adapted],
        effective=[item for item in view.effective if item not in effective],
        common=common,
    )
