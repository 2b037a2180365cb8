"""One combination of settings, frozen when its sweep is accepted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from service.domain import reserved
from service.domain.place import Path
from service.domain.verdict import Verdict
from workers.protocol import DEFAULT, Check, Patch, PatchMode, Settings


@dataclass(frozen=True)
class Cell:
    """A cell of a sweep.

    ``id``: unique in its sweep; the same content has the same id in every sweep.
    ``requested``: flat dotted key → JSON value, sorted by key, with the reserved keys; no value is ``None``.
    ``expect``: the verdicts any of which makes the cell ok.
    ``path``: where in the matrix the cell comes from. ``absent``: settings that the vLLM of the cell's environment does
    not have and whose lack means there what the cell asks for; they are not passed to it.
    """

    id: str
    name: str
    requested: Mapping[str, Any]
    expect: tuple[Verdict, ...]
    checks: tuple[Check, ...]
    path: Path
    absent: frozenset[str] = frozenset()

    @property
    def engine(self) -> Settings:
        """The settings of the engine alone, with those that the requests cannot do without."""
        written = {
            key: value
            for key, value in self.requested.items()
            if not reserved.is_reserved(key) and key not in self.absent
        }
        fields = [field for field, value in self.batch.items() if reserved.needs(field, value)]
        needed = {reserved.NEEDED_BY[field]: True for field in fields}
        return needed | written

    @property
    def patches(self) -> dict[Patch, PatchMode]:
        """What is asked of every patch; ``on`` where nothing was written."""
        asked = self._below(reserved.PATCHES)
        return {patch: PatchMode(asked.get(patch, PatchMode.ON)) for patch in Patch}

    @property
    def env(self) -> dict[str, str]:
        """Environment variables of the engine."""
        return self._below(reserved.ENV)

    @property
    def batch(self) -> dict[str, Any]:
        """Fields of a ``BatchPlan``; those that are missing have its defaults."""
        return self._below(reserved.BATCH)

    @property
    def evaluation(self) -> dict[str, Any]:
        """Fields of an ``Evaluation``; empty where the cell does not ask for the check."""
        return self._below(reserved.EVAL) if Check.EVAL in self.checks else {}

    @property
    def environment(self) -> str:
        """Name of the engine environment."""
        return str(self.requested.get(reserved.ENVIRONMENT, DEFAULT))

    def _below(self, root: str) -> dict[str, Any]:
        prefix = f"{root}."
        return {key.removeprefix(prefix): value for key, value in self.requested.items() if key.startswith(prefix)}
