"""What the API asks of the rest of the controller."""

from __future__ import annotations

from typing import Protocol

from service.domain.document import Document
from service.domain.preview import Preview


class Controller(Protocol):
    """Takes matrices and drives their sweeps. Called from several threads."""

    def submit(self, document: Document, *, sweep_id: str | None = None) -> str:
        """Store the sweep of a matrix, let it start, and return its id: ``sweep_id``, or else a new one.

        Raises:
            MatrixError: if the matrix cannot be expanded.
        """
        ...

    def preview(self, document: Document) -> Preview:
        """What ``submit`` would make of a matrix; nothing is stored or started.

        Raises:
            MatrixError: as ``submit``.
        """
        ...
