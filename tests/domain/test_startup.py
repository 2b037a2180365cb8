"""The startup benchmark: what is computed of both sides, and when it is refused."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from service.domain.startup import NotMeasured, Ours, Peer, PeerStart, check_ours, check_peer, check_same
from service.domain.startup_rows import notes, ratio, rows, without_engines
from workers.protocol import Event, Role


def times(saved: int, loaded: int) -> dict[str, Any]:
    ranks = [{"rank": rank, "saved": saved, "loaded": loaded, "compiled": saved} for rank in (0, 1)]
    return {"artifacts": {"saved": 2 * saved, "loaded": 2 * loaded, "ranks": ranks}}


CELL: dict[str, Any] = {
    "verdict": "pass",
    "reasons": [],
    "compile": {"cold": times(saved=1, loaded=0), "warm": times(saved=0, loaded=1)},
    "residual": {"sites": 5, "ranks": 2, "bitwise_equal": True, "worst_score": 0.0},
    "outputs": {"class": "identical"},
}


def counters(saved: int, loaded: int, compiled: int) -> dict[str, int]:
    return {
        "num_compiled_artifacts_saved": saved,
        "num_compiled_artifacts_loaded": loaded,
        "num_inductor_compiles": compiled,
    }


COLD, WARM = counters(1, 0, 1), counters(0, 1, 0)
PEER = Peer(
    100.0,
    (
        PeerStart("cold", 45.0, 30.0, 20.0, (COLD, COLD)),
        PeerStart("warm-up", 30.0, None, None, (COLD, COLD)),
        PeerStart("warm", 20.0, 10.0, 1.5, (WARM, WARM)),
    ),
    others=0.1,
)


def arm(role: Role, begin: float, end: float) -> list[Event]:
    """Two seconds until its engine begins, three behind it."""
    phases = [("import", begin + 2, None), ("profile", begin + 3, 0), ("requests", begin + 4, None)]
    return [
        Event(kind="arm-started", at=begin, arm=role),
        *(Event(kind="phase", at=at, arm=role, rank=rank, data={"name": name}) for name, at, rank in phases),
        Event(kind="phase", at=end - 3, arm=role, data={"name": "collect"}),
        Event(kind="arm-finished", at=end, arm=role),
    ]


def run(*arms: tuple[Role, float, float]) -> Ours:
    events = tuple(event for role, begin, end in arms for event in arm(role, begin, end))
    return Ours(begin=1000.0, end=1080.0, accepted=1006.0, concluded=1075.0, events=events, cell=CELL, others=0.05)


RUN = run((Role.REPLICATED, 1010.0, 1030.0), (Role.COLD, 1031.0, 1051.0), (Role.WARM, 1051.0, 1071.0))


def test_the_figure_is_the_ratio_of_the_medians() -> None:
    assert ratio([PEER], [RUN]) == 0.8
    slow = Ours(1000.0, 1200.0, 1006.0, 1075.0, RUN.events, CELL, others=1.0)
    assert ratio([PEER, PEER, PEER], [RUN, slow, RUN]) == 0.8


def test_what_went_by_without_an_engine_and_the_engines_are_the_whole_command() -> None:
    rest = without_engines(RUN)
    assert list(rest.values()) == [6.0, 4.0, 1.0, 4.0, 5.0]
    assert sum(rest.values()) + sum(arm.wall_s for arm in RUN.arms) == RUN.wall_s


def test_arms_that_overlap_are_counted_once() -> None:
    both = run((Role.REPLICATED, 1010.0, 1030.0), (Role.REFERENCE, 1015.0, 1020.0), (Role.COLD, 1030.0, 1071.0))
    assert sum(without_engines(both).values()) + (1071.0 - 1010.0) == both.wall_s


def test_of_an_arm_its_engine_is_told_apart() -> None:
    assert [(arm.role, arm.wall_s, arm.engine_s) for arm in RUN.arms] == [
        (role, 20.0, 15.0) for role in (Role.REPLICATED, Role.COLD, Role.WARM)
    ]


def test_the_rows_are_a_table_for_each_side() -> None:
    found = rows([PEER], [RUN], 12.345)
    sides = {"peer_s": 100.0, "ours_s": 80.0, "ratio": 0.8}
    assert found[0] == {"round": 1, **sides, "others_at_peer": 0.1, "others_at_ours": 0.05}
    assert found[1]["s"] == 12.35
    peer = [row for row in found if "peer" in row]
    assert [(row["peer"], row["wall_s"], row["startup_s"], row["outside_s"], row["compile_s"]) for row in peer] == [
        ("cold", 45.0, 30.0, 15.0, 20.0),
        ("warm-up", 30.0, None, None, None),
        ("warm", 20.0, 10.0, 10.0, 1.5),
        ("around them", 5.0, None, None, None),
    ]
    assert [(row["saved"], row["loaded"]) for row in peer] == [(2, 0), (2, 0), (0, 2), (None, None)]
    assert len({tuple(row) for row in peer}) == 1
    ours = [row for row in found if "ours" in row]
    assert [(row["ours"], row["engine_s"], row["own_s"], row["saved"], row["loaded"]) for row in ours] == [
        ("replicated", 15.0, 5.0, None, None),
        ("cold", 15.0, 5.0, 2, 0),
        ("warm", 15.0, 5.0, 0, 2),
    ]


def test_the_sentences_say_where_the_rest_goes() -> None:
    compared, ours, theirs, aim = notes([PEER], [RUN], 0.5)
    assert "bit-equal at 5 sites on 2 ranks, outputs identical" in compared
    assert "Of our 80.0 s, 45.0 s are work of 3 engines where the peer starts 3, 15.0 s go to" in ours
    assert "20.0 s pass without an engine: start of the command, audit, start of Ray 6.0 s" in ours
    assert "it reports 40.0 s; 30.0 s are its warm-up and 30.0 s importing" in theirs
    assert aim == "The aim is 0.5: 30.0 s more than that."
    assert notes([PEER], [RUN], 0.9)[-1] == "The aim is 0.9: reached."


def test_a_machine_that_others_use_is_said_to_be_one() -> None:
    busy = Ours(RUN.begin, RUN.end, RUN.accepted, RUN.concluded, RUN.events, CELL, others=1.26)
    assert "Up to 1.3 cores" in notes([PEER, PEER], [busy, RUN], 0.5)[-1]


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_both_sides_are_taken_as_they_should_be() -> None:
    check_peer(PEER, 2)
    check_ours(CELL, 2)
    check_same([{"config_hash": "a"}, {"config_hash": "a"}], [{"config_hash": "a"}])


@pytest.mark.parametrize(
    ("start", "found", "said"),
    [
        (0, counters(0, 0, 1), "cold start saved nothing"),
        (0, counters(1, 1, 0), "cold start loaded what it should compile"),
        (1, counters(0, 0, 1), "warm-up saved nothing"),
        (2, counters(0, 0, 0), "warm start loaded nothing"),
        (2, counters(0, 1, 1), "warm start compiled"),
        (2, None, "not seen on every rank"),
    ],
)
def test_a_peer_that_did_something_else_is_refused(start: int, found: dict[str, int] | None, said: str) -> None:
    """On one rank of the two is enough."""
    starts = list(PEER.starts)
    one = starts[start]
    ranks = () if found is None else (one.counters[0], found)
    starts[start] = PeerStart(one.kind, one.wall_s, one.startup_s, one.compile_s, ranks)
    with pytest.raises(NotMeasured, match=said):
        check_peer(Peer(100.0, tuple(starts), 0.0), 2)


def ranks(cell: dict[str, Any], kind: str) -> Any:
    return cell["compile"][kind]["artifacts"]["ranks"]


def changed(change: Callable[[Any], None]) -> dict[str, Any]:
    cell = copy.deepcopy(CELL)
    change(cell)
    return cell


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        (
            changed(lambda cell: cell.update(verdict="fail-residual", reasons=["wrong"])),
            "verdict is fail-residual: wrong",
        ),
        (changed(lambda cell: cell["compile"].update(cold=None)), "not seen on every rank"),
        (changed(lambda cell: cell["compile"].update(warm=None)), "not seen on every rank"),
        (changed(lambda cell: ranks(cell, "warm").pop()), "not seen on every rank"),
        (changed(lambda cell: ranks(cell, "cold")[1].update(saved=0)), "cold start saved nothing"),
        (changed(lambda cell: ranks(cell, "cold")[1].update(loaded=1)), "cold start loaded"),
        (changed(lambda cell: ranks(cell, "warm")[1].update(loaded=0)), "warm start loaded nothing"),
        (changed(lambda cell: ranks(cell, "warm")[1].update(compiled=1)), "warm start compiled"),
        (changed(lambda cell: cell.update(residual=None)), "compared no residual"),
        (changed(lambda cell: cell.update(outputs=None)), "compared no outputs"),
    ],
)
def test_a_run_that_did_something_else_is_refused(cell: dict[str, Any], said: str) -> None:
    with pytest.raises(NotMeasured, match=said):
        check_ours(cell, 2)


@pytest.mark.parametrize("peer", [[], [{"config_hash": "b"}], [{"config_hash": "a"}, {"config_hash": "b"}]])
def test_other_settings_are_refused(peer: list[dict[str, str]]) -> None:
    with pytest.raises(NotMeasured):
        check_same(peer, [{"config_hash": "a"}])
