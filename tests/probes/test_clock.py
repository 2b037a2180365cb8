"""Phases and totals do not hang on the wall clock: PyTorch's own times do, so they are not used."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import workers
from workers.probes.spans import ProcessSpans, read_all
from workers.probes.timeline import rank_times
from workers.trace_log import examine

from . import traced
from .traced import Traced

compiles = pytest.mark.slow


@pytest.fixture(scope="module")
def steady() -> Traced:
    return traced.steady()


@pytest.fixture(scope="module")
def jumping(tmp_path_factory: pytest.TempPathFactory) -> Traced:
    """The wall clock goes an hour ahead and an hour back, in turn, each time that somebody looks at it."""
    return traced.run(tmp_path_factory.mktemp("jumping"), jumping=True)


def spans_of(found: Traced) -> ProcessSpans:
    assert found.missing == []
    return read_all(found.folder)[found.pid]


def names(found: Traced) -> list[str]:
    # A collection of garbage is timed too, and comes when it likes.
    return [one.name for one in spans_of(found).spans if one.name != "gc"]


@compiles
def test_every_compile_event_is_seen_whatever_the_clock_does(steady: Traced, jumping: Traced) -> None:
    assert names(steady) == names(jumping)
    assert {"round 0", "round 2", "bytecode_tracing", "create_aot_dispatcher_function"} <= set(names(steady))


@compiles
def test_spans_lie_inside_each_other_and_inside_the_run(jumping: Traced) -> None:
    around: list[tuple[float, float]] = []
    for one in spans_of(jumping).spans:
        assert one.end is not None
        around = [*around[: one.depth], (one.begin, one.end)]
        bounds = [(jumping.begin, jumping.end), *around]
        assert bounds == sorted(bounds, key=lambda bound: (bound[0], -bound[1]))
        assert one.begin <= one.end


@compiles
def test_phases_and_rest_make_the_time_of_a_run_whose_clock_jumps(jumping: Traced) -> None:
    birth = {"kind": "rank", "t": jumping.begin, "pid": jumping.pid, "rank": 0, "started": jumping.begin}
    (found,) = rank_times([birth], jumping.begin, jumping.end, read_all(jumping.folder))
    assert found.total_s == jumping.end - jumping.begin
    spent = {phase.name: phase.s for phase in found.phases}
    assert 0 < spent["dynamo"] < found.total_s
    assert 0 < spent["aot_autograd"] < found.total_s
    assert sum(spent.values()) + found.unaccounted_s == pytest.approx(found.total_s)


@compiles
def test_pytorch_s_own_times_do_jump(steady: Traced, jumping: Traced) -> None:
    """Else the tests above would prove nothing."""

    def absurd(found: Traced) -> list[str]:
        return [name for name, s in found.torch_s.items() if abs(s) > found.end - found.begin]

    assert absurd(steady) == []
    assert "bytecode_tracing" in absurd(jumping)
    assert (examine(steady.log).cut, examine(jumping.log).cut) == (None, None)


WALL_CLOCK = {"time", "time_ns", "localtime", "gmtime", "now", "utcnow", "today", "ctime"}
STAMPS_ONLY = {
    "workers/actor.py",
    "workers/artifacts.py",
    "workers/wall_clock.py",
    "workers/environments/build.py",
    "workers/environments/shelf.py",
}
"""Where the wall clock says when something happened, to people or after days; and what looks whether it was set."""


def wall_clock_calls(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in WALL_CLOCK:
            owner = node.func.value
            if isinstance(owner, ast.Name) and owner.id in ("time", "datetime", "date"):
                found.append(f"{owner.id}.{node.func.attr}")
    return found


def test_no_worker_measures_by_the_wall_clock(tmp_path: Path) -> None:
    root = Path(workers.__file__).parent
    found = {str(path.relative_to(root.parent)): wall_clock_calls(path) for path in root.rglob("*.py")}
    assert {path for path, calls in found.items() if calls} <= STAMPS_ONLY
    wrong = tmp_path / "wrong.py"
    wrong.write_text("import time\nbegin = time.time()\nprint(time.time_ns() - begin, time.monotonic())\n")
    assert wall_clock_calls(wrong) == ["time.time", "time.time_ns"]


def test_the_actor_subtracts_no_wall_times() -> None:
    path = Path(workers.__file__).parent / "actor.py"
    calls = wall_clock_calls(path)
    stamps = path.read_text().count("at=time.time()")
    assert calls == ["time.time"] * stamps
