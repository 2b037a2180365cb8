"""To which series a cell belongs that could not be resolved: by what was written, as nothing else is known of it."""

from __future__ import annotations

from sqlalchemy import and_, select
from sqlalchemy.orm import Session

from service.domain import reserved
from service.store.models import CellRow
from service.store.records import CellRecord
from service.store.repositories.series import series_record
from service.store.series_models import OutcomeRow, SeriesRow
from service.store.series_records import SeriesRecord
from workers.protocol import DEFAULT, Environment


def series_so_far(session: Session, cell: CellRecord, environment: Environment | None) -> SeriesRecord | None:
    """The series whose newest outcome is that of a cell of this name with the same written settings.

    Where ``environment`` is known, of its machine alone. Of several that of the newest outcome.
    """
    query = (
        select(SeriesRow, CellRow.requested)
        .join(OutcomeRow, and_(OutcomeRow.series_id == SeriesRow.id, OutcomeRow.at == SeriesRow.last_at))
        .join(CellRow, and_(CellRow.sweep_id == OutcomeRow.sweep_id, CellRow.id == OutcomeRow.cell_id))
        .where(SeriesRow.name == cell.name)
        .where(SeriesRow.environment == str(cell.requested.get(reserved.ENVIRONMENT, DEFAULT)))
        .order_by(SeriesRow.last_at.desc())
    )
    for row, requested in session.execute(query):
        if requested == cell.requested and (environment is None or _is_of(row, environment)):
            return series_record(row)
    return None


def _is_of(row: SeriesRow, environment: Environment) -> bool:
    machine = (environment.device, environment.devices, environment.cores)
    return (row.device, row.devices, row.cores) == machine
