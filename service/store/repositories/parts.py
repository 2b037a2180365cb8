"""Queries on the parts of reports that are kept beside runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import and_, func, select
from sqlalchemy.orm import Session

from service.store.models import RunPartRow, RunRow
from service.store.records import RunPart


def keep_part(
    session: Session,
    run_id: str,
    form: str,
    environment: dict[str, Any] | None,
    patches: Mapping[str, str],
    text: str,
) -> None:
    """Keep what a report says by the evidence of a run. ``form``: the format of ``text``."""
    row = RunPartRow(run_id=run_id, form=form, environment=environment, patches=dict(patches), text=text)
    session.merge(row)
    session.flush()


def parts_of(session: Session, sweep_id: str, form: str) -> list[RunPart]:
    """The newest attempt at each cell of a sweep, without text where none of the format ``form`` is kept."""
    newest = (
        select(RunRow.cell_id, func.max(RunRow.attempt).label("attempt"))
        .where(RunRow.sweep_id == sweep_id)
        .group_by(RunRow.cell_id)
        .subquery()
    )
    query = (
        select(RunRow.id, RunRow.cell_id, RunRow.failure, RunPartRow.environment, RunPartRow.patches, RunPartRow.text)
        .join(newest, (RunRow.cell_id == newest.c.cell_id) & (RunRow.attempt == newest.c.attempt))
        .outerjoin(RunPartRow, and_(RunPartRow.run_id == RunRow.id, RunPartRow.form == form))
        .where(RunRow.sweep_id == sweep_id)
    )
    return [
        RunPart(row.id, row.cell_id, row.failure, row.environment, row.patches, row.text)
        for row in session.execute(query)
    ]
