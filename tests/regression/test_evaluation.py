"""The benchmark of the rules: its histories, what it counts, and the tables in the documentation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from service import bench
from service.domain.regression import DEFAULT_RULES
from service.regression import regression
from service.regression.drawn import LEVEL_S, Scatter, draw, drift, spikes, steady, step
from service.regression.evaluation import histories, years
from service.regression.table import BEGIN, END, tables, written
from service.settings import Settings

PAGE = Path(__file__).parent.parent.parent / "docs" / "regressions.md"

NO_NOISE = Scatter(0.0)


def values(level: object, nights: int = 10) -> list[float]:
    return [round(night.value / LEVEL_S, 6) for night in draw(nights, NO_NOISE, level, "seed")]  # type: ignore[arg-type]


def test_histories_are_what_they_are_called() -> None:
    assert values(steady) == [1.0] * 10
    assert values(step(4, 0.1)) == [1.0] * 4 + [1.1] * 6
    assert values(drift(0.5, 5)) == [1.0, 1.1, 1.2, 1.3, 1.4] + [1.5] * 5
    assert set(values(spikes(0.3, 2.0), 200)) == {1.0, 2.0}


def test_equal_seeds_draw_equal_histories_and_medians_scatter_less() -> None:
    once, again = (draw(50, Scatter(0.08), steady, "a") for _ in range(2))
    assert once == again
    assert once != draw(50, Scatter(0.08), steady, "b")

    def width(starts: int) -> float:
        found = sorted(night.value for night in draw(400, Scatter(0.08, starts), steady, "a"))
        return found[360] - found[40]

    assert width(9) < 0.6 * width(1)


@pytest.mark.slow
def test_the_quick_benchmark_finds_steps_and_hardly_anything_else(tmp_path: Path) -> None:
    found = bench.run_bench("regression", Settings(home=tmp_path), quick=True)
    assert found["figure"] >= found["goal"]
    cold, *_ = found["rows"]
    assert cold["within_3_nights"] == found["figure"]
    assert cold["false_alarms_a_year"] <= 1.5
    assert "at most one false alarm" in found["notes"][0]
    named = {row["history"]: row for row in found["rows"] if "history" in row}
    assert named["step of 20 %"]["within_3_nights"] == 1.0
    assert named["drift of 20 % over 200 nights"]["found"] == 1.0
    assert named["steady"]["found"] is None


def test_rules_that_are_too_quick_or_too_slow_are_seen_in_the_figures() -> None:
    quick, slow = replace(DEFAULT_RULES, strength=1.0, ratio=0.01), replace(DEFAULT_RULES, ratio=0.3)
    assert years(quick, 6)[0]["false_alarms_a_year"] > 3
    assert years(slow, 6)[0]["recall"] == 0.0
    assert next(row for row in histories(slow, 2) if row["history"] == "step of 20 %")["found"] == 0.0


def test_tables_stand_between_their_marks() -> None:
    rows = [{"a_b": 1, "c": None}, {"d": "x"}, {"a_b": 2, "c": 0.5}]
    text = written(f"before\n{BEGIN}old\n{END}after\n", rows)
    assert text == (
        f"before\n{BEGIN}| a b | c |\n|---|---|\n| 1 | – |\n| 2 | 0.5 |\n\n| d |\n|---|\n| x |\n{END}after\n"
    )
    assert written(text, rows) == text
    with pytest.raises(ValueError, match="there are no lines"):
        written("nothing", rows)


@pytest.mark.slow
def test_the_documentation_has_the_figures_of_today() -> None:
    text = PAGE.read_text()
    rows = regression(DEFAULT_RULES, quick=False)["rows"]
    assert tables(rows) in text
    assert written(text, rows) == text
