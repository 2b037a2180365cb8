"""Requested → effective, asked of the real vLLM: what is overridden and why, what is refused, what is the same."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from service.domain.fingerprint import effective_fingerprint
from workers import environment
from workers.probes.audit import audit
from workers.probes.guards import ATTENTION_OP
from workers.protocol import (
    AuditCell,
    AuditedCell,
    AuditReply,
    AuditRequest,
    Change,
    Check,
    Evaluation,
    Patch,
    PatchMode,
    PatchState,
)

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("native_patches")]

PASS = "compilation_config.pass_config"
SPLITTING = "compilation_config.splitting_ops"
BASE: dict[str, Any] = {"model": "tiny:llama", "dtype": "float32", "tensor_parallel_size": 2}
SP = {f"{PASS}.enable_sp": True, f"{PASS}.sp_min_token_num": 1}
PIECEWISE = {SPLITTING: [ATTENTION_OP]}
ON = dict.fromkeys(Patch, PatchMode.ON)

Ask = Callable[..., AuditedCell]


@pytest.fixture
def ask(models_dir: Path) -> Ask:
    """Audits one cell: ``BASE`` with the settings given."""

    def ask(engine: dict[str, Any], **patches: PatchMode) -> AuditedCell:
        asked = ON | {Patch(name): mode for name, mode in patches.items()}
        cell = AuditCell(id="cell", engine=BASE | engine, patches=asked)
        return audit(AuditRequest(cells=[cell], models_dir=str(models_dir))).cells[0]

    return ask


def changes(cell: AuditedCell) -> dict[str, Change]:
    assert cell.problems == []
    found = {change.key: change for change in cell.changes}
    assert len(found) == len(cell.changes)
    return found


def downgrades(cell: AuditedCell) -> dict[str, Change]:
    """The settings that the user wrote and that are not what runs."""
    return {key: change for key, change in changes(cell).items() if change.written}


def settings(cell: AuditedCell) -> dict[str, Any]:
    assert cell.effective is not None
    return cell.effective


# --- what is overridden --------------------------------------------------------------------------------------------


def test_sp_with_the_attention_operation_split_out_is_rewritten_and_says_why(ask: Ask) -> None:
    cell = ask(SP | PIECEWISE)
    assert list(downgrades(cell)) == [SPLITTING]
    change = changes(cell)[SPLITTING]
    assert (change.requested, change.effective) == ([ATTENTION_OP], [])
    assert change.reason is not None
    assert change.reason.startswith("Sequence parallelism requires full-graph compilation")
    assert change.where is not None
    assert change.where.startswith("vllm/config/compilation.py:")
    assert change.where.endswith(" in set_splitting_ops_for_v1")
    assert cell.shape is not None
    assert (cell.shape.full_graph, cell.shape.sequence_parallelism, cell.shape.compiled) == (True, True, True)


def test_source_place_is_the_line_that_wrote_it(ask: Ask) -> None:
    import vllm

    where = changes(ask(SP | PIECEWISE))[SPLITTING].where
    assert where is not None
    name, line = where.split(" in ")[0].split(":")
    source = Path(vllm.__file__).parent.parent.joinpath(name).read_text().splitlines()
    assert source[int(line) - 1].strip() == "self.splitting_ops = []"


def test_without_the_guard_the_graph_stays_split(ask: Ask) -> None:
    cell = ask(SP | PIECEWISE, full_graph_sp=PatchMode.OFF)
    assert downgrades(cell) == {}
    assert settings(cell)[SPLITTING] == [ATTENTION_OP]
    assert cell.patches[Patch.FULL_GRAPH_SP] is PatchState.REMOVED
    assert cell.shape is not None
    assert (cell.shape.full_graph, cell.shape.sequence_parallelism) == (False, True)


def test_without_sp_the_graph_stays_split(ask: Ask) -> None:
    cell = ask({f"{PASS}.enable_sp": False} | PIECEWISE)
    assert downgrades(cell) == {}
    assert settings(cell)[SPLITTING] == [ATTENTION_OP]


def test_what_runs_as_it_was_written_is_no_change(ask: Ask) -> None:
    cell = ask(SP | {SPLITTING: []})
    assert downgrades(cell) == {}
    assert not set(changes(cell)) & {SPLITTING, *SP, *BASE}
    assert {key: settings(cell)[key] for key in (*SP, *BASE)} == SP | BASE


def test_sp_on_a_small_model_without_a_threshold_is_turned_off(ask: Ask) -> None:
    cell = ask({f"{PASS}.enable_sp": True})
    assert list(downgrades(cell)) == [f"{PASS}.enable_sp"]
    change = changes(cell)[f"{PASS}.enable_sp"]
    assert (change.requested, change.effective) == (True, False)
    assert "hidden_size too small for the SP threshold heuristic" in str(change.reason)
    assert str(change.where).startswith("vllm/config/vllm.py:")
    assert cell.shape is not None
    assert not cell.shape.sequence_parallelism


def test_sp_on_one_rank_is_turned_off(ask: Ask) -> None:
    change = downgrades(ask(SP | {"tensor_parallel_size": 1}))[f"{PASS}.enable_sp"]
    assert (change.requested, change.effective) == (True, False)
    assert change.reason == "Sequence Parallelism requires TP>1, disabling"


def test_async_tp_turns_sp_on_which_is_a_change_but_no_downgrade(ask: Ask) -> None:
    cell = ask({f"{PASS}.fuse_gemm_comms": True, f"{PASS}.sp_min_token_num": 1})
    assert downgrades(cell) == {}
    change = changes(cell)[f"{PASS}.enable_sp"]
    assert (change.requested, change.effective, change.written) == (None, True, False)
    assert settings(cell)[SPLITTING] == []


def test_async_tp_against_a_written_sp_off_is_a_downgrade(ask: Ask) -> None:
    written = {f"{PASS}.fuse_gemm_comms": True, f"{PASS}.sp_min_token_num": 1, f"{PASS}.enable_sp": False}
    assert list(downgrades(ask(written))) == [f"{PASS}.enable_sp"]


# --- reasons -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", [SP | PIECEWISE, {f"{PASS}.enable_sp": True}, {"pipeline_parallel_size": 2}])
def test_a_warning_is_not_the_reason_of_what_happens_to_stand_below_it(engine: dict[str, Any], ask: Ask) -> None:
    """vLLM resolves all of its configuration in functions of hundreds of lines."""
    mine = {SPLITTING, f"{PASS}.enable_sp", f"{PASS}.fuse_gemm_comms"}
    for key, change in changes(ask(engine)).items():
        said = change.reason or ""
        assert ("equence parallelism" in said or "SP threshold" in said) is False or key in mine, key
        assert "SSM cache" not in said or key == "mamba_ssm_cache_dtype"
        assert not said.startswith("Async scheduling") or key == "async_scheduling"


def test_a_warning_above_or_below_the_write_in_its_block_is_its_reason(ask: Ask) -> None:
    found = changes(ask({"pipeline_parallel_size": 2}))
    assert "Async scheduling is disabled" in str(found["async_scheduling"].reason)
    assert "Reset SSM cache type to float32" in str(found["mamba_ssm_cache_dtype"].reason)
    assert found["disable_nccl_for_dp_synchronization"].reason is None


@pytest.mark.parametrize("level", ["ERROR", "INFO"])
def test_reason_does_not_hang_on_what_the_engine_logs(level: str, ask: Ask) -> None:
    """vLLM configures its logging anew where a cell's logging differs from the last one's."""
    change = changes(ask(SP | PIECEWISE | {"logging_config.log_level": level}))[SPLITTING]
    assert "requires full-graph compilation" in str(change.reason)


def test_every_cell_has_its_reasons_though_the_engine_warns_once(models_dir: Path) -> None:
    cells = [AuditCell(id=name, engine=BASE | SP | PIECEWISE, patches={}) for name in ("first", "second")]
    for cell in audit(AuditRequest(cells=cells, models_dir=str(models_dir))).cells:
        assert "requires full-graph compilation" in str(changes(cell)[SPLITTING].reason)


def test_watching_leaves_logging_as_it_was(ask: Ask) -> None:
    before = logging.Logger.warning
    ask(SP)
    ask({"dtype": "nonsense"})
    assert logging.Logger.warning is before


def test_log_names_the_engines_own_lines(ask: Ask, caplog: pytest.LogCaptureFixture) -> None:
    ask({})
    logger = logging.getLogger("vllm")
    logger.addHandler(caplog.handler)
    try:
        ask(SP | PIECEWISE)
    finally:
        logger.removeHandler(caplog.handler)
    record = next(record for record in caplog.records if "requires full-graph" in record.getMessage())
    assert (record.filename, record.funcName) == ("compilation.py", "set_splitting_ops_for_v1")


# --- what is asked of the harness, and what is left open -------------------------------------------------------------


def test_settings_of_the_harness_are_marked(ask: Ask) -> None:
    found = changes(ask({}))
    marked = {key for key, change in found.items() if "set by Shardproof" in str(change.reason)}
    assert marked == {"skip_tokenizer_init", "enable_prefix_caching", "kv_cache_memory_bytes"}
    assert not any(found[key].written for key in marked)


def test_what_the_user_writes_goes_before_the_harness(ask: Ask) -> None:
    cell = ask({"enable_prefix_caching": True, "seed": 7})
    assert (settings(cell)["enable_prefix_caching"], settings(cell)["seed"]) == (True, 7)
    assert not {"enable_prefix_caching", "seed"} & set(changes(cell))


def test_auto_leaves_the_choice_open_and_is_no_downgrade(ask: Ask) -> None:
    cell = ask({"dtype": "auto"})
    assert downgrades(cell) == {}
    change = changes(cell)["dtype"]
    assert (change.written, change.requested) == (False, "auto")
    assert change.effective in ("float32", "bfloat16", "float16")
    assert change.reason == "'auto' leaves the choice to the engine"


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ({"dtype": "half"}, "float16"),
        ({"dtype": "float"}, "float32"),
        ({"compilation_config.mode": 3}, "VLLM_COMPILE"),
        ({"compilation_config.mode": "VLLM_COMPILE"}, "VLLM_COMPILE"),
        ({"compilation_config.cudagraph_mode": "none"}, "NONE"),
    ],
)
def test_another_word_for_the_same_value_is_no_change(written: dict[str, Any], value: str, ask: Ask) -> None:
    cell = ask(written)
    (key,) = written
    assert settings(cell)[key] == value
    assert downgrades(cell) == {}


def test_another_value_is_a_change(ask: Ask) -> None:
    change = downgrades(ask({"compilation_config.cudagraph_mode": "FULL"}))["compilation_config.cudagraph_mode"]
    assert (change.requested, change.effective) == ("FULL", "NONE")


@pytest.mark.parametrize(
    "written",
    [
        {"logging_config.log_level": "INFO"},
        {"structured_outputs_config.backend": "auto"},
        {"kernel_config.moe_backend": "auto"},
        {"kernel_config.ir_op_priority.rms_norm": ["native"]},
        {"compilation_config.dynamic_shapes_config.evaluate_guards": False},
        {"kv_events_config.publisher": "null"},
    ],
)
def test_dotted_keys_reach_into_every_nested_setting(written: dict[str, Any], ask: Ask) -> None:
    cell = ask(written)
    assert downgrades(cell) == {}
    ((key, value),) = written.items()
    assert settings(cell)[key] == value


# --- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("engine", "key", "said"),
    [
        ({"tensor_parallel_size": 3}, "tensor_parallel_size", "attention heads (4) must be divisible by"),
        ({"tensor_parallel_size": 0}, "tensor_parallel_size", "greater than or equal to 1"),
        ({"tensor_parallel_size": 1000}, "tensor_parallel_size", "must be divisible by tensor parallel size (1000)"),
        ({"dtype": "float33"}, "dtype", "Input should be 'auto', 'half', 'float16', 'bfloat16'"),
        ({"model": "/no/such/model"}, "model", "there is no folder '/no/such/model'; give a folder with a config.json"),
        # The hub is asked, and asked again, before it is given up.
        pytest.param(
            {"model": "nobody/no-such-model"},
            "model",
            "'nobody/no-such-model' cannot be had: ",
            marks=pytest.mark.slow,
        ),
        ({"model": "tiny:lama"}, "model", "there is no tiny model 'lama'; known: llama"),
        ({"model": "tiny:llama?layer=2"}, "model", "unknown option 'layer' of tiny:llama; known: dtype"),
        ({"model": "tiny:llama?rms_norm_eps=0"}, "model", "rms_norm_eps is 0.0; it must be above 0"),
        (
            {"hf_overrides": {"rms_norm_eps": 0.0}},
            "hf_overrides",
            "rms_norm_eps is 0.0: a norm needs a positive number",
        ),
        ({"hf_overrides": {"rms_norm_eps": -1.0}}, "hf_overrides", "rms_norm_eps is -1.0"),
        ({"hf_overrides": {"rms_norm_eps": 0}}, "hf_overrides", "'rms_norm_eps' expected float, got int (value: 0)"),
        ({"max_model_len": 0}, "max_model_len", "must be a positive integer"),
        ({"max_model_len": 513}, "max_model_len", "is greater than the derived max_model_len"),
        ({"gpu_memory_utilization": 1.5}, "gpu_memory_utilization", "less than or equal to 1"),
        ({"max_num_batched_tokens": 16, "max_num_seqs": 32}, "max_num_batched_tokens", "(16) must be greater than or"),
        ({"compilation_config.mode": 17}, "compilation_config.mode", "Input should be 0, 1, 2 or 3"),
        ({"compilation_config.cudagraph_mode": "wrong"}, "compilation_config.cudagraph_mode", "it knows no 'WRONG'"),
        ({"compilation_config.no_such": 1}, "compilation_config.no_such", "no_such: Unexpected keyword argument"),
        ({"quantization": "nope"}, "quantization", "Unknown quantization method: nope. Must be one of ['awq'"),
    ],
)
def test_what_the_engine_refuses_is_pinned_to_its_setting(
    engine: dict[str, Any], key: str, said: str, ask: Ask
) -> None:
    cell = ask(engine)
    (problem,) = cell.problems
    assert problem.key == key
    assert said in problem.message
    assert "Traceback" not in problem.message
    assert (cell.effective, cell.changes, cell.shape) == (None, [], None)


def test_what_cannot_be_pinned_is_still_said(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> Any:
        raise AssertionError

    monkeypatch.setattr("workers.probes.audit.engine_config", refuse)
    (problem,) = ask({}).problems
    assert (problem.key, problem.message) == (None, "vLLM refuses this: AssertionError")


@pytest.mark.parametrize(
    "largest", [{"max_model_len": 512}, {"tensor_parallel_size": 4}, {"hf_overrides": {"rms_norm_eps": 1e-6}}]
)
def test_the_largest_that_fits_is_not_refused(largest: dict[str, Any], ask: Ask) -> None:
    assert ask(largest).problems == []


def test_a_refused_cell_does_not_spoil_the_next(models_dir: Path) -> None:
    cells = [
        AuditCell(id="bad", engine=BASE | {"dtype": "float33"}, patches=ON),
        AuditCell(id="unguarded", engine=BASE | SP | PIECEWISE, patches=ON | {Patch.FULL_GRAPH_SP: PatchMode.OFF}),
        AuditCell(id="guarded", engine=BASE | SP | PIECEWISE, patches=ON),
    ]
    bad, unguarded, guarded = audit(AuditRequest(cells=cells, models_dir=str(models_dir))).cells
    assert bad.problems
    assert downgrades(unguarded) == {}
    assert list(downgrades(guarded)) == [SPLITTING]


# --- what is the same ----------------------------------------------------------------------------------------------

CELLS = [
    AuditCell(id="full", engine=BASE | SP | {SPLITTING: []}, patches=ON),
    AuditCell(id="unguarded", engine=BASE | SP | PIECEWISE, patches=ON | {Patch.FULL_GRAPH_SP: PatchMode.OFF}),
    AuditCell(id="replicated", engine=BASE, patches=ON),
    AuditCell(id="partition", engine=BASE | SP | {"compilation_config.use_inductor_graph_partition": True}, patches=ON),
    AuditCell(id="pipeline", engine=BASE | {"pipeline_parallel_size": 2}, patches=ON),
    AuditCell(id="reference", engine=BASE | {"tensor_parallel_size": 1, "enforce_eager": True}, patches=ON),
    AuditCell(id="half", engine=BASE | {"dtype": "half"}, patches=ON),
    AuditCell(id="piecewise", engine=BASE | SP | PIECEWISE, patches=ON),
]


def fingerprints(reply: AuditReply) -> dict[str, str]:
    found = {
        cell.id: effective_fingerprint(settings(cell), cell.patches, {}, {}, [Check.AUDIT], "default")
        for cell in reply.cells
    }
    return {cell.id: found[cell.id] for cell in CELLS}


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> AuditReply:
    """``CELLS`` as another process resolves them, in the reverse order, with its models and caches elsewhere."""
    folder = tmp_path_factory.mktemp("elsewhere")
    request = AuditRequest(cells=CELLS[::-1], models_dir=str(folder / "models"))
    (folder / "request.json").write_text(request.model_dump_json())
    command = [sys.executable, "-m", "workers.engine", "audit"]
    command += ["--request", str(folder / "request.json"), "--reply", str(folder / "reply.json")]
    variables = environment.for_question(str(folder / "cache"))
    subprocess.run(command, env=variables, cwd=folder, capture_output=True, timeout=120, check=True)
    return AuditReply.model_validate_json((folder / "reply.json").read_bytes())


@pytest.fixture
def here(models_dir: Path) -> AuditReply:
    return audit(AuditRequest(cells=CELLS, models_dir=str(models_dir)))


def test_full_graph_asked_and_piecewise_asked_are_the_same_in_the_end(here: AuditReply) -> None:
    found = fingerprints(here)
    assert found["full"] == found["piecewise"]
    assert len(set(found.values())) == len(CELLS) - 1, "and no other two are"


def test_fingerprint_is_the_same_in_another_process_and_order(here: AuditReply, elsewhere: AuditReply) -> None:
    apart = {cell.id: settings(cell) for cell in elsewhere.cells}
    for cell in here.cells:
        assert settings(cell) == apart[cell.id]
    assert fingerprints(here) == fingerprints(elsewhere)


def test_fingerprint_does_not_hang_on_what_was_audited_before(here: AuditReply, models_dir: Path) -> None:
    again = audit(AuditRequest(cells=CELLS[::-1], models_dir=str(models_dir)))
    assert fingerprints(again) == fingerprints(here)


def test_nothing_of_this_machine_is_in_the_effective_settings(here: AuditReply, models_dir: Path) -> None:
    for cell in here.cells:
        text = json.dumps(settings(cell))
        assert str(models_dir) not in text
        assert os.environ["VLLM_CACHE_ROOT"] not in text
        assert "0x" not in text
        assert "site-packages" not in text
        assert settings(cell)["model"] == "tiny:llama"
        assert settings(cell)["tokenizer"] == "tiny:llama"


def test_effective_settings_are_json_and_many(here: AuditReply) -> None:
    for cell in here.cells:
        assert json.loads(json.dumps(settings(cell), allow_nan=False)) == settings(cell)
        assert len(settings(cell)) > 200


def test_first_cell_of_a_process_has_its_reasons(elsewhere: AuditReply) -> None:
    """vLLM configures its logging as it resolves the first configuration of a process."""
    assert elsewhere.cells[0].id == "piecewise"
    assert "requires full-graph compilation" in str(changes(elsewhere.cells[0])[SPLITTING].reason)


# --- what cannot be evaluated ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "task", "key"),
    [
        ("tiny:llama", "shardproof_sums", None),
        ("tiny:llama", "shardproof_products", "eval.tasks"),
        ("tiny:llama?vocab=128", "shardproof_sums", "model"),
    ],
)
def test_an_evaluation_is_refused_before_an_engine_is_started(
    model: str, task: str, key: str | None, models_dir: Path
) -> None:
    folder = str(Path(__file__).parents[2] / "deploy" / "tasks")
    cell = AuditCell(
        id="cell", engine=BASE | {"model": model}, patches=ON, evaluation=Evaluation(tasks=[task], folders=[folder])
    )
    (found,) = audit(AuditRequest(cells=[cell], models_dir=str(models_dir))).cells
    assert [problem.key for problem in found.problems] == ([] if key is None else [key])
    assert (found.shape is None) is (key is not None)
