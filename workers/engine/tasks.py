"""Tasks of lm_eval: found by name, in folders of our own first, and refused before an engine is started.

Files that a task names lie beside it. The check reaches for no network unless a task comes from a hub.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workers.protocol import Evaluation, Problem

if TYPE_CHECKING:
    from vllm.config import ModelConfig, VllmConfig

TASKS = "eval.tasks"
OFFLINE = ("HF_DATASETS_OFFLINE", "HF_EVALUATE_OFFLINE")
DATASETS_CACHE = "HF_DATASETS_CACHE"
VLLM_CACHE = "VLLM_CACHE_ROOT"

FILE_FORMATS = ("json", "csv", "parquet", "text", "arrow")
"""What a task names as its data set when it is files of one of these formats."""


class NoTokenizer(ValueError):
    """The model has no tokenizer that serves. The message says why."""


def stay_offline() -> None:
    """Data sets are files here. To be called before lm_eval is imported; what it makes of them goes with the caches."""
    os.environ.update(dict.fromkeys(OFFLINE, "1"))
    if VLLM_CACHE in os.environ:
        os.environ.setdefault(DATASETS_CACHE, os.path.join(os.environ[VLLM_CACHE], "datasets"))


@dataclass(frozen=True)
class OwnTask:
    """A task file of ours. ``local``: its data are files too."""

    path: Path
    local: bool


def own_tasks(folders: list[str]) -> dict[str, OwnTask]:
    """The tasks and groups in ``folders`` by name. Nothing of lm_eval is imported for it, and no file is executed."""
    found: dict[str, OwnTask] = {}
    for path in (path for folder in folders for path in sorted(Path(folder).resolve().rglob("*.yaml"))):
        content = _read(path)
        name = content.get("group") or content.get("task")
        if isinstance(name, str):
            found.setdefault(name, OwnTask(path, content.get("dataset_path") in FILE_FORMATS))
    return found


def _read(path: Path) -> dict[str, Any]:
    import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        """Leaves lm_eval's ``!function`` alone."""

    Loader.add_multi_constructor("!", lambda loader, suffix, node: None)
    try:
        content = yaml.load(path.read_text(), Loader)
    except (yaml.YAMLError, UnicodeError):
        return {}
    return content if isinstance(content, dict) else {}


def load(evaluation: Evaluation) -> dict[str, Any]:
    """The tasks of ``evaluation`` with their data, name → lm_eval's ``Task``; a group becomes its tasks.

    Raises:
        KeyError: when there is no task of some name.
    """
    own = own_tasks(evaluation.folders)
    if all(name in own and own[name].local for name in evaluation.tasks):
        stay_offline()
    manager = _manager(evaluation, own)
    tasks: dict[str, Any] = {}
    for name in evaluation.tasks:
        with contextlib.chdir(own[name].path.parent if name in own else Path.cwd()):
            tasks |= manager.load([name])["tasks"]
    for task in tasks.values():
        if evaluation.num_fewshot is not None:
            task.set_config(key="num_fewshot", value=evaluation.num_fewshot)
        elif task.get_config("num_fewshot") is None:
            task.set_config(key="num_fewshot", value=0)
        task.set_fewshot_seed(seed=evaluation.seed)
    return tasks


def _manager(evaluation: Evaluation, own: dict[str, OwnTask]) -> Any:
    """lm_eval's own catalogue takes seconds to read: only where it is needed. Of two files the first folder's wins."""
    from lm_eval.tasks import TaskManager

    with _quiet():
        return TaskManager(
            include_path=[Path(folder).resolve() for folder in reversed(evaluation.folders)],
            include_defaults=not all(name in own for name in evaluation.tasks),
        )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """lm_eval warns of every name that a later folder takes over, which is what folders are for."""
    logger = logging.getLogger("lm_eval")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


# --- what can be refused without an engine ---------------------------------------------------------------------------


def problems(evaluation: Evaluation | None, config: VllmConfig) -> list[Problem]:
    """Why ``evaluation`` cannot be carried out with the model of ``config``; empty when it can."""
    if evaluation is None:
        return []
    stay_offline()
    try:
        import lm_eval  # noqa: F401
    except ImportError as error:
        hint = "install Shardproof's extra eval there, or take eval out of checks"
        return [Problem(key=None, message=f"lm_eval does not import in the engine environment: {error}", hint=hint)]
    return [*_model_problems(config.model_config), *_task_problems(evaluation)]


def _model_problems(model: ModelConfig) -> list[Problem]:
    try:
        tokenizer(model)
    except NoTokenizer as error:
        hint = "take eval out of checks, or name one in the setting tokenizer; a tiny model needs vocab=258 or more"
        return [Problem(key="model", message=f"the check eval needs a tokenizer: {error}", hint=hint)]
    return []


def _task_problems(evaluation: Evaluation) -> list[Problem]:
    own = own_tasks(evaluation.folders)
    messages = [
        _unloadable(name, own[name], evaluation) if name in own else _unknown(name, own, evaluation)
        for name in evaluation.tasks
    ]
    return [Problem(key=TASKS, message=message) for message in messages if message is not None]


def _unknown(name: str, own: dict[str, OwnTask], evaluation: Evaluation) -> str | None:
    """What is wrong with a name that is none of ours; ``None`` where lm_eval has it."""
    for folder in evaluation.folders:
        for path in Path(folder).rglob(f"{name}.yaml"):
            return f"{path.name} describes no task that lm_eval can read (it needs task: {name}, in valid YAML)"
    known = {*own, *_names_of_lm_eval()}
    if name in known:
        return None
    near = get_close_matches(name, known, 1)
    return f"there is no task {name!r}" + (f"; the nearest known one is {near[0]!r}" if near else "")


@cache
def _names_of_lm_eval() -> frozenset[str]:
    """Read once: there are some fifteen thousand."""
    from lm_eval.tasks import TaskManager

    return frozenset(TaskManager().all_tasks)


def _unloadable(name: str, own: OwnTask, evaluation: Evaluation) -> str | None:
    """What is a file here is loaded, with its data. Other data may have to be fetched: not before the task runs."""
    if not own.local:
        return None
    try:
        loaded = load(evaluation.model_copy(update={"tasks": [name]}))
    except Exception as error:
        return f"the task {name!r} cannot be loaded: {type(error).__name__}: {error}"
    empty = [key for key, task in loaded.items() if not len(task.eval_docs)]
    return f"the task {name!r} has no samples" if empty or not loaded else None


def tokenizer(model: ModelConfig) -> Any:
    """The tokenizer of ``model``.

    Raises:
        NoTokenizer: there is none, or it makes ids that the model does not have.
    """
    from transformers import AutoTokenizer

    try:
        found = AutoTokenizer.from_pretrained(
            model.tokenizer, revision=model.tokenizer_revision, trust_remote_code=model.trust_remote_code
        )
    except Exception as error:
        raise NoTokenizer(f"{model.tokenizer} has none ({_first_line(error)})") from error
    highest = max(found.get_vocab().values(), default=-1)
    # Where its files are missing, transformers makes up a tokenizer of special tokens alone.
    if len(found.get_vocab()) <= len(found.all_special_ids) or not found.encode("a b", add_special_tokens=False):
        raise NoTokenizer(f"{model.tokenizer} has none")
    if highest >= model.get_vocab_size():
        raise NoTokenizer(f"that of {model.tokenizer} goes up to {highest}, the model to {model.get_vocab_size() - 1}")
    if found.eos_token_id is None:
        raise NoTokenizer(f"that of {model.tokenizer} has no end-of-sequence token")
    return found


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:200]
