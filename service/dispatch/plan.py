"""From a matrix to resolved cells: nothing runs, and everything that can be refused is refused here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from service.dispatch import engines, questions
from service.dispatch.engines import Engine, Engines
from service.domain import batch, environments, reserved
from service.domain.case import Reason
from service.domain.cell import Cell
from service.domain.document import Document
from service.domain.environments import Definition
from service.domain.errors import MatrixError, Problems
from service.domain.fingerprint import digest, effective_fingerprint
from service.domain.matrix import Matrix, expand
from service.domain.nearest import nearest
from service.domain.place import Path
from service.domain.support import absent_settings, unsupported_settings
from service.domain.verdict import Verdict
from service.settings import Settings
from workers.environments.failure import EnvironmentFailure
from workers.null_engine import NAME as NULL_ENGINE
from workers.protocol import DEFAULT, AuditedCell, BatchPlan, Environment, Problem, Shape

SP_THRESHOLD = "compilation_config.pass_config.sp_min_token_num"

OF_A_VERSION = ("unknown-key", "wrong-type")
"""Codes of problems that another version of vLLM may not have."""


@dataclass(frozen=True)
class PlannedCell:
    """``batch``: the requests that all arms of the cell are given.

    ``duplicate_of``: the earlier cell with the same effective settings, whose result this one shares. ``engine``: the
    environment it runs in. ``cannot_run``: why it is not run at all; there is no shape then. ``notes``: what is worth
    knowing of how it was resolved.
    """

    cell: Cell
    audited: AuditedCell
    batch: BatchPlan
    fingerprint: str
    duplicate_of: Cell | None
    engine: Engine | None = None
    environment: Environment | None = None
    cannot_run: Reason | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """``environment``: the default one. ``engines``: those that cells run in, by name; what they answered likewise."""

    matrix: Matrix
    environment: Environment
    cells: tuple[PlannedCell, ...]
    engines: Mapping[str, Engine] = field(default_factory=dict)
    environments: Mapping[str, Environment] = field(default_factory=dict)


@dataclass(frozen=True)
class _Answers:
    """What the environments said of the cells: of each by its id one thing or the other."""

    audited: dict[str, AuditedCell] = field(default_factory=dict)
    cannot_run: dict[str, Reason] = field(default_factory=dict)
    environments: dict[str, Environment] = field(default_factory=dict)
    engines: dict[str, Engine] = field(default_factory=dict)


def plan(document: Document, settings: Settings, only: str | None = None) -> Plan:
    """Expand and audit ``document``; with ``only``, the cell of that name alone.

    Raises:
        MatrixError: with every problem, each at its place in the file.
        EngineEnvironmentError: when the engine environment does not answer.
    """
    with Engines(settings, _definitions(document, settings)) as found:
        matrix = _expanded(document, found, settings)
        if only is not None:
            matrix = _only(matrix, only, document)
        answers = _Answers()
        cells = _answered(matrix.cells, found, answers)
        matrix = replace(matrix, cells=cells, source=_frozen(matrix, answers.engines))
        _refuse(document, matrix, answers, settings)
        environment = answers.environments.get(DEFAULT) or found.get(DEFAULT).catalogue.environment
    return Plan(matrix, environment, _planned(cells, answers), answers.engines, answers.environments)


def _frozen(matrix: Matrix, found: Mapping[str, Engine]) -> Any:
    """The tree as it is kept: what stood for a version when it was submitted is that version from now on."""
    followed = {
        name: engine.spec.requirements
        for name, engine in found.items()
        if engine.spec is not None and name in matrix.environments and matrix.environments[name].vllm is not None
    }
    if not followed:
        return matrix.source
    written = matrix.source.get(environments.SECTION) or {}
    return {**matrix.source, environments.SECTION: {**written, **followed}}


def _definitions(document: Document, settings: Settings) -> dict[str, Definition]:
    """What is wrong with the matrix' own is found when it is expanded."""
    written = document.tree.get(environments.SECTION)
    return environments.known(written, engines.defined(settings), Problems(document.place))


def _expanded(document: Document, found: Engines, settings: Settings) -> Matrix:
    """A key that the default environment does not know may be one of another: those are built only to find that out."""
    operators = engines.defined(settings)
    default = found.get(DEFAULT).catalogue
    try:
        return expand(document, default, max_cells=settings.max_cells, environments=operators)
    except MatrixError as error:
        others = list(_definitions(document, settings))
        if not others or any(problem.code not in OF_A_VERSION for problem in error.problems):
            raise
    known = found.known_to_any(others)
    return expand(document, known, max_cells=settings.max_cells, environments=operators)


def _answered(cells: Sequence[Cell], found: Engines, answers: _Answers) -> tuple[Cell, ...]:
    """Ask every environment for its cells. Returned are the cells, without what their environment need not be told."""
    by_name: dict[str, list[Cell]] = {}
    for cell in cells:
        by_name.setdefault(cell.environment, []).append(cell)
    told = {cell.id: cell for name, group in by_name.items() for cell in _ask(name, group, found, answers)}
    return tuple(told[cell.id] for cell in cells)


def _ask(name: str, cells: list[Cell], found: Engines, answers: _Answers) -> list[Cell]:
    try:
        engine = found.get(name)
        told = [replace(cell, absent=absent_settings(cell.engine, engine.catalogue)) for cell in cells]
        for cell in told:
            lacking = unsupported_settings(cell.engine, engine.catalogue)
            if lacking:
                text = f"vLLM {engine.catalogue.environment.vllm} has no such setting: {', '.join(lacking)}"
                answers.cannot_run[cell.id] = Reason(Verdict.UNSUPPORTED, text)
        answers.engines[name], answers.environments[name] = engine, engine.catalogue.environment
        able = [cell for cell in told if cell.id not in answers.cannot_run]
        if able:
            reply = questions.audit(engine.settings, able)
            answers.environments[name] = reply.environment
            answers.audited.update({answer.id: answer for answer in reply.cells})
    except EnvironmentFailure as failure:
        return _lost(cells, str(failure), answers)
    except questions.EngineEnvironmentError as error:
        if name == DEFAULT:
            raise
        return _lost(cells, f"environment {name}: {error}", answers)
    return told


def _lost(cells: list[Cell], why: str, answers: _Answers) -> list[Cell]:
    answers.cannot_run.update({cell.id: Reason(Verdict.CRASHED, why) for cell in cells})
    return cells


def _only(matrix: Matrix, name: str, document: Document) -> Matrix:
    cells = tuple(cell for cell in matrix.cells if cell.name == name)
    if not cells:
        near = nearest(name, [cell.name for cell in matrix.cells])
        hint = f"Did you mean {near}?" if near else "`shardproof plan` lists the cells"
        raise Problems(document.place).stop("unknown-cell", f"no cell is called {name!r}", (), hint)
    return replace(matrix, cells=cells)


def _planned(cells: Sequence[Cell], answers: _Answers) -> tuple[PlannedCell, ...]:
    first: dict[str, Cell] = {}
    planned = []
    for cell in cells:
        item = _planned_cell(cell, answers)
        if item.cannot_run is None:
            item = replace(item, duplicate_of=first.get(item.fingerprint))
            first.setdefault(item.fingerprint, cell)
        planned.append(item)
    return tuple(planned)


def _planned_cell(cell: Cell, answers: _Answers) -> PlannedCell:
    engine, environment = answers.engines.get(cell.environment), answers.environments.get(cell.environment)
    why = answers.cannot_run.get(cell.id)
    if why is not None:
        problem = Problem(key=None, message=why.text)
        nothing = AuditedCell(id=cell.id, problems=[problem], effective=None, changes=[], patches={}, shape=None)
        # Nothing was resolved, so nothing is known to be the same.
        return PlannedCell(
            cell, nothing, _batch(cell, None), digest([cell.id]), None, engine, environment, cannot_run=why
        )
    answer = answers.audited[cell.id]
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
    return PlannedCell(cell, answer, requests, fingerprint, None, engine, environment, notes=_notes(cell, environment))


def _notes(cell: Cell, environment: Environment | None) -> tuple[str, ...]:
    """What was written and need not be said in an environment that does not have it; and that there was no engine."""
    unsaid = sorted(cell.absent & cell.requested.keys())
    if environment is None:
        return ()
    notes = [f"{NULL_ENGINE}: a recorded run was emitted, no engine ran"] if environment.device == NULL_ENGINE else []
    if unsaid:
        notes.append(f"vLLM {environment.vllm} has no sequence parallelism, so it is off without {', '.join(unsaid)}")
    return tuple(notes)


def _batch(cell: Cell, shape: Shape | None) -> BatchPlan:
    """The requests of ``cell``. A threshold that was written counts with SP off too, see ``batch.resolve``."""
    if shape is None:
        return BatchPlan.model_validate(cell.batch)
    written = cell.engine.get(SP_THRESHOLD)
    return batch.resolve(cell.batch, shape, written if isinstance(written, int) else None)


def _refuse(document: Document, matrix: Matrix, answers: _Answers, settings: Settings) -> None:
    problems = Problems(document.place)
    for cell in matrix.cells:
        answer = answers.audited.get(cell.id)
        if answer is None:
            continue
        for problem in answer.problems:
            path = written_at(document, cell, problem.key)
            problems.add("engine-refuses", f"cell {cell.name}: {problem.message}", path, problem.hint)
        for problem in _unfit_requests(cell, answer.shape):
            path = written_at(document, cell, problem.key)
            problems.add("requests-do-not-fit", f"cell {cell.name}: {problem.message}", path, problem.hint)
        path = written_at(document, cell, "tensor_parallel_size")
        _check_ranks(cell, answer, answers.environments[cell.environment], settings, path, problems)
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
    if on_gpus and settings.cluster_address is not None:
        # Its machines are not this one, see ``service.dispatch.placement``.
        return
    most = environment.devices if on_gpus else settings.max_ranks_per_machine
    if ranks > most:
        have = f"there are {most} GPUs" if on_gpus else f"at most {most} ranks may share the cores of a machine"
        hint = "Ask for fewer ranks" if on_gpus else "Ask for fewer ranks, or raise SHARDPROOF_MAX_RANKS_PER_MACHINE"
        message = f"cell {cell.name} needs {ranks} ranks (tensor × pipeline parallel) and {have}"
        problems.add("too-many-ranks", message, path, hint)


def written_at(document: Document, cell: Cell, key: str | None) -> Path:
    """Where in the file the value of ``key`` in ``cell`` was written; the cell itself when that cannot be told."""
    if key is not None:
        for base in (cell.path, ("matrix",), ("engine",)):
            if (path := document.below(base, key)) is not None:
                return path
    return cell.path
