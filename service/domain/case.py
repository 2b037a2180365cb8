"""What is judged, and what a judgement says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from service.domain.verdict import Verdict
from workers.protocol import Change, Check, Evidence, Outcome, Patch, PatchMode, Shape


@dataclass(frozen=True)
class Reason:
    """One finding in words. ``finding`` is ``None`` for a note."""

    finding: Verdict | None
    text: str


@dataclass(frozen=True)
class Judgement:
    verdict: Verdict
    ok: bool
    reasons: tuple[Reason, ...]


@dataclass(frozen=True)
class Case:
    """``evidence`` is ``None`` when no run of the cell came to any.

    ``lost``: shared arms of this cell that did not come through. ``failure``: why the run itself was lost
    (infrastructure), in words. ``notes``: what is worth knowing of how it was resolved.
    """

    checks: tuple[Check, ...]
    expect: tuple[Verdict, ...]
    patches: dict[Patch, PatchMode]
    shape: Shape
    changes: Sequence[Change]
    evidence: Evidence | None
    duplicate_of: str | None = None
    lost: tuple[Reason, ...] = ()
    failure: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def broken(self) -> bool:
        """An arm or the run itself did not come through: what is missing then needs no finding of its own."""
        arms = self.evidence.arms if self.evidence else []
        return bool(self.failure or self.lost or any(arm.outcome is not Outcome.OK for arm in arms))
