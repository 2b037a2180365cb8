"""What the API asks of the rest of the controller."""

from __future__ import annotations

from typing import Protocol

from service.domain.document import Document


class Controller(Protocol):
    """Takes matrices and drives their sweeps. Called from several threads."""

    def submit(self, document: Document) -> str:
        """Store the sweep of a matrix, let it start, and return its id.

        Raises:
            MatrixError: if the matrix cannot be expanded.
        """
        ...

    def trouble(self) -> str | None:
        """Why no sweep can start at present; ``None`` when it can."""
        ...
