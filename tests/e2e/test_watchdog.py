"""Engines that hang on one rank, for real: that rank, its phase and what it did are named, and nothing is left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from e2e.command import Finished, Leftovers, run
from e2e.injected import python_path

pytestmark = pytest.mark.engine

MATRIX = """
name: hangs
engine:
  model: tiny:llama
  dtype: float32
  tensor_parallel_size: 2
  compilation_config.pass_config.enable_sp: true
  compilation_config.pass_config.sp_min_token_num: 1
  env.PYTHONPATH: "{path}"
checks: [compile]
# Longer than any phase of a healthy start takes before the two places.
timeouts: {{phase: 30}}
include:
  - {{name: pass, env.HANGS_IN: pass}}
  # Newer PyTorch makes that text only where its log is read.
  - {{name: formatter, env.HANGS_IN: formatter, env.TORCH_LOGS: inductor, patches.fallback_fast_path: "off"}}
"""

HANG = '''
import functools
import os


def rank():
    import torch.distributed
    return torch.distributed.get_rank()


def wrap(owner, name, before):
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(*args, **kwargs):
        if rank() == 1:
            before()
        return original(*args, **kwargs)

    setattr(owner, name, wrapped)


def sleep_for_ever():
    import time
    while True:
        time.sleep(3600)


def compile_a_deep_chain():
    """The text that Inductor makes of the last operation's inputs doubles with every layer."""
    from workers.bench import chain
    chain.make(40).compile()


if os.environ.get("HANGS_IN") == "pass":
    name = "vllm.compilation.passes.fusion.sequence_parallelism"
    after_import(name, lambda module: wrap(module.SequenceParallelismPass, "__call__", sleep_for_ever))
elif os.environ.get("HANGS_IN") == "formatter":
    name = "vllm.v1.worker.cpu_worker"
    after_import(name, lambda module: wrap(module.CPUWorker, "determine_available_memory", compile_a_deep_chain))
'''


@pytest.fixture(scope="module")
def hung(tmp_path_factory: pytest.TempPathFactory) -> tuple[Finished, Leftovers]:
    root: Path = tmp_path_factory.mktemp("hung")
    matrix = root / "hangs.yaml"
    matrix.write_text(MATRIX.format(path=python_path(root / "site", HANG)))
    before = Leftovers.now()
    return run(root / "home", matrix), before


def _arm(found: Finished, name: str) -> dict[str, Any]:
    """The one arm of cell ``name``: nothing is started warm behind a cold start that hung."""
    cell = found.cell(name)
    assert cell["verdict"] == "timed-out", found.printed
    (arm,) = cell["arms"]
    assert (arm["role"], arm["outcome"]) == ("cold", "timed-out")
    return arm


def _text_of_rank_1(arm: dict[str, Any]) -> str:
    """What the file with all stacks says of rank 1."""
    return Path(arm["failure"]["stacks"]).read_text().partition("rank 1, phase profile")[2].partition("\n\n")[0]


@pytest.mark.parametrize("name", ["pass", "formatter"])
def test_the_rank_and_its_phase_are_named(hung: tuple[Finished, Leftovers], name: str) -> None:
    failure = _arm(hung[0], name)["failure"]
    assert (failure["rank"], failure["phase"]) == (1, "profile")
    assert failure["since_s"] >= 30
    doing = {process["rank"]: process["doing"] for process in failure["processes"] if process["rank"] is not None}
    assert doing[0].startswith("waiting for"), "rank 0 waits, and is not the one that is named"
    (reason,) = [text for text in hung[0].cell(name)["reasons"] if text.startswith("timed-out")]
    assert "cold arm, rank 1, phase profile" in reason


def test_a_sleep_in_a_pass_is_shown_by_its_stack(hung: tuple[Finished, Leftovers]) -> None:
    arm = _arm(hung[0], "pass")
    assert arm["failure"]["cause"].startswith("unknown, in sleep_for_ever (")
    assert "sleep_for_ever" in next(text for text in hung[0].cell("pass")["reasons"] if "timed-out" in text)
    stack = _text_of_rank_1(arm)
    places = [stack.index(name) for name in ("sleep_for_ever", "_inductor", "determine_available_memory")]
    assert places == sorted(places), "the innermost first: the sleep, Inductor that called the pass, the worker"


def test_the_eager_formatter_is_named_as_that(hung: tuple[Finished, Leftovers]) -> None:
    arm = _arm(hung[0], "formatter")
    assert arm["failure"]["cause"].startswith("formatting of the arguments of fallback ops for a log line, in ")
    stack = _text_of_rank_1(arm)
    assert "operator_str" in stack
    assert "compile_a_deep_chain" in stack


def test_events_are_kept(hung: tuple[Finished, Leftovers]) -> None:
    folder = Path(_arm(hung[0], "pass")["failure"]["stacks"]).parent
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    assert {event["rank"] for event in events if event.get("name") == "profile"} == {0, 1}


def test_nothing_is_left(hung: tuple[Finished, Leftovers]) -> None:
    after = Leftovers.now()
    assert after.processes <= hung[1].processes
    assert after.files <= hung[1].files
