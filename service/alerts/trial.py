"""A message that shows a receiver what it will be sent."""

from __future__ import annotations

from datetime import datetime

from service.domain.alerts import Alert
from service.domain.notices import NoticeKind


def trial(now: datetime) -> Alert:
    """A notice of nothing, which says so."""
    return Alert(
        id=0,
        at=now,
        kind=NoticeKind.RECOVERED,
        what="this is a trial: nothing happened, and whoever reads this is told of what does",
        sweep_id="trial",
        cell_id="trial",
    )
