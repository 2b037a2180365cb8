"""Two ways to find out how an engine starts, side by side: vLLM's startup benchmark, and a run of ours.

Both are described by what was seen of them from outside; here stands whether either measured what it should.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workers.protocol import Event, Role

Json = Mapping[str, Any]

COLD, WARM_UP, WARM = "cold", "warm-up", "warm"
STARTS = (COLD, WARM_UP, WARM)
"""Those of the peer, in its order."""

COLLECT = "collect"
"""The first phase of an arm's main process that serves us and not the engine."""

SAVED, LOADED = "num_compiled_artifacts_saved", "num_compiled_artifacts_loaded"
COMPILED = "num_inductor_compiles"


class NotMeasured(ValueError):
    """One side did not come through, or measured something else than it should: a ratio would say nothing."""


@dataclass(frozen=True)
class PeerStart:
    """One engine start of the peer. ``wall_s``: from one of its announcements to the next.

    ``startup_s``, ``compile_s``: as the peer reports them, of the starts that it reports. ``counters``: vLLM's, of each
    rank.
    """

    kind: str
    wall_s: float
    startup_s: float | None
    compile_s: float | None
    counters: tuple[Json, ...]


@dataclass(frozen=True)
class Peer:
    """``wall_s``: of the whole command. ``others``: cores that were busy just before it began."""

    wall_s: float
    starts: tuple[PeerStart, ...]
    others: float


@dataclass(frozen=True)
class Ours:
    """A run from the start of its command at ``begin`` to its exit at ``end`` (Unix time, as that of ``events``).

    ``accepted``: when its matrix was, audited. ``concluded``: when its cell had a verdict. ``others``: as the peer's.
    """

    begin: float
    end: float
    accepted: float
    concluded: float
    events: tuple[Event, ...]
    cell: Json
    others: float

    @property
    def wall_s(self) -> float:
        return self.end - self.begin

    @property
    def arms(self) -> tuple[ArmTime, ...]:
        """In the order in which they ended."""
        return tuple(_arms(self.events))


@dataclass(frozen=True)
class ArmTime:
    """One of our engines. ``engine_s``: of its seconds, those from its import to the end of its requests."""

    role: Role
    begin: float
    end: float
    engine_s: float

    @property
    def wall_s(self) -> float:
        return self.end - self.begin


def _arms(events: Iterable[Event]) -> Iterable[ArmTime]:
    begun: dict[Role, float] = {}
    main: dict[Role, list[tuple[float, str]]] = {}
    for event in events:
        if event.arm is None:
            continue
        if event.kind == "arm-started":
            begun[event.arm], main[event.arm] = event.at, []
        elif event.kind == "phase" and event.rank is None:
            main[event.arm].append((event.at, str(event.data.get("name"))))
        elif event.kind == "arm-finished":
            first = min((at for at, _ in main[event.arm]), default=event.at)
            last = max((at for at, name in main[event.arm] if name == COLLECT), default=event.at)
            yield ArmTime(event.arm, begun[event.arm], event.at, last - first)


def check_peer(peer: Peer, ranks: int) -> None:
    """Its cold start compiled and its warm one loaded, on each of ``ranks`` ranks.

    Raises:
        NotMeasured: with all that is wrong.
    """
    cold, filled, warm = peer.starts
    _raise(
        "vLLM's benchmark",
        {
            "a start was not seen on every rank": any(len(start.counters) != ranks for start in peer.starts),
            "its cold start saved nothing that was compiled": not _each(cold.counters, SAVED),
            "its cold start loaded what it should compile": _any(cold.counters, LOADED),
            "its warm-up saved nothing that a warm start could load": not _each(filled.counters, SAVED),
            "its warm start loaded nothing": not _each(warm.counters, LOADED),
            "its warm start compiled": _any(warm.counters, COMPILED),
        },
    )


def check_ours(cell: Json, ranks: int) -> None:
    """The cell passed: its starts were cold and warm on each of ``ranks`` ranks, and all was compared.

    Raises:
        NotMeasured: with all that is wrong.
    """
    cold, warm = ((cell["compile"][kind] or {}).get("artifacts", {}).get("ranks", []) for kind in (COLD, WARM))
    residual = cell["residual"]
    _raise(
        "the run",
        {
            f"its verdict is {cell['verdict']}: {'; '.join(cell['reasons'])}": cell["verdict"] != "pass",
            "a start was not seen on every rank": any(len(start) != ranks for start in (cold, warm)),
            "its cold start saved nothing that was compiled": not _each(cold, "saved"),
            "its cold start loaded what it should compile": _any(cold, "loaded"),
            "its warm start loaded nothing": not _each(warm, "loaded"),
            "its warm start compiled": _any(warm, "compiled"),
            "it compared no residual": not residual or not residual["sites"],
            "it compared no outputs": not cell["outputs"],
        },
    )


def check_same(peer: Iterable[Json], ours: Iterable[Json]) -> None:
    """vLLM made the same key of both configurations, codes and compilers: factors of its cache keys.

    Raises:
        NotMeasured: when it did not.
    """
    theirs, own = (sorted({tuple(sorted(factors.items())) for factors in side}) for side in (peer, ours))
    _raise(
        "the comparison",
        {
            "a side left no cache key": not theirs or not own,
            f"the peer compiled {theirs} and the run {own}": theirs != own,
        },
    )


def _each(ranks: Sequence[Json], counter: str) -> bool:
    return all(rank[counter] > 0 for rank in ranks)


def _any(ranks: Sequence[Json], counter: str) -> bool:
    return any(rank[counter] > 0 for rank in ranks)


def _raise(who: str, wrong: Mapping[str, bool]) -> None:
    found = [what for what, is_so in wrong.items() if is_so]
    if found:
        raise NotMeasured(f"{who} did not measure what it should: {'; '.join(found)}")
