"""What the domain refuses.

    ValueError
    ├── MatrixError                             a matrix cannot be used; holds every problem that was found
    └── lifecycle.InvalidTransition             somebody acts on an old picture of a cell

A ``MatrixError`` is made of ``MatrixProblem``s. Each says what is wrong, where, and what to do; ``code`` is for
programs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from service.domain.place import Path, Place, show_path

MOST_PROBLEMS = 100
"""Problems that one error spells out. A file with more of them is not a matrix file."""


@dataclass(frozen=True)
class MatrixProblem:
    """One thing to correct. ``place`` is ``None`` where there is no text, as in the body of an API request."""

    code: str
    message: str
    hint: str | None
    path: Path
    place: Place | None

    def __str__(self) -> str:
        path = show_path(self.path)
        where = f"{self.place} ({path})" if self.place and path else str(self.place or path)
        said = f"{self.message}. {self.hint}" if self.hint else self.message
        return f"{where}: {said}" if where else said


class MatrixError(ValueError):
    """A matrix that cannot be used. ``problems`` is never empty; ``str()`` gives one line for each."""

    def __init__(self, problems: Iterable[MatrixProblem]) -> None:
        self.problems = tuple(problems)
        if not self.problems:
            raise ValueError("a MatrixError needs at least one problem")
        super().__init__("\n".join(map(str, self.problems)))


class Problems:
    """Collects what is wrong, so that one reading of a file reports all of it.

    The same problem at the same path counts once. Beyond ``MOST_PROBLEMS`` they are only counted.
    """

    def __init__(self, place: Callable[[Path], Place | None] = lambda path: None) -> None:
        self._place = place
        self._found: dict[MatrixProblem, None] = {}
        self._more = 0

    @property
    def full(self) -> bool:
        """Whether further problems are only counted: time to stop looking for good advice."""
        return len(self._found) >= MOST_PROBLEMS

    def add(self, code: str, message: str, path: Path, hint: str | None = None, place: Place | None = None) -> None:
        """Note a problem. ``place`` where it is known better than by ``path``."""
        problem = MatrixProblem(code, message, hint, path, place or self._place(path))
        if problem in self._found:
            return
        if self.full:
            self._more += 1
        else:
            self._found[problem] = None

    def stop(
        self, code: str, message: str, path: Path, hint: str | None = None, place: Place | None = None
    ) -> MatrixError:
        """The error to raise at a problem after which reading on makes no sense: this one and all noted before."""
        self.add(code, message, path, hint, place)
        return self._error()

    def raise_if_any(self) -> None:
        """
        Raises:
            MatrixError: if a problem was noted. Problems stand in the order of the file.
        """
        if self._found:
            raise self._error()

    def _error(self) -> MatrixError:
        ordered = sorted(self._found, key=lambda problem: problem.place or Place(0, 0))
        if self._more:
            more = f"and {self._more} more problems"
            ordered.append(MatrixProblem("too-many-problems", more, "Correct these first", (), None))
        return MatrixError(ordered)
