"""Tasks are found by name in folders, and what cannot be evaluated is refused before an engine is started."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from workers.engine import models, tasks
from workers.protocol import Evaluation, Problem

SHIPPED = str(Path(__file__).parents[2] / "deploy" / "tasks")
DATA = '{"question": "1 + 1", "choices": ["2", "3"], "answer": 0}\n'


def write(folder: Path, name: str, more: str = "", data: str | None = DATA) -> None:
    """A small task ``name`` in ``folder``, with its data beside it."""
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.yaml").write_text(
        f"task: {name}\ndataset_path: json\ndataset_kwargs: {{data_files: {{test: {name}.jsonl}}}}\ntest_split: test\n"
        "output_type: multiple_choice\ndoc_to_text: '{{question}} ='\ndoc_to_target: answer\ndoc_to_choice: choices\n"
        f"metric_list: [{{metric: acc}}]\n{more}"
    )
    if data is not None:
        (folder / f"{name}.jsonl").write_text(data)


def refused(evaluation: Evaluation | None, model: str) -> list[Problem]:
    config: Any = SimpleNamespace(
        model_config=SimpleNamespace(
            tokenizer=model, tokenizer_revision=None, trust_remote_code=False, get_vocab_size=lambda: 512
        )
    )
    return tasks.problems(evaluation, config)


def evaluation(*names: str, folders: list[str]) -> Evaluation:
    return Evaluation(tasks=list(names), folders=folders)


@pytest.fixture(scope="module")
def tiny(models_dir: Path) -> str:
    return models.locate("tiny:llama", models_dir)


def test_shipped_tasks_can_be_evaluated(tiny: str) -> None:
    assert refused(evaluation("shardproof_sums", "shardproof_repeat", folders=[SHIPPED]), tiny) == []
    loaded = tasks.load(evaluation("shardproof_sums", "shardproof_repeat", folders=[SHIPPED]))
    assert {name: len(task.eval_docs) for name, task in loaded.items()} == {
        "shardproof_sums": 64,
        "shardproof_repeat": 64,
    }
    for doc in loaded["shardproof_sums"].eval_docs:
        one, _, other = doc["question"].split()
        assert int(doc["choices"][doc["answer"]]) == int(one) + int(other)
        assert len(set(doc["choices"])) == 4


def test_who_asks_for_nothing_is_refused_nothing(tiny: str) -> None:
    assert refused(None, tiny) == []


def test_the_first_folder_that_has_a_name_wins(tmp_path: Path) -> None:
    write(tmp_path / "own", "shardproof_sums")
    both = [str(tmp_path / "own"), SHIPPED]
    assert len(tasks.load(evaluation("shardproof_sums", folders=both))["shardproof_sums"].eval_docs) == 1
    assert len(tasks.load(evaluation("shardproof_sums", folders=both[::-1]))["shardproof_sums"].eval_docs) == 64


def test_what_is_asked_of_a_task_reaches_it(tmp_path: Path) -> None:
    asked = Evaluation(tasks=["shardproof_repeat"], folders=[SHIPPED])
    assert tasks.load(asked)["shardproof_repeat"].get_config("num_fewshot") == 2
    more = asked.model_copy(update={"num_fewshot": 5})
    assert tasks.load(more)["shardproof_repeat"].get_config("num_fewshot") == 5


@pytest.mark.slow
def test_lm_eval_s_own_tasks_are_known_by_name_and_not_fetched(tiny: str) -> None:
    assert refused(evaluation("gsm8k", folders=[SHIPPED]), tiny) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "more", "data", "said"),
    [
        ("shardproof_sum", None, None, "there is no task 'shardproof_sum'; the nearest known one is 'shardproof_sums'"),
        ("lost", "", None, "the task 'lost' cannot be loaded: FileNotFoundError"),
        ("empty", "", "", "the task 'empty'"),
        ("damaged", "", "{not json\n", "the task 'damaged' cannot be loaded"),
        ("typed", "output_type: guess\n", DATA, "the task 'typed' cannot be loaded"),
        ("split", "test_split: other\n", DATA, "the task 'split'"),
        ("broken", "  - [\n", DATA, "broken.yaml describes no task that lm_eval can read"),
    ],
)
def test_a_task_that_cannot_be_had_is_refused(
    name: str, more: str | None, data: str | None, said: str, tmp_path: Path, tiny: str
) -> None:
    if more is not None:
        write(tmp_path, name, more, data)
    (problem,) = refused(evaluation("shardproof_sums", name, folders=[str(tmp_path), SHIPPED]), tiny)
    assert problem.key == "eval.tasks"
    assert said in problem.message


def test_a_file_with_functions_is_read_without_running_them(tmp_path: Path) -> None:
    write(tmp_path, "code", "process_docs: !function code.boom\n")
    (tmp_path / "code.py").write_text("raise SystemExit('it was run')\n")
    assert tasks.own_tasks([str(tmp_path)])["code"].path.name == "code.yaml"


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("tiny:llama?vocab=257", "has none"),
        ("tiny:llama?vocab=258", None),
    ],
)
def test_a_model_without_a_tokenizer_is_refused(model: str, said: str | None, models_dir: Path) -> None:
    found = refused(evaluation("shardproof_sums", folders=[SHIPPED]), models.locate(model, models_dir))
    assert [problem.key for problem in found] == ([] if said is None else ["model"])
    assert said is None or said in found[0].message


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused(tiny: str) -> None:
    config: Any = SimpleNamespace(
        tokenizer=tiny, tokenizer_revision=None, trust_remote_code=False, get_vocab_size=lambda: 200
    )
    with pytest.raises(tasks.NoTokenizer, match="goes up to 257, the model to 199"):
        tasks.tokenizer(config)
