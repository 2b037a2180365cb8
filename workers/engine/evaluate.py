"""Run tasks of lm_eval on an engine that is up, and keep every sample's score."""

from __future__ import annotations

import hashlib
import json
import math
import os
import random
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workers.protocol import Evaluation

if TYPE_CHECKING:
    from vllm.v1.engine.llm_engine import LLMEngine

RESAMPLES = 1000
"""Bootstrap resamples for standard errors that have no closed form; lm_eval draws them from fixed seeds."""

SAMPLES = "samples.json"
"""File in the arm's folder with every sample: what was asked, what was answered, what it scored."""

NO_FORKS = {"DISABLE_MULTIPROC": "1", "TOKENIZERS_PARALLELISM": "false"}
"""An engine with its threads is not to be forked: lm_eval resamples in this process."""


def evaluate(engine: LLMEngine, evaluation: Evaluation, folder: Path) -> dict[str, Any]:
    """Evaluate, leave the samples in ``folder``, and return the scores (their form: ``workers.accuracy``)."""
    from workers.engine import tasks

    # Before lm_eval is imported: it reads the environment once.
    os.environ.update(NO_FORKS)
    loaded = tasks.load(evaluation)
    from workers.engine.language_model import EngineLM

    model = EngineLM(engine, tasks.tokenizer(engine.vllm_config.model_config))
    found = run(model, loaded, evaluation)
    (folder / SAMPLES).write_text(json.dumps(found["samples"], default=str))
    return scores(found, evaluation) | {"not_finite": model.not_finite, "truncated": model.truncated}


def run(model: Any, loaded: dict[str, Any], evaluation: Evaluation) -> dict[str, Any]:
    """lm_eval's own results for ``model``, an ``lm_eval.api.model.LM``, on the tasks ``loaded``."""
    import numpy
    from lm_eval.evaluator import evaluate as judge

    random.seed(evaluation.seed)
    numpy.random.seed(evaluation.seed)
    found: dict[str, Any] = judge(
        lm=model,
        task_dict={"tasks": loaded, "groups": {}},
        limit=evaluation.limit,
        bootstrap_iters=RESAMPLES,
        log_samples=True,
    )
    return found


def scores(found: dict[str, Any], evaluation: Evaluation) -> dict[str, Any]:
    """Every metric of every task in ``found``, with each sample's score where the metric is their mean."""
    return {
        "lm_eval": version("lm_eval"),
        "limit": evaluation.limit,
        "seed": evaluation.seed,
        "resamples": RESAMPLES,
        "tasks": [
            _metric(task, key, values, found)
            for task, values in sorted(found["results"].items())
            for key in sorted(values)
            if "," in key and "_stderr," not in key
        ],
    }


def _metric(task: str, key: str, values: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """``key`` is ``metric,filter``, its standard error ``metric_stderr,filter``, as lm_eval writes them."""
    metric, _, used = key.partition(",")
    samples = sorted((item for item in found["samples"][task] if item["filter"] == used), key=lambda s: s["doc_id"])
    value = _number(values[key])
    return {
        "task": task,
        "metric": metric,
        "filter": used,
        "num_fewshot": found["n-shot"].get(task),
        "samples": len(samples),
        "inputs": _inputs(samples),
        "value": value,
        "stderr": _number(values.get(f"{metric}_stderr,{used}")),
        "scores": _each(samples, metric, value),
    }


def _number(value: Any) -> float | None:
    """lm_eval writes ``N/A`` where it has no number."""
    return float(value) if isinstance(value, int | float) or hasattr(value, "__float__") else None


def _inputs(samples: list[dict[str, Any]]) -> str:
    given = [[item["doc_id"], item["doc_hash"], item["prompt_hash"], item["target_hash"]] for item in samples]
    return hashlib.sha256(json.dumps(given).encode()).hexdigest()[:16]


def _each(samples: list[dict[str, Any]], metric: str, value: float | None) -> list[float] | None:
    """The samples' scores, if ``value`` is their mean: only then can two arms be compared sample by sample."""
    each = [_number(item.get(metric)) for item in samples]
    known = [score for score in each if score is not None]
    if value is None or not known or len(known) < len(each):
        return None
    mean = math.fsum(known) / len(known)
    return known if math.isclose(mean, value, rel_tol=1e-9, abs_tol=1e-12) else None
