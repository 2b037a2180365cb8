"""From a matrix to resolved cells: nothing runs, and everything that can be refused is refused here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from service.dispatch import questions
from service.domain import batch, reserved
from service.domain.cell import Cell
from service.domain.document import Document
from service.domain.errors import Problems
from service.domain.fingerprint import effective_fingerprint
from service.domain.matrix import Matrix, expand
from service.domain.nearest import nearest
from service.domain.place import Path
from service.settings import Settings
from workers.protocol import AuditedCell, BatchPlan, Environment, Problem, Shape

SP_THRESHOLD = "compilation_config.pass_config.sp_min_token_num"


@dataclass(frozen=True)
class PlannedCell:
    """``batch``: the requests that all arms of the cell are given.

    ``duplicate_of``: the earlier cell with the same effective settings, whose result this one shares.
    """

    cell: Cell
    audited: AuditedCell
    batch: BatchPlan
    fingerprint: str
    duplicate_of: Cell | None


@dataclass(frozen=True)
class Plan:
    matrix: Matrix
    environment: Environment
    cells: tuple[PlannedCell, ...]


def plan(document: Document, settings: Settings, only: str | None = None) -> Plan:
    """Expand and audit ``document``; with ``only``, the cell of that name alone.

    Raises:
        MatrixError: with every problem, each at its place in the file.
        EngineEnvironmentError: when the engine environment does not answer.
    """
    matrix = expand(document, questions.catalogue(settings), max_cells=settings.max_cells)
    if only is not None:
        matrix = _only(matrix, only, document)
    reply = questions.audit(settings, matrix.cells)
    audited = {answer.id: answer for answer in reply.cells}
    _refuse(document, matrix, audited, reply.environment, settings)
    return Plan(matrix, reply.environment, _planned(matrix.cells, audited))


def _only(matrix: Matrix, name: str, document: Document) -> Matrix:
    cells = tuple(cell for cell in matrix.cells if cell.name == name)
    if not cells:
        near = nearest(name, [cell.name for cell in matrix.cells])
        hint = f"Did you mean {near}?" if near else "`shardproof plan` lists the cells"
        raise Problems(document.place).stop("unknown-cell", f"no cell is called {name!r}", (), hint)
    return replace(matrix, cells=cells)


def _planned(cells: Sequence[Cell], audited: dict[str, AuditedCell]) -> tuple[PlannedCell, ...]:
    first: dict[str, Cell] = {}
    planned = []
    for cell in cells:
        answer = audited[cell.id]
        requests = _batch(cell, answer.shape)
        fingerprint = effective_fingerprint(
            answer.effective or {},
            answer.patches,
            cell.env,
            requests.model_dump(),
            cell.checks,
            cell.environment,
            cell.evaluation,
        )
        planned.append(PlannedCell(cell, answer, requests, fingerprint, first.get(fingerprint)))
        first.setdefault(fingerprint, cell)
    return tuple(planned)


def _batch(cell: Cell, shape: Shape | None) -> BatchPlan:
    """The requests of ``cell``. A threshold that was written counts with SP off too, see ``batch.resolve``."""
    if shape is None:
        return BatchPlan.model_validate(cell.batch)
    written = cell.engine.get(SP_THRESHOLD)
    return batch.resolve(cell.batch, shape, written if isinstance(written, int) else None)


def _refuse(
    document: Document,
    matrix: Matrix,
    audited: dict[str, AuditedCell],
    environment: Environment,
    settings: Settings,
) -> None:
    problems = Problems(document.place)
    for cell in matrix.cells:
        answer = audited[cell.id]
        for problem in answer.problems:
            path = _written_at(document, cell, problem.key)
            problems.add("engine-refuses", f"cell {cell.name}: {problem.message}", path, problem.hint)
        for problem in _unfit_requests(cell, answer.shape):
            path = _written_at(document, cell, problem.key)
            problems.add("requests-do-not-fit", f"cell {cell.name}: {problem.message}", path, problem.hint)
        path = _written_at(document, cell, "tensor_parallel_size")
        _check_ranks(cell, answer, environment, settings, path, problems)
    problems.raise_if_any()


def _unfit_requests(cell: Cell, shape: Shape | None) -> list[Problem]:
    """Requests that the engine of ``cell`` could not run, and options of them that its settings contradict."""
    contradicted = [
        Problem(
            key=setting,
            message=f"batch.{field} is true and {setting} is false",
            hint=f"Remove {setting}, which batch.{field} turns on, or remove batch.{field}",
        )
        for field, setting in reserved.NEEDED_BY.items()
        if reserved.needs(field, cell.batch.get(field)) and cell.engine[setting] is False
    ]
    return contradicted + ([] if shape is None else batch.problems(_batch(cell, shape), shape))


def _check_ranks(
    cell: Cell,
    answer: AuditedCell,
    environment: Environment,
    settings: Settings,
    path: Path,
    problems: Problems,
) -> None:
    if answer.shape is None:
        return
    ranks = answer.shape.tensor_parallel_size * answer.shape.pipeline_parallel_size
    on_gpus = environment.devices > 0
    most = environment.devices if on_gpus else settings.max_ranks_per_machine
    if ranks > most:
        have = f"there are {most} GPUs" if on_gpus else f"at most {most} ranks may share the cores of a machine"
        hint = "Ask for fewer ranks" if on_gpus else "Ask for fewer ranks, or raise SHARDPROOF_MAX_RANKS_PER_MACHINE"
        message = f"cell {cell.name} needs {ranks} ranks (tensor × pipeline parallel) and {have}"
        problems.add("too-many-ranks", message, path, hint)


def _written_at(document: Document, cell: Cell, key: str | None) -> Path:
    """Where in the file the value of ``key`` in ``cell`` was written; the cell itself when that cannot be told."""
    if key is not None:
        for base in (cell.path, ("matrix",), ("engine",)):
            for path in document.places:
                if path[: len(base)] == base and ".".join(map(str, path[len(base) :])) == key:
                    return path
    return cell.path
