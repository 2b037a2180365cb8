"""What runs measured, remembered: evidence is large, and that of a run that has ended does not change any more."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Annotated

from fastapi import Depends, Request
from sqlalchemy.orm import Session

from service.store.glance_records import NO_FIGURES, RunFigures
from service.store.repositories import glances

MOST = 20_000
"""Runs that are remembered, of some hundred bytes each."""


class Figures:
    """Figures of runs by their ids. Safe to share between threads."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._known: OrderedDict[str, RunFigures] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, session: Session, run_ids: Iterable[str]) -> dict[str, RunFigures]:
        """What these runs measured; only those that nobody has asked for are looked up."""
        wanted = set(run_ids)
        with self._lock:
            found = {run_id: self._known[run_id] for run_id in wanted if run_id in self._known}
        read = glances.figures_of(session, sorted(wanted - found.keys())) if wanted - found.keys() else {}
        # One that has measured nothing may still be at it.
        self._remember({run_id: item for run_id, item in read.items() if item != NO_FIGURES})
        return found | read

    def _remember(self, figures: dict[str, RunFigures]) -> None:
        with self._lock:
            self._known.update(figures)
            while len(self._known) > self._most:
                self._known.popitem(last=False)


def _figures(request: Request) -> Figures:
    figures: Figures = request.app.state.figures
    return figures


FiguresDependency = Annotated[Figures, Depends(_figures)]
