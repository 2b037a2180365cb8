"""Notices, stored as the rules store them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from store.samples import SWEEP

from service.domain.notices import NoticeKind
from service.store import Store
from service.store.repositories import outcomes, series_notices
from service.store.series_records import NewNotice

AT = datetime(2026, 11, 30, 2, 19, tzinfo=UTC)


def notice(**fields: Any) -> NewNotice:
    slow: dict[str, Any] = {
        "at": AT,
        "kind": NoticeKind.REGRESSION,
        "series_id": None,
        "figure": "warm_s",
        "sweep_id": SWEEP,
        "cell_id": "c0",
        "what": "the warm start of tp2 takes 12.4 s",
        "before": 8.0,
        "after": 12.4,
        "ratio": 1.55,
        "since_sweep_id": "20261129-021500-00beef",
        "versions_before": {"vllm": "0.30.0", "torch": "2.11.0"},
        "versions_after": {"vllm": "0.31.0", "torch": "2.11.0"},
    }
    return NewNotice(**(slow | fields))


def tell(store: Store, *notices: NewNotice) -> list[int]:
    """Store notices; their ids."""
    with store.transaction() as session:
        for item in notices:
            outcomes.add_notice(session, item)
            session.flush()
        return [record.id for record in series_notices.notices(session, len(notices))][::-1]
