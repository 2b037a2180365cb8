"""A plan as it is shown to somebody who has not submitted it."""

from __future__ import annotations

from service.dispatch.plan import Plan, PlannedCell
from service.domain.preview import Preview, PreviewCell
from service.domain.secrecy import masked


def preview(plan: Plan) -> Preview:
    """``plan`` without what only running it needs."""
    return Preview(
        name=plan.matrix.name,
        cells=tuple(map(_cell, plan.cells)),
        runs=sum(item.duplicate_of is None and item.cannot_run is None for item in plan.cells),
        environments=plan.environments,
    )


def _cell(item: PlannedCell) -> PreviewCell:
    cell, audited, shape = item.cell, item.audited, item.audited.shape
    return PreviewCell(
        id=cell.id,
        name=cell.name,
        expect=cell.expect,
        checks=cell.checks,
        requested=masked(dict(cell.requested)),
        effective=masked(audited.effective),
        changes=tuple(audited.changes),
        ranks=None if shape is None else shape.tensor_parallel_size * shape.pipeline_parallel_size,
        environment=cell.environment,
        duplicate_of=None if item.duplicate_of is None else item.duplicate_of.name,
        cannot_run=None if item.cannot_run is None else item.cannot_run.text,
        notes=item.notes,
    )
