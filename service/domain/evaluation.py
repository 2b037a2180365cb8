"""The keys ``eval.*`` of a matrix, and what the check ``eval`` needs of a cell."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from service.domain.errors import Problems
from service.domain.place import Path
from service.domain.wording import found, show
from workers.protocol import Check, Evaluation

if TYPE_CHECKING:
    from service.domain.cell import Cell

FIELDS = tuple(field for field in Evaluation.model_fields if field != "folders")
"""What a matrix may say. Where task files lie is the installation's affair."""

_LEAST = {"limit": 1, "num_fewshot": 0, "seed": 0}
_MOST_TASKS = 100
_NAME = re.compile(r"[A-Za-z0-9_.:+()-]{1,200}")
_LIST = "eval.tasks is a list of names, as in [gsm8k]"


def check(field: str, value: Any, path: Path, problems: Problems) -> Any:
    """The value of ``eval.<field>``; ``None`` when it is refused."""
    if field == "tasks":
        return _tasks(value, path, problems)
    if isinstance(value, bool) or not isinstance(value, int) or value < _LEAST[field]:
        message = f"wrong value: eval.{field} is an integer of {_LEAST[field]} or more, found {found(value)}"
        problems.add("wrong-value", message, path, "Write such a number, or leave it out")
        return None
    return value


def _tasks(value: Any, path: Path, problems: Problems) -> list[str] | None:
    if not isinstance(value, list) or not value:
        problems.add("wrong-type", f"wrong type: {_LIST}, found {found(value)}", path, "Write at least one task in [ ]")
        return None
    if len(value) > _MOST_TASKS:
        problems.add("too-large", f"{len(value):,} tasks; at most {_MOST_TASKS} are allowed", path, "Use several cells")
        return None
    good = True
    for index, name in enumerate(value):
        message, hint = _wrong_name(name), "A task file goes into SHARDPROOF_TASKS_DIR and is then asked for by name"
        if message is None and name in value[:index]:
            message, hint = f"the task {show(name)} is written twice", "Remove one of the two"
        if message is not None:
            problems.add("task-name", message, (*path, index), hint)
            good = False
    return value if good else None


def _wrong_name(name: Any) -> str | None:
    if not isinstance(name, str):
        return f"wrong type: {_LIST}, found {found(name)}"
    return None if _NAME.fullmatch(name) else f"{show(name)} is not the name of a task"


def check_cells(cells: Sequence[Cell], problems: Problems) -> None:
    """Note the cells that are to evaluate nothing, and tasks that nobody is to evaluate."""
    asking = [cell for cell in cells if Check.EVAL in cell.checks]
    for cell in asking:
        if not cell.evaluation.get("tasks"):
            message = f"cell {cell.name} asks for the check eval and has no tasks"
            problems.add("no-tasks", message, cell.path, "Write eval.tasks, as in eval.tasks: [gsm8k]")
    idle = [cell for cell in cells if "eval.tasks" in cell.requested]
    if idle and not asking:
        message = "eval.tasks is written and no cell asks for the check eval"
        problems.add("no-check", message, idle[0].path, "Add eval to checks, or remove eval.tasks")
