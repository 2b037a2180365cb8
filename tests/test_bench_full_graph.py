"""``shardproof bench full-graph``: what its rows say, and what it refuses. No engine is started."""

from __future__ import annotations

import copy
import inspect
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch._dynamo import utils
from torch._inductor import scheduler

from workers.bench import LESS, full_graph
from workers.bench.engines import BenchFailed
from workers.bench.full_graph import CONFIGURATIONS, FULL, PIECEWISE, Extent, check, profiled_s, ratio, row
from workers.engine import internals
from workers.protocol import Role

SP_ON = "SP on, full graph"


def engine(subgraphs: int, saved: int, loaded: int, compiled: int, rewritten: int = 0) -> dict[str, Any]:
    """``result.json`` of an engine of two ranks."""
    counters = {
        "num_piecewise_graphs_seen": 2 * subgraphs - 1,
        "num_piecewise_capturable_graphs_seen": subgraphs,
        "num_backend_compilations": subgraphs,
        "num_compiled_artifacts_saved": saved,
        "num_compiled_artifacts_loaded": loaded,
        "num_inductor_compiles": compiled,
    }
    census = [{"all_reduce_before": rewritten + 1, "all_reduce_after": 1}]
    ranks = [
        {"rank": rank, "counters": counters, "census": census, "peak_rss_bytes": (700 + rank) << 20, "partitions": 0}
        for rank in (0, 1)
    ]
    return copy.deepcopy({"ranks": ranks})


def timed(seconds: float, result: dict[str, Any], slowest: float = 4.5) -> Any:
    events = [
        {"kind": kind, "name": name, "rank": rank, "t": at}
        for rank, length in ((0, 3.0), (1, slowest))
        for kind, name, at in (
            ("phase-begin", "load_model", 0.0),
            ("phase-end", "load_model", 9.0),
            ("phase-begin", "profile", 10.0),
            ("phase-end", "profile", 10.0 + length),
        )
    ]
    return SimpleNamespace(arm=SimpleNamespace(events=events), report=SimpleNamespace(wall_s=seconds), result=result)


COLD = {PIECEWISE: engine(5, 3, 0, 5), FULL: engine(1, 1, 0, 1), SP_ON: engine(1, 1, 0, 1, rewritten=9)}
WARM = {PIECEWISE: engine(0, 0, 3, 0), FULL: engine(0, 0, 1, 0), SP_ON: engine(0, 0, 1, 0)}


@pytest.mark.parametrize("name", COLD)
def test_an_engine_that_did_what_it_should_is_measured(name: str) -> None:
    check(name, COLD[name], WARM[name])


@pytest.mark.parametrize(
    ("name", "side", "counter", "value", "said"),
    [
        (PIECEWISE, "cold", "num_piecewise_capturable_graphs_seen", 1, "compiled 1 subgraphs"),
        (FULL, "cold", "num_piecewise_capturable_graphs_seen", 5, "compiled 5 subgraphs"),
        (FULL, "cold", "num_compiled_artifacts_saved", 0, "saved nothing"),
        (FULL, "cold", "num_compiled_artifacts_loaded", 1, "loaded something"),
        (FULL, "warm", "num_compiled_artifacts_loaded", 0, "loaded nothing"),
        (FULL, "warm", "num_inductor_compiles", 1, "compiled as it was started warm"),
    ],
)
def test_one_that_did_not_is_refused(name: str, side: str, counter: str, value: int, said: str) -> None:
    """Also where it is so on one rank of the two."""
    found = {"cold": copy.deepcopy(COLD[name]), "warm": copy.deepcopy(WARM[name])}
    changed = found[side]["ranks"] if counter.endswith(("seen", "saved")) else found[side]["ranks"][1:]
    for rank in changed:
        rank["counters"][counter] = value
    with pytest.raises(BenchFailed, match=said):
        check(name, found["cold"], found["warm"])


def test_sp_that_rewrote_nothing_is_refused() -> None:
    with pytest.raises(BenchFailed, match="rewrote no all-reduce"):
        check(SP_ON, COLD[FULL], WARM[FULL])


def test_a_row_has_all_of_one_configuration() -> None:
    found = row(2, PIECEWISE, timed(50.0, COLD[PIECEWISE]), timed(20.0, WARM[PIECEWISE], slowest=3.5))
    assert found == {
        "layers": 2,
        "configuration": PIECEWISE,
        "cold_s": 50.0,
        "warm_s": 20.0,
        "compile_s": 4.5,
        "load_s": 3.5,
        "peak_mib": [700, 701],
        "pieces": 9,
        "subgraphs": 5,
        "compiles": 5,
        "unique": 3,
        "loaded": 3,
        "inductor_pieces": 0,
        "sp_matched": None,
    }
    assert row(2, SP_ON, timed(1.0, COLD[SP_ON]), timed(1.0, WARM[SP_ON]))["sp_matched"] == 9


def test_a_rank_that_tells_nothing_is_no_zero() -> None:
    with pytest.raises(BenchFailed, match="no rank told"):
        profiled_s([{"kind": "phase-begin", "name": "profile", "rank": 0, "t": 1.0}])


def test_the_figure_is_of_the_deepest_model() -> None:
    rows = [
        {"layers": layers, "configuration": name, "cold_s": seconds}
        for layers, name, seconds in ((2, PIECEWISE, 10.0), (2, FULL, 40.0), (4, PIECEWISE, 20.0), (4, FULL, 30.0))
    ]
    assert (ratio(rows, 4), ratio(rows, 2)) == (1.5, 4.0)


def test_every_configuration_is_started_cold_and_then_warm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From one cache root, which no other configuration has."""
    asked = []

    def start(spec: Any, ranks: int) -> Any:
        asked.append(spec)
        of = COLD if spec.role is Role.COLD else WARM
        name = spec.key.rsplit(", ", 2)[0]
        return timed(10.0 * len(asked), of.get(name) or of[SP_ON])

    monkeypatch.setattr(full_graph, "start", start)
    found = full_graph.measure(tmp_path, quick=False)
    assert [(r["layers"], r["configuration"]) for r in found.rows] == [(d, n) for d in (2, 4) for n in CONFIGURATIONS]
    assert [spec.role for spec in asked] == [Role.COLD, Role.WARM] * len(found.rows)
    roots = [spec.cache_root for spec in asked]
    assert roots[::2] == roots[1::2]
    assert len(set(roots)) == len(found.rows)
    assert not any(spec.taps or spec.toolchain or spec.known_models for spec in asked)
    assert (found.goal, found.better, found.figure) == (None, LESS, round(110 / 90, 3))


def test_quick_has_what_the_figure_needs() -> None:
    quick: Extent = full_graph.QUICK
    assert set(quick.configurations) >= {PIECEWISE, FULL}
    assert len(quick.layers) * len(quick.configurations) < 8


def test_inductor_s_own_pieces_are_those_that_it_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under the name that the installed version uses. Where there are no counters nothing is known."""
    assert 'counters["inductor"]["cudagraph_partitions"] += len(partitions)' in inspect.getsource(scheduler)
    before = internals.partitions()
    assert before is not None
    monkeypatch.setitem(utils.counters["inductor"], "cudagraph_partitions", before + 3)
    assert internals.partitions() == before + 3
    monkeypatch.delattr(utils, "counters")
    assert internals.partitions() is None
