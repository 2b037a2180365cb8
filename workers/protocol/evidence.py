"""What a run found out. What was not looked at is ``None``, never zero."""

from __future__ import annotations

from workers.protocol.accuracy import Accuracy
from workers.protocol.arms import ArmReport
from workers.protocol.audit import Environment, Guard
from workers.protocol.fallback import Fallback
from workers.protocol.outputs import OutputComparison
from workers.protocol.residual import Invariant, Residual
from workers.protocol.runs import Policy
from workers.protocol.starts import Compile
from workers.protocol.words import PROTOCOL, Message, Patch, PatchState


class SequenceParallelism(Message):
    """``expected``: all-reduces before the pass, each of which it should rewrite. ``matched``: those it did.

    Both are those of the rank that falls shortest of what it should have; ``per_rank`` shows what each rank matched and
    ``expected_per_rank`` what it should have: pipeline stages have different numbers. Where that is empty, ``expected``
    holds for all.
    """

    expected: int | None
    matched: int | None
    per_rank: list[int]
    expected_per_rank: list[int] = []


class Exercised(Message):
    sequence_parallelism: SequenceParallelism | None


class Evidence(Message):
    """All that one run found out. What was not looked at is ``None``, never zero."""

    protocol: int = PROTOCOL
    policy: Policy
    environment: Environment | None
    patches: dict[Patch, PatchState]
    arms: list[ArmReport]
    compile: Compile
    exercised: Exercised
    fallback: Fallback | None
    residual: list[Residual]
    outputs: list[OutputComparison]
    guards: list[Guard]
    invariants: list[Invariant] = []
    accuracy: Accuracy | None = None
