"""What the API asks of the rest of the controller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from service.domain.document import Document
from service.domain.preview import Preview


class Controller(Protocol):
    """Takes matrices and drives their sweeps. Called from several threads."""

    def submit(
        self,
        document: Document,
        *,
        priority: int = 0,
        max_parallel: int | None = None,
        key_id: str | None = None,
        sweep_id: str | None = None,
    ) -> str:
        """Store the sweep of a matrix, let it start, and return its id: ``sweep_id``, or else a new one.

        ``priority``: sweeps of a higher one come first. ``max_parallel``: so many of its runs at once, at most.
        ``key_id``: the API key that it is submitted with.

        Raises:
            MatrixError: if the matrix cannot be expanded.
        """
        ...

    def trouble(self) -> str | None:
        """Why no sweep can start at present; ``None`` when it can."""
        ...

    def preview(self, document: Document) -> Preview:
        """What ``submit`` would make of a matrix; nothing is stored or started.

        Raises:
            MatrixError: as ``submit``.
        """
        ...

    def cancel(self, sweep_id: str, cell_id: str | None = None) -> None:
        """End a sweep, or one of its cells, before it is done.

        Raises:
            UnknownRecord: if there is no such sweep or cell.
            InvalidTransition: if it has ended.
        """
        ...

    def rerun(self, sweep_id: str, cells: Sequence[str] | None = None) -> None:
        """Run cells again that have ended: those that are not ok, or those that are named.

        Raises:
            UnknownRecord: if there is no such sweep or cell.
            InvalidTransition: if one of them has not ended.
        """
        ...

    def clone(self, sweep_id: str) -> str:
        """Submit the matrix of a sweep once more, and return the id of the new one.

        Raises:
            UnknownRecord: if there is no such sweep.
            MatrixError: if the matrix cannot be run any more.
        """
        ...
