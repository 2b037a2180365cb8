"""What needs somebody: schedules without a sweep, cells not as expected, series that got slower; and what got better.

No I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from service.dashboard.badges import Badge, verdict_badge
from service.domain.notices import NoticeKind
from service.page_paths import cell_page, schedule_page
from service.store.glance_records import CellGlance
from service.store.records import SweepState, SweepSummary
from service.store.schedule_records import Fire
from service.store.series_records import NoticeRecord, StandingRecord

WORSE = (NoticeKind.REGRESSION, NoticeKind.SUSPECTED)
BETTER = (NoticeKind.IMPROVEMENT, NoticeKind.RECOVERED)

_BADGES = {
    NoticeKind.REGRESSION: Badge("▲", "regression", "bad"),
    NoticeKind.SUSPECTED: Badge("△", "suspected", "warn"),
    NoticeKind.IMPROVEMENT: Badge("▼", "improvement", "good"),
    NoticeKind.RECOVERED: Badge("✓", "recovered", "good"),
}


@dataclass(frozen=True)
class Item:
    """``new``: it was not so in the sweep before. ``link``: to the page of the cell or the schedule, from the root."""

    badge: Badge
    new: bool
    name: str
    context: str
    link: str
    reason: str
    at: datetime | None


def newest_by_name(sweeps: Sequence[SweepSummary]) -> dict[str, list[SweepSummary]]:
    """Of ``sweeps``, newest first: of each name the two newest that have ended, and before them one that runs now."""
    found: dict[str, list[SweepSummary]] = {}
    for sweep in sweeps:
        line = found.setdefault(sweep.name, [])
        room = sum(map(_ended, line)) < 2 if _ended(sweep) else not line
        if room:
            line.append(sweep)
    return found


def _ended(sweep: SweepSummary) -> bool:
    return sweep.state is SweepState.ENDED


def failing(lines: Mapping[str, Sequence[SweepSummary]], not_ok: Sequence[CellGlance]) -> list[Item]:
    """What is not ok in the newest sweep of each name: what is new comes first, then what is graver.

    While one runs also what was not ok in the one before, unless it has come out the same way again.
    """
    names = {sweep.id: name for name, line in lines.items() for sweep in line}
    places = {sweep.id: place for line in lines.values() for place, sweep in enumerate(line)}
    failed = {(names[cell.sweep_id], places[cell.sweep_id], cell.name) for cell in not_ok}
    found = []
    for cell in not_ok:
        name, place = names[cell.sweep_id], places[cell.sweep_id]
        line = lines[name]
        told_newer = place == 1 and (_ended(line[0]) or (name, 0, cell.name) in failed)
        if place < 2 and not told_newer:
            found.append((cell, place + 1 < len(line) and (name, place + 1, cell.name) not in failed))
    found.sort(key=lambda item: (not item[1], 99 if item[0].verdict is None else item[0].verdict.gravity))
    return [
        Item(
            badge=verdict_badge(cell.verdict),
            new=new,
            name=cell.name,
            context=names[cell.sweep_id],
            link=cell_page(cell.sweep_id, cell.id),
            reason=cell.reason or "",
            at=cell.ended_at,
        )
        for cell, new in found
    ]


def unsubmitted(fires: Sequence[Fire]) -> list[Item]:
    """Schedules whose last sweep could not be submitted: nothing of theirs is watched until somebody looks."""
    return [
        Item(
            badge=Badge("✗", "no sweep", "bad"),
            new=False,
            name=fire.schedule,
            context="schedules",
            link=schedule_page(fire.schedule),
            reason=fire.detail or "",
            at=fire.ended_at,
        )
        for fire in fires
    ]


def told(
    notices: Sequence[NoticeRecord],
    standings: Sequence[StandingRecord],
    names: Mapping[str, str],
    shown: Collection[str],
) -> list[Item]:
    """Notices of what got worse and still is; of each figure of a series the newest. ``shown``: links told already.

    ``names``: of series and sweeps, by id.
    """
    still = {(standing.series_id, standing.figure, str(standing.state)) for standing in standings}
    found: dict[tuple[str | None, str | None], Item] = {}
    for notice in notices:
        item = _told(notice, names)
        if (notice.series_id, notice.figure, str(notice.kind)) in still and item.link not in shown:
            found.setdefault((notice.series_id, notice.figure), item)
    return sorted(found.values(), key=lambda item: item.badge.tone != "bad")


def better(notices: Sequence[NoticeRecord], names: Mapping[str, str], since: datetime) -> list[Item]:
    """Notices of what got better since then."""
    return [_told(notice, names) for notice in notices if notice.at >= since]


def _told(notice: NoticeRecord, names: Mapping[str, str]) -> Item:
    return Item(
        badge=_BADGES[notice.kind],
        new=False,
        name=names.get(notice.series_id or "", notice.cell_id),
        context=names.get(notice.sweep_id, notice.sweep_id),
        link=cell_page(notice.sweep_id, notice.cell_id),
        reason=notice.what,
        at=notice.at,
    )
