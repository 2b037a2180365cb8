"""``shardproof bench regression``: what the rules find, and how often they are wrong, where the truth is known.

Nothing is started and nothing is read: histories are drawn from fixed seeds, so that every run gives the same figures.
"""

from __future__ import annotations

import platform
from typing import Any

from service.domain.regression import Rules
from service.regression.evaluation import histories, years
from workers.bench import MORE

NAME = "regression"
SERIES, QUICK_SERIES = 200, 20
GOAL = 0.9
FALSE_ALARMS = 1.0
"""A series-year may have so many."""


def regression(rules: Rules, quick: bool) -> dict[str, Any]:
    """Evaluate ``rules``; see ``service.bench.run_bench`` for what comes back."""
    count = QUICK_SERIES if quick else SERIES
    of_years = years(rules, count)
    single = of_years[0]
    return {
        "name": NAME,
        "figure": single["within_3_nights"],
        "unit": f"of steps of 10 % found within three nights, {single['figure']}, {single['noise']} noise, one start",
        "goal": GOAL,
        "better": MORE,
        "rows": [*of_years, *histories(rules, count // 4)],
        "environment": {"python": platform.python_version(), "series": count, "rules": vars(rules)},
        "notes": [_note(row) for row in of_years],
    }


def _note(row: dict[str, Any]) -> str:
    alarms = row["false_alarms_a_year"]
    kept = "at most one" if alarms <= FALSE_ALARMS else "more than one"
    return (
        f"{row['figure']}, median of {row['starts']}: {row['within_3_nights']:.0%} of steps of 10 % found within three "
        f"nights and {row['within_7_nights']:.0%} within seven, {kept} false alarm a series-year ({alarms})"
    )
