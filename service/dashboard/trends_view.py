"""A series as its page shows it: the chart, how each figure stands, the table. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from service.dashboard.amounts import amount, label_of, ratio, unit_of
from service.dashboard.badges import Badge
from service.dashboard.formats import NOTHING
from service.dashboard.trend_chart import Chart, Curve, Dot, Level, Mark
from service.dashboard.trend_query import Asked
from service.domain.regression import Condition
from service.page_paths import cell_page
from service.store.repositories.trends import Drawn, VersionChange
from service.store.series_records import ChangePoint, FigureState, SeriesState

Over = Callable[[datetime, datetime], str]
"""The address of the same page over a stretch."""

_CONDITIONS = {
    Condition.STEADY: ("✓", "good"),
    Condition.SUSPECTED: ("▲", "warn"),
    Condition.REGRESSION: ("✗", "bad"),
    Condition.TOO_LITTLE_DATA: ("…", "calm"),
}


@dataclass(frozen=True)
class Choice:
    """A figure that can be shown."""

    name: str
    label: str
    chosen: bool


@dataclass(frozen=True)
class Standing:
    """How one figure stands, in words. ``sweep``: with which it began. ``accepted``: who did so, and why."""

    label: str
    badge: Badge
    newest: str
    baseline: str
    bounds: str
    change: str
    said: str
    sweep: str | None
    accepted: str


def chart_of(
    asked: Asked, drawn: Mapping[str, Sequence[Drawn]], changes: Sequence[VersionChange], state: SeriesState
) -> Chart:
    """The chart of the figures that were asked for, in their order."""
    over = asked.stretches()
    return Chart(
        curves=[_curve(figure, drawn[figure], state.figures.get(figure), over) for figure in asked.figures],
        versions=[Mark(change.at, said) for change in changes if (said := version_words(change.before, change.after))],
        logarithmic=asked.logarithmic,
    )


def _curve(figure: str, drawn: Sequence[Drawn], state: FigureState | None, over: Over) -> Curve:
    unit = unit_of(figure)
    steps = () if state is None else state.changes
    return Curve(
        figure=figure,
        label=label_of(figure),
        unit=unit,
        dots=[_dot(item, over) for item in drawn],
        total=sum(item.points for item in drawn),
        level=_level(state),
        steps=[Mark(step.at, _step_words(step)) for step in steps],
    )


def _dot(item: Drawn, over: Over) -> Dot:
    alone = item.sweep_id is not None and item.cell_id is not None
    link = cell_link(str(item.sweep_id), str(item.cell_id)) if alone else over(item.begin, item.end)
    return Dot(
        at=item.begin + (item.end - item.begin) / 2,
        value=item.value,
        low=item.lowest,
        high=item.highest,
        points=item.points,
        link=link,
    )


def _level(state: FigureState | None) -> Level | None:
    if state is None or state.standing.baseline is None:
        return None
    found = state.standing
    assert found.baseline is not None
    low = found.baseline if found.lower is None else found.lower
    high = found.baseline if found.upper is None else found.upper
    return Level(found.baseline, low, high)


def _step_words(step: ChangePoint) -> str:
    return ratio(step.after, step.before)


def cell_link(sweep_id: str, cell_id: str) -> str:
    """From a page one level below the root to a cell's own."""
    return f"../{cell_page(sweep_id, cell_id)}"


def version_words(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """``vllm 0.30.0 → 0.31.0, torch …``: what differs, and nothing where nothing does."""
    names = list(dict.fromkeys([*after, *before]))
    return ", ".join(
        f"{name} {before.get(name) or NOTHING} → {after.get(name) or NOTHING}"
        for name in names
        if before.get(name) != after.get(name)
    )


def choices(known: Iterable[str], asked: Asked) -> tuple[list[Choice], list[Choice]]:
    """The figures of a series: whole ones, and single phases."""
    found = [Choice(name, label_of(name), name in asked.figures) for name in known]
    return [item for item in found if "." not in item.name], [item for item in found if "." in item.name]


def standings(state: SeriesState) -> list[Standing]:
    """How each figure stands that is judged."""
    return [_standing(figure, found) for figure, found in sorted(state.figures.items())]


def _standing(figure: str, state: FigureState) -> Standing:
    unit, found = unit_of(figure), state.standing
    sign, tone = _CONDITIONS[found.state]
    within = NOTHING
    if found.lower is not None and found.upper is not None:
        within = f"{amount(found.lower, unit)} to {amount(found.upper, unit)}"
    return Standing(
        label=label_of(figure),
        badge=Badge(sign, found.state.replace("-", " "), tone),
        newest=amount(found.value, unit),
        baseline=amount(found.baseline, unit),
        bounds=within,
        change=ratio(found.value, found.baseline),
        said=_said(state),
        sweep=found.since_sweep_id if found.since_at is not None else None,
        accepted="" if state.accepted is None else f"accepted by {state.accepted.author}: {state.accepted.reason}",
    )


def _said(state: FigureState) -> str:
    found = state.standing
    if found.state is Condition.TOO_LITTLE_DATA:
        more = "night is" if found.missing == 1 else "nights are"
        return f"{found.missing} {more} missing until something can be said"
    if found.since_at is not None:
        return f"since {found.since_at:%Y-%m-%d %H:%M} UTC"
    return f"baseline of {found.points} nights, one scatters by {100 * (found.noise or 0):.1f}\N{NO-BREAK SPACE}%"
