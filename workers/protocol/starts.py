"""The timed starts of a run, and what a warm one owes the cold one."""

from __future__ import annotations

from workers.protocol.outputs import OutputComparison
from workers.protocol.times import CompileTimes
from workers.protocol.words import Message, Role


class KeyFactor(Message):
    """A factor of vLLM's cache key that differs, by its dotted path. Values are JSON, long ones cut."""

    name: str
    cold: str
    warm: str


class KeyDifference(Message):
    """What of one rank's cache key is another in a warm start. ``part``: of a model compiled in several.

    ``changed`` is empty where no factor differs; ``problem`` says why they could not be compared.
    """

    rank: int
    part: str = ""
    changed: list[KeyFactor] = []
    problem: str | None = None


class TimedStart(Message):
    """One cold or warm start. ``repeat`` counts from 1.

    ``outputs``: a warm start's answers against those of the cold start that filled its cache root. ``cache_keys``: of
    each rank that loaded less than the cold start had saved. ``cache_problem``: why nothing more could be written to
    the cache root afterwards.
    """

    role: Role
    repeat: int
    times: CompileTimes
    outputs: OutputComparison | None = None
    cache_keys: list[KeyDifference] = []
    cache_problem: str | None = None


class Compile(Message):
    """``cold`` and ``warm`` are the median starts; ``starts`` holds every one, in order."""

    cold: CompileTimes | None
    warm: CompileTimes | None
    starts: list[TimedStart] = []
