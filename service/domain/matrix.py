"""A matrix file becomes the frozen cells of a sweep.

The format::

    name: quickstart
    engine: {model: tiny:llama}             # settings of every cell
    matrix: {tensor_parallel_size: [1, 2]}  # axes: cross product, first axis slowest
    include: []                             # GitHub Actions' rules, after exclude; also name, expect, checks
    exclude: []
    checks: [audit, compile, residual, outputs]
    timeouts: {cold: 1800, warm: 600, probe: 1800, eval: 7200, phase: null, silence: null}
    repeat: {cold: 1, warm: 1}
    traces: false
    environments: {}                        # engine environments: name → requirements, {vllm: latest} or interpreter

Only ``name`` is required. ``null`` leaves the default everywhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from service.domain import combinations, evaluation, naming, sections
from service.domain.cell import Cell
from service.domain.combinations import Combination
from service.domain.document import Document
from service.domain.environments import Definition
from service.domain.errors import Problems
from service.domain.fingerprint import digest
from service.domain.place import Path
from service.domain.repeat import ONCE, Repeat
from service.domain.requested import ENTRY_WORDS
from service.domain.sections import Sections
from service.domain.setting import Entry, Setting, values
from service.domain.timeouts import Timeouts
from service.domain.verdict import Verdict
from service.domain.wording import show
from workers.protocol import Catalogue

MAX_CELLS = 256


@dataclass(frozen=True)
class Matrix:
    """What a matrix file asks for. ``cells``: at least one, ids and names unique. ``source``: the plain tree.

    ``environments``: all that its cells can name besides ``default``, by name.
    ``traces``: of every arm of a cell's own, PyTorch's structured trace and reports made of it.
    """

    name: str
    cells: tuple[Cell, ...]
    timeouts: Timeouts
    source: Any
    repeat: Repeat = ONCE
    traces: bool = False
    environments: Mapping[str, Definition] = field(default_factory=dict)


def expand(
    document: Document,
    catalogue: Catalogue,
    *,
    max_cells: int = MAX_CELLS,
    environments: Mapping[str, Definition] | None = None,
) -> Matrix:
    """The cells of a matrix.

    Args:
        document: what ``service.domain.document`` made of the file.
        catalogue: the settings that the engine environment knows; with several, that any of them does.
        max_cells: how many cells there may be; also, before ``exclude``, how many combinations of axis values.
        environments: engine environments that the operator defined.

    Raises:
        MatrixError: with every problem that was found.
    """
    problems = Problems(document.place)
    written = sections.read(document, catalogue, problems, max_cells, environments)
    problems.raise_if_any()
    found = _combine(written, max_cells, problems)
    problems.raise_if_any()
    cells = _cells(found, written, problems)
    evaluation.check_cells(cells, problems)
    problems.raise_if_any()
    return Matrix(
        name=written.name,
        cells=cells,
        timeouts=written.timeouts,
        source=document.tree,
        repeat=written.repeat,
        traces=written.traces,
        environments=written.environments,
    )


def _combine(written: Sections, max_cells: int, problems: Problems) -> list[Combination]:
    originals = combinations.exclude(combinations.product(written.axes), written.exclude)
    found = combinations.include(originals, written.include)
    if not written.axes and not written.include:
        return [Combination({})]
    if not found:
        hint = "Exclude less, or include a cell"
        problems.add("no-cells", "no cell is left: every combination is excluded", ("exclude",), hint)
    if len(found) > max_cells:
        message = f"the matrix makes {len(found):,} cells; at most {max_cells:,} are allowed"
        problems.add("too-many-cells", message, ("include",), "Remove entries of include, or axis values")
    return found


def _cells(found: Sequence[Combination], written: Sections, problems: Problems) -> tuple[Cell, ...]:
    names = _names(found, written.name, problems)
    cells = (_cell(name, combination, written) for name, combination in zip(names, found, strict=True))
    seen: Counter[str] = Counter()
    return tuple(_numbered(cell, seen) for cell in cells)


def _numbered(cell: Cell, seen: Counter[str]) -> Cell:
    seen[cell.id] += 1
    return cell if seen[cell.id] == 1 else replace(cell, id=f"{cell.id}-{seen[cell.id]}")


def _cell(name: str, combination: Combination, written: Sections) -> Cell:
    settings = values({**written.engine, **combination.original, **combination.added})
    words = {word: settings.pop(word) for word in ENTRY_WORDS if word in settings}
    requested = dict(sorted(settings.items()))
    checks = words.get("checks", written.checks)
    content = digest({"requested": requested, "checks": checks}, 12)
    return Cell(content, name, requested, words.get("expect", (Verdict.PASS,)), checks, _path(combination, written))


def _path(combination: Combination, written: Sections) -> Path:
    if combination.include is not None:
        return ("include", combination.include)
    return ("matrix",) if written.axes else ("engine",)


def _names(found: Sequence[Combination], fallback: str, problems: Problems) -> list[str]:
    given = [combination.added.get("name") for combination in found]
    _check_unique([setting for setting in given if setting], problems)
    nameless = [_told_apart_by(combination) for combination, setting in zip(found, given, strict=True) if not setting]
    defaults = iter(naming.default_names(nameless, fallback, (setting.value for setting in given if setting)))
    return [setting.value if setting else next(defaults) for setting in given]


def _told_apart_by(combination: Combination) -> Entry:
    """What the axes gave; all of it where an include entry made the combination."""
    if combination.include is None:
        return combination.original
    return {key: setting for key, setting in combination.added.items() if key not in ENTRY_WORDS}


def _check_unique(given: Sequence[Setting], problems: Problems) -> None:
    last = {setting.value: setting for setting in given}
    for name, count in Counter(setting.value for setting in given).items():
        if count > 1:
            message = f"{count} cells would have the name {show(name)}"
            hint = "Name each cell once; an entry that several combinations take needs more axis values to fit only one"
            problems.add("duplicate-name", message, last[name].path, hint)
