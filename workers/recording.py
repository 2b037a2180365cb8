"""A recording: what a real engine said and left, arm by arm, and what was resolved of its settings before.

A folder with ``audit.json.gz`` (the catalogue of its engine environment, and of each cell what was asked and what the
audit answered) and one ``ROLE.json.gz`` for each arm: ``seconds`` it took, ``processes`` with their ``lines`` (the main
process first), its ``result``, and the files that it left in its ``cache`` root and are looked at. All times are
seconds since the arm was started. ``workers.null_engine`` emits the arms.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from workers.null_engine import SUFFIX, Json, named, read
from workers.protocol import AuditCell, AuditedCell, AuditReply, AuditRequest, Catalogue, Environment, Problem

AUDIT = f"audit{SUFFIX}"


class NoRecording(ValueError):
    """The folder holds no recording. Says which and what is missing."""


class Recording:
    """The recording in ``folder``, as far as an audit asks it.

    Raises:
        NoRecording: if it is none.
    """

    def __init__(self, folder: Path) -> None:
        try:
            told = read(folder / AUDIT)
            self._environment = Environment.model_validate(named(told["catalogue"]["environment"]))
            self.catalogue = Catalogue.model_validate(told["catalogue"] | {"environment": self._environment})
            self._cells = [(_asked(cell), AuditedCell.model_validate(cell["answer"])) for cell in told["cells"]]
        except (OSError, ValueError, KeyError) as error:
            raise NoRecording(f"{folder} holds no recording of an engine: {AUDIT}: {error}") from error
        self._of = folder

    @property
    def engines(self) -> list[Json]:
        """What was asked of the engine in each recorded cell: its settings, and ``patches.NAME``."""
        return [engine for engine, _ in self._cells]

    def audit(self, request: AuditRequest) -> AuditReply:
        """What was answered when the recording was made. A cell with other settings is refused."""
        return AuditReply(environment=self._environment, cells=[self._answer(cell) for cell in request.cells])

    def _answer(self, asked: AuditCell) -> AuditedCell:
        wanted = _asked({"engine": asked.engine, "patches": asked.patches})
        for engine, answer in self._cells:
            if engine == wanted:
                return answer.model_copy(update={"id": asked.id})
        problems = list(self._refusal(wanted))
        return AuditedCell(id=asked.id, problems=problems, effective=None, changes=[], patches={}, shape=None)

    def _refusal(self, wanted: Json) -> Iterator[Problem]:
        """Each setting in which it differs from the recorded cell that is nearest."""
        nearest = min(self.engines, key=lambda engine: len(_differing(engine, wanted)))
        for key in sorted(_differing(nearest, wanted)):
            have = f"{nearest[key]!r}" if key in nearest else "left open"
            message = f"the null engine emits a recording in which {key} is {have}"
            yield Problem(key=key, message=message, hint="Ask for what was recorded; env.* may differ")


def _asked(cell: Json) -> Json:
    return {**cell["engine"], **{f"patches.{patch}": str(mode) for patch, mode in cell["patches"].items()}}


def _differing(one: Json, other: Json) -> set[str]:
    return {key for key in one.keys() | other.keys() if key not in one or key not in other or one[key] != other[key]}
