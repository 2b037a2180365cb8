"""Stored notices as they are told."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.orm import Session

from service.alerts.links import Links
from service.domain.alerts import TOLD, Alert
from service.store.repositories import series_notices
from service.store.series_records import NoticeRecord

PAGE = 200
MOST_OF_SWEEP = 500


def alert(notice: NoticeRecord, links: Links) -> Alert:
    """What is told of ``notice``."""
    return Alert(
        id=notice.id,
        at=notice.at,
        kind=notice.kind,
        what=notice.what,
        sweep_id=notice.sweep_id,
        cell_id=notice.cell_id,
        figure=notice.figure,
        before=notice.before,
        after=notice.after,
        ratio=notice.ratio,
        since=notice.since_sweep_id,
        versions_before=notice.versions_before,
        versions_after=notice.versions_after,
        link=links.cell(notice.sweep_id, notice.cell_id),
    )


def told_of_sweep(session: Session, sweep_id: str, links: Links) -> list[Alert]:
    """What is told of a sweep, in the order in which it came; what is only suspected is left out."""
    notices = series_notices.notices(session, MOST_OF_SWEEP, kinds=TOLD, sweep_id=sweep_id)
    return [alert(notice, links) for notice in reversed(notices)]


def notices_behind(session: Session, seen: int, until: int) -> list[NoticeRecord]:
    """Notices from behind ``seen`` up to ``until``, oldest first."""
    found: list[NoticeRecord] = []
    before = until + 1
    while page := series_notices.notices(session, PAGE, before, after=seen):
        found += page
        before = page[-1].id
    return found[::-1]


def by_sweep(notices: Sequence[NoticeRecord]) -> dict[str, list[NoticeRecord]]:
    """Those of each sweep together, in the order in which they came."""
    found: dict[str, list[NoticeRecord]] = {}
    for notice in notices:
        found.setdefault(notice.sweep_id, []).append(notice)
    return found
