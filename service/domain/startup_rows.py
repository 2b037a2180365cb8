"""What the seconds of both sides went into, as rows and in sentences computed from them."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from service.domain.startup import LOADED, SAVED, Ours, Peer

Row = dict[str, Any]

QUIET = 0.2
"""Cores that may be busy beforehand without being mentioned."""


def ratio(peers: Sequence[Peer], runs: Sequence[Ours]) -> float:
    """Wall time of ours in units of the peer's: of the medians."""
    return round(_median([run.wall_s for run in runs]) / _median([peer.wall_s for peer in peers]), 3)


def rows(peers: Sequence[Peer], runs: Sequence[Ours], prepared_s: float) -> list[Row]:
    """Tables: the commands, the starts of the peer, the arms of ours, and what ours spent without them."""
    return [
        *(_round(number, peer, run) for number, (peer, run) in enumerate(zip(peers, runs, strict=True), start=1)),
        {"before_the_clock": "model built, engine environment described", "s": _s(prepared_s)},
        *(row for number, peer in enumerate(peers, start=1) for row in _peer_rows(number, peer)),
        *(row for number, run in enumerate(runs, start=1) for row in _arm_rows(number, run)),
        *(
            {"round": number, "ours_without_engines": what, "s": _s(seconds)}
            for number, run in enumerate(runs, start=1)
            for what, seconds in without_engines(run).items()
        ),
    ]


def _round(number: int, peer: Peer, run: Ours) -> Row:
    return {
        "round": number,
        "peer_s": _s(peer.wall_s),
        "ours_s": _s(run.wall_s),
        "ratio": ratio([peer], [run]),
        "others_at_peer": _s(peer.others),
        "others_at_ours": _s(run.others),
    }


def _peer_rows(number: int, peer: Peer) -> Iterable[Row]:
    """``outside_s``: importing vLLM, starting and ending processes, which the peer does not report.

    The last row is the command around its starts.
    """
    for start in peer.starts:
        yield {
            "round": number,
            "peer": start.kind,
            "wall_s": _s(start.wall_s),
            "startup_s": None if start.startup_s is None else _s(start.startup_s),
            "outside_s": None if start.startup_s is None else _s(start.wall_s - start.startup_s),
            "compile_s": None if start.compile_s is None else _s(start.compile_s),
            "saved": sum(rank[SAVED] for rank in start.counters),
            "loaded": sum(rank[LOADED] for rank in start.counters),
        }
    around = peer.wall_s - sum(start.wall_s for start in peer.starts)
    nothing = dict.fromkeys(("startup_s", "outside_s", "compile_s", "saved", "loaded"))
    yield {"round": number, "peer": "around them", "wall_s": _s(around), **nothing}


def _arm_rows(number: int, run: Ours) -> Iterable[Row]:
    for arm in run.arms:
        artifacts = ((run.cell["compile"].get(arm.role) or {}).get("artifacts")) or {}
        yield {
            "round": number,
            "ours": str(arm.role),
            "wall_s": _s(arm.wall_s),
            "engine_s": _s(arm.engine_s),
            "own_s": _s(arm.wall_s - arm.engine_s),
            "saved": artifacts.get("saved"),
            "loaded": artifacts.get("loaded"),
        }


def without_engines(run: Ours) -> dict[str, float]:
    """Seconds of the command in which no arm ran, by what it did; with those in which one did, its wall time."""
    spans = _union((arm.begin, arm.end) for arm in run.arms)
    first, last = spans[0][0], spans[-1][1]
    return {
        "start of the command, audit, start of Ray": run.accepted - run.begin,
        "the rest of Ray's start, first actor": first - run.accepted,
        "actors between arms": sum(later[0] - earlier[1] for earlier, later in itertools.pairwise(spans)),
        "comparison, verdict": run.concluded - last,
        "report, end of Ray and of the command": run.end - run.concluded,
    }


def _union(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Spans that do not overlap, in order."""
    found: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return found


def notes(peers: Sequence[Peer], runs: Sequence[Ours], aim: float) -> list[str]:
    """What the figure compares, where the rest goes, and how far the aim is, in sentences computed from the rows.

    Where there are several rounds, of the last.
    """
    peer, run = peers[-1], runs[-1]
    found = [_compared(run), _where_ours_go(run, peer), _where_theirs_go(peer), _aim(peers, runs, aim)]
    busy = max(*(peer.others for peer in peers), *(run.others for run in runs))
    return found if busy < QUIET else [*found, _noisy(busy)]


def _compared(run: Ours) -> str:
    residual, outputs = run.cell["residual"], run.cell["outputs"]
    said = "bit-equal" if residual["bitwise_equal"] else f"score {residual['worst_score']:.3g}"
    return (
        "The peer gives a cold and a warm start. Ours gives both, and the verdict: residual "
        f"{said} at {residual['sites']} sites on {residual['ranks']} ranks, outputs {outputs['class']}."
    )


def _where_ours_go(run: Ours, peer: Peer) -> str:
    engine, own = sum(arm.engine_s for arm in run.arms), sum(arm.wall_s - arm.engine_s for arm in run.arms)
    rest = without_engines(run)
    longest = sorted(rest.items(), key=lambda item: -item[1])
    parts = ", ".join(f"{what} {seconds:.1f} s" for what, seconds in longest)
    return (
        f"Of our {run.wall_s:.1f} s, {engine:.1f} s are work of {len(run.arms)} engines where the peer starts "
        f"{len(peer.starts)}, {own:.1f} s go to starting, reading and ending them, {sum(rest.values()):.1f} s pass "
        f"without an engine: {parts}."
    )


def _where_theirs_go(peer: Peer) -> str:
    reported = sum(start.startup_s or 0.0 for start in peer.starts)
    unreported = sum(start.wall_s for start in peer.starts if start.startup_s is None)
    return (
        f"Of the peer's {peer.wall_s:.1f} s it reports {reported:.1f} s; {unreported:.1f} s are its warm-up and "
        f"{peer.wall_s - reported - unreported:.1f} s importing vLLM and ending processes."
    )


def _aim(peers: Sequence[Peer], runs: Sequence[Ours], aim: float) -> str:
    over = _median([run.wall_s for run in runs]) - aim * _median([peer.wall_s for peer in peers])
    return f"The aim is {aim}: " + (f"{over:.1f} s more than that." if over > 0 else "reached.")


def _noisy(busy: float) -> str:
    return f"Up to {busy:.1f} cores were busy before a command began: the ratio says as much of others. Measure again."


def _median(values: Sequence[float]) -> float:
    return statistics.median(values)


def _s(seconds: float) -> float:
    return round(seconds, 2)
