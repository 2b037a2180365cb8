"""``eval.*`` in a matrix: what it may say, and which cells it belongs to."""

from __future__ import annotations

import pytest

from service.domain.document import parse
from service.domain.errors import MatrixError
from service.domain.matrix import expand
from service.domain.sections import DEFAULT_CHECKS
from workers.protocol import Catalogue, Check

HEAD = "name: accuracy\nengine:\n  model: tiny:llama\n"
TASKS = "  eval.tasks: [gsm8k, shardproof_sums]\n"


def test_a_cell_carries_what_it_evaluates(catalogue: Catalogue) -> None:
    written = f"{HEAD}{TASKS}  eval: {{limit: 8, num_fewshot: 0, seed: 3}}\nchecks: [eval]\n"
    (cell,) = expand(parse(written), catalogue).cells
    assert cell.checks == (Check.AUDIT, Check.EVAL)
    assert cell.evaluation == {"tasks": ["gsm8k", "shardproof_sums"], "limit": 8, "num_fewshot": 0, "seed": 3}
    assert cell.engine == {"model": "tiny:llama"}


def test_eval_is_off_by_default(catalogue: Catalogue) -> None:
    (cell,) = expand(parse(HEAD), catalogue).cells
    assert cell.checks == DEFAULT_CHECKS == (Check.AUDIT, Check.COMPILE, Check.RESIDUAL, Check.OUTPUTS)
    assert cell.evaluation == {}


def test_a_cell_that_does_not_ask_carries_no_tasks(catalogue: Catalogue) -> None:
    written = f"{HEAD}{TASKS}include:\n  - {{name: a, checks: [eval]}}\n  - {{name: b, checks: [compile]}}\n"
    asking, other = expand(parse(written), catalogue).cells
    assert asking.evaluation
    assert other.evaluation == {}


@pytest.mark.parametrize(
    ("written", "code", "said"),
    [
        ("  eval.tasks: gsm8k\nchecks: [eval]\n", "wrong-type", "eval.tasks is a list of names"),
        ("  eval.tasks: []\nchecks: [eval]\n", "wrong-type", "eval.tasks is a list of names"),
        ("  eval.tasks: [3]\nchecks: [eval]\n", "task-name", "eval.tasks is a list of names"),
        ("  eval.tasks: [../../secret.yaml]\nchecks: [eval]\n", "task-name", "is not the name of a task"),
        ('  eval.tasks: [""]\nchecks: [eval]\n', "task-name", "is not the name of a task"),
        ("  eval.tasks: [a, b, a]\nchecks: [eval]\n", "task-name", 'the task "a" is written twice'),
        (f"  eval.tasks: [{', '.join(f't{n}' for n in range(101))}]\nchecks: [eval]\n", "too-large", "101 tasks"),
        (f"{TASKS}  eval.limit: 0\nchecks: [eval]\n", "wrong-value", "eval.limit is an integer of 1 or more"),
        (f"{TASKS}  eval.limit: true\nchecks: [eval]\n", "wrong-value", "eval.limit is an integer of 1 or more"),
        (f"{TASKS}  eval.num_fewshot: -1\nchecks: [eval]\n", "wrong-value", "eval.num_fewshot is an integer of 0"),
        (f"{TASKS}  eval.num_fewshot: 1.5\nchecks: [eval]\n", "wrong-value", "eval.num_fewshot is an integer of 0"),
        (f"{TASKS}  eval.folders: [/etc]\nchecks: [eval]\n", "unknown-key", "eval.folders"),
        ("checks: [eval]\n", "no-tasks", "asks for the check eval and has no tasks"),
        ("  eval.limit: 8\nchecks: [eval]\n", "no-tasks", "asks for the check eval and has no tasks"),
        (TASKS, "no-check", "no cell asks for the check eval"),
    ],
)
def test_what_cannot_be_evaluated_is_refused(written: str, code: str, said: str, catalogue: Catalogue) -> None:
    with pytest.raises(MatrixError) as refused:
        expand(parse(HEAD + written), catalogue)
    problems = [(problem.code, problem.message) for problem in refused.value.problems]
    assert [found for found, _ in problems] == [code], problems
    assert said in problems[0][1]
