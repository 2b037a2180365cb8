"""What the times of a report's cells were held against: for the page, which shades them by it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy.orm import Session

from service.dashboard.lines import TIMES, baselines_of
from service.store.repositories import series_points


def with_baselines(session: Session, report: Mapping[str, Any]) -> dict[str, Any]:
    """``report`` and ``baselines``: seconds by cell id and figure. They are no part of the report that others read."""
    points = series_points.points_of_sweep(session, report["sweep"]["id"], TIMES)
    return {**report, "baselines": baselines_of(points)}
