"""``shardproof bench fallback``: what is compiled, what grows, and the picture of it. Never how long anything took."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch._inductor.graph
from rich.table import Table
from typer.testing import CliRunner

from service import bench, cli, plot
from service.dispatch import questions
from service.settings import Settings
from workers.bench import fallback
from workers.bench.fallback import Depths
from workers.engine.internals import TargetMissing
from workers.probes.fallback import PROBE
from workers.protocol import PatchMode

pytestmark = pytest.mark.slow

graph: Any = torch._inductor.graph
logger = logging.getLogger("torch._inductor.graph")
TINY = Depths(lowest=3, unpatched=4, patched=5, repeats=1)


def row(depth: int, patched: bool, last_op: float, **changes: Any) -> dict[str, Any]:
    formatting = 0.0 if patched else last_op
    found = {"depth": depth, "patched": patched, "seconds": 1.0, "formatting_s": formatting, "last_op_s": last_op}
    return found | {"characters": 0 if patched else 10**depth} | changes


def test_every_depth_is_compiled_both_ways_as_far_as_asked() -> None:
    before = logger.level, logger.propagate, logger.handlers, graph.make_fallback, graph.GraphLowering.call_function
    found = fallback.measure(quick=True, depths=TINY)
    after = logger.level, logger.propagate, logger.handlers, graph.make_fallback, graph.GraphLowering.call_function
    assert after == before
    line, *rows = found.rows[:-2]
    assert line["formatted_unread"] is False, "torch 2.13 makes the text where it is read"
    assert [(row["depth"], row["patched"]) for row in rows] == [
        (3, True), (3, False), (4, True), (4, False), (5, True),
    ]  # fmt: skip
    for compiled in rows:
        patched = compiled["patched"]
        assert (compiled["slow_path_calls"], compiled["state"] == "removed") == ((0, False) if patched else (3, True))
        assert (compiled["characters"] == 0) == (compiled["formatting_s"] == 0) == patched
        assert compiled["seconds"] > compiled["last_op_s"] > 0
    unpatched, patched = found.rows[-2:]
    assert (unpatched["from"], unpatched["to"], patched["from"], patched["to"]) == (3, 4, 3, 5)
    assert unpatched["characters_per_layer"] > fallback.GROWS
    assert patched["characters_per_layer"] == 1.0
    assert (found.figure, found.goal) == (unpatched["formatting_per_layer"], fallback.GROWS)


def test_it_stops_rising_where_a_depth_promises_to_take_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patched it goes on. Two depths there are in any case: from one no growth is seen."""
    seconds = {3: 1.0, 4: 2.0, 5: 5.0, 6: 10.0}
    monkeypatch.setattr(fallback, "compiled", lambda depth, patched: None)
    monkeypatch.setattr(
        fallback, "_row", lambda depth, patched, depths: row(depth, patched, 1.0, seconds=seconds[depth])
    )
    for limit, reached in ((100.0, 6), (12.0, 5), (0.0, 4)):
        depths = Depths(lowest=3, unpatched=6, patched=6, limit_s=limit)
        rows = list(fallback._rows(depths))[1:]
        assert max(row["depth"] for row in rows if not row["patched"]) == reached
        assert max(row["depth"] for row in rows if row["patched"]) == 6


def test_growth_is_per_layer_unpatched_and_in_all_patched() -> None:
    unpatched = fallback._growth([row(4, False, 1.0), row(5, False, 9.0), row(6, False, 4.0)])
    assert (unpatched["formatting_per_layer"], unpatched["characters_per_layer"]) == (2.0, 10.0)
    assert (unpatched["last_op_in_all"], unpatched["reached"]) == (4.0, True)
    patched = fallback._growth([row(4, True, 1.0), row(14, True, 1.1, seconds=3.0)])
    assert (patched["formatting_per_layer"], patched["characters_per_layer"]) == (1.0, 1.0)
    assert (patched["last_op_in_all"], patched["seconds_in_all"], patched["reached"]) == (1.1, 3.0, True)


def test_neither_goal_is_reached_by_itself() -> None:
    assert fallback._growth([row(4, False, 1.0), row(5, False, 1.8)])["reached"] is False
    assert fallback._growth([row(4, True, 1.0), row(14, True, 1.3)])["reached"] is False


def test_a_depth_is_done_again_until_formatting_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each figure the lowest counts."""
    found = iter([(3.0, 0.2, 0.1), (1.0, 0.4, 0.3), (2.0, 0.3, 0.05), (2.0, 7.0, 5.0)])

    def compiled(depth: int, patched: bool) -> fallback.Compiled:
        seconds, last_op, formatting = next(found)
        return fallback.Compiled(seconds, last_op, formatting, 10, 3, fallback.PatchState.REMOVED)

    monkeypatch.setattr(fallback, "compiled", compiled)
    three = fallback._row(4, False, Depths(repeats=3))
    assert (three["seconds"], three["last_op_s"], three["formatting_s"], three["times"]) == (1.0, 0.2, 0.05, 3)
    assert fallback._row(4, False, Depths(repeats=3))["times"] == 1


def test_without_the_probe_nothing_is_measured() -> None:
    """A bench that cannot count says so, and gives no row of zeros."""
    PROBE.remove()
    with fallback._read(), pytest.raises(TargetMissing, match="not installed"):
        fallback.compiled(3, patched=False)
    fallback.fallback_fast_path.establish(PatchMode.NATIVE)


# --- the command -----------------------------------------------------------------------------------------------------

ROWS = [row(depth, patched, 0.002 * 2 ** (0 if patched else depth)) for depth in (4, 5, 6) for patched in (True, False)]
ANSWER = {"name": "fallback", "figure": 2.0, "unit": "times", "goal": 1.8, "rows": ROWS, "environment": {}}


def bars(table: Table) -> list[int]:
    return [len(str(cell)) for cell in table.columns[-1].cells]


def test_the_plot_is_a_straight_line_for_what_grows_by_a_factor() -> None:
    table = plot.growth(ROWS)
    assert table is not None
    four, five, six, *patched = bars(table)
    assert abs((six - five) - (five - four)) <= 1
    assert (six, patched) == (plot.WIDTH, [1, 1, 1])


def test_there_is_no_plot_of_what_has_no_depth() -> None:
    assert plot.growth([{"what": "copy", "gb_s": 1.0}]) is None


def test_bars_of_equal_values_are_equal() -> None:
    table = plot.growth([row(4, True, 0.5), row(5, True, 0.5)])
    assert table is not None
    assert bars(table) == [1, 1]


def test_the_picture_lies_beside_the_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "bench", lambda settings, name, quick, deep: json.dumps(ANSWER))
    done = CliRunner().invoke(cli.app, ["bench", "fallback", "--json", str(tmp_path / "growth.json")])
    assert done.exit_code == 0, done.output
    assert "unpatched" in done.output
    assert json.loads((tmp_path / "growth.json").read_text()) == ANSWER
    picture = (tmp_path / "growth.svg").read_text()
    assert picture.startswith("<svg")
    assert "unpatched" in picture
    assert "url(" not in picture.replace("url(#", ""), "nothing is fetched by whoever looks at it"


@pytest.mark.parametrize("deep", [True, False])
def test_deep_is_asked_for(deep: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def run(settings: Settings, arguments: list[str], timeout_s: float, before: Callable[[], None]) -> str:
        asked.append(arguments)
        Path(arguments[arguments.index("--reply") + 1]).write_text(json.dumps(ANSWER))
        return ""

    monkeypatch.setattr(questions, "_run", run)
    assert bench.run_bench("fallback", Settings(home=tmp_path), quick=False, deep=deep) == ANSWER
    assert ("--deep" in asked[0]) == deep


def test_deep_is_refused_where_it_means_nothing() -> None:
    done = CliRunner().invoke(cli.app, ["bench", "residual", "--deep"])
    assert isinstance(done.exception, cli.Refused)
    assert str(done.exception) == "--deep is for fallback; leave it out for residual"
