"""The catalogue has vLLM's own names, and the domain can read a matrix with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import vllm

from service.domain.document import parse
from service.domain.errors import MatrixError
from service.domain.matrix import expand
from workers import environment
from workers.engine import internals
from workers.probes import fallback as probe_of_fallbacks
from workers.probes.describe import describe, diagnose
from workers.protocol import Catalogue, Patch, PatchState

QUICKSTART = Path(__file__).parents[2] / "deploy/matrices/quickstart.yaml"


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return describe()


def test_to_ask_sets_nothing_here(catalogue: Catalogue) -> None:
    before = dict(os.environ)
    describe()
    assert dict(os.environ) == before


@pytest.mark.slow
def test_what_vllm_sets_for_its_ranks_is_known(tmp_path: Path) -> None:
    """Asked as a controller asks: of a process that has built no configuration yet."""
    reply = tmp_path / "reply.json"
    command = [sys.executable, "-m", "workers.engine", "describe", "--reply", str(reply)]
    subprocess.run(command, env=environment.for_question(str(tmp_path)), check=True, capture_output=True)
    found = Catalogue.model_validate_json(reply.read_bytes()).for_ranks
    platform = (Path(vllm.__file__).parent / "platforms" / "cpu.py").read_text()
    assert found["TORCHINDUCTOR_CPP_DYNAMIC_THREADS"] == "1"
    assert [name for name in found if f'"{name}"' not in platform] == []


@pytest.mark.parametrize(
    ("key", "part"),
    [
        ("model", "str"),
        ("dtype", "Literal['auto', 'half', 'float16', 'bfloat16', 'float', 'float32']"),
        ("tensor_parallel_size", "int"),
        ("pipeline_parallel_size", "int"),
        ("enforce_eager", "bool"),
        ("max_model_len", "int"),
        ("hf_overrides", "dict"),
        ("compilation_config.mode", "CompilationMode"),
        ("compilation_config.splitting_ops", "list[str] | None"),
        ("compilation_config.cudagraph_mode", "CUDAGraphMode"),
        ("compilation_config.use_inductor_graph_partition", "bool"),
        ("compilation_config.pass_config.enable_sp", "bool"),
        ("compilation_config.pass_config.fuse_gemm_comms", "bool"),
        ("compilation_config.pass_config.sp_min_token_num", "int | None"),
        ("attention_config.backend", "None"),
    ],
)
def test_setting_is_known_by_vllms_name(key: str, part: str, catalogue: Catalogue) -> None:
    assert part in catalogue.keys[key].type
    assert not catalogue.keys[key].nested


def test_dotted_keys_reach_into_what_is_nested_and_nothing_else(catalogue: Catalogue) -> None:
    nested = {key for key, info in catalogue.keys.items() if info.nested}
    assert {"compilation_config", "compilation_config.pass_config", "attention_config", "kernel_config"} <= nested
    assert {key.rpartition(".")[0] for key in catalogue.keys if "." in key} == nested


def test_nothing_private_is_offered(catalogue: Catalogue) -> None:
    assert [key for key in catalogue.keys if any(part.startswith("_") for part in key.split("."))] == []
    assert "compilation_config.pass_config.static_forward_context" not in catalogue.keys


def test_types_are_written_as_a_person_would(catalogue: Catalogue) -> None:
    unreadable = ("typing.", "NoneType", "ForwardRef", "<class")
    assert {k: i.type for k, i in catalogue.keys.items() if any(word in i.type for word in unreadable)} == {}


def test_environment_says_what_answers(catalogue: Catalogue) -> None:
    import torch
    import vllm

    found = catalogue.environment
    assert (found.vllm, found.torch) == (vllm.__version__, torch.__version__)
    assert found.cores >= 1
    assert (found.device == "cpu") is (found.devices == 0)


@pytest.mark.usefixtures("native_patches")
def test_diagnosis_has_every_patch_and_guard() -> None:
    found = diagnose()
    assert found.patches == dict.fromkeys(Patch, PatchState.NATIVE)
    assert [guard.name for guard in found.guards] == ["config-rule", "sp-pass", "async-tp-pass", "runner-helper"]
    assert False not in [guard.held for guard in found.guards]
    assert found.missing == {}
    assert found.formats_unread is False, "torch 2.13 makes the text where it is read"


@pytest.mark.usefixtures("native_patches")
def test_diagnosis_tells_a_torch_that_formats_eagerly(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch._inductor.graph

    monkeypatch.setattr(torch._inductor.graph, "LazyString", lambda func, *args: func(*args))
    assert diagnose().formats_unread is True
    monkeypatch.setattr(internals, "GRAPH", "torch._inductor.no_such_module")
    monkeypatch.setattr(probe_of_fallbacks, "GRAPH", "torch._inductor.no_such_module")
    assert diagnose().formats_unread is None


@pytest.mark.usefixtures("native_patches")
def test_diagnosis_names_what_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch._inductor.graph
    from vllm.compilation.passes.fusion import sequence_parallelism

    with monkeypatch.context() as moved:
        moved.delattr(sequence_parallelism, "SequenceParallelismPass")
        moved.delattr(torch._inductor.graph, "FALLBACK_ALLOW_LIST")
        found = diagnose()
    assert found.patches == dict.fromkeys(Patch, PatchState.TARGET_MISSING)
    assert found.missing[Patch.FALLBACK_FAST_PATH] == "torch._inductor.graph:FALLBACK_ALLOW_LIST"
    assert "guard sp-pass: " in found.missing[Patch.FULL_GRAPH_SP]
    assert "SequenceParallelismPass is not there" in found.missing[Patch.FULL_GRAPH_SP]
    assert diagnose().missing == {}


# --- what the domain makes of it -------------------------------------------------------------------------------------


def test_quickstart_has_its_four_cells(catalogue: Catalogue) -> None:
    matrix = expand(parse(QUICKSTART.read_text()), catalogue)
    assert [cell.name for cell in matrix.cells] == [
        "replicated",
        "sp-full-graph",
        "sp-piecewise-asked",
        "sp-guard-removed",
    ]
    assert {cell.engine["tensor_parallel_size"] for cell in matrix.cells} == {2}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("tensor_paralel_size: 2", "The nearest known key is tensor_parallel_size"),
        (
            "compilation_config.pass_config.enable_spp: true",
            "The nearest known key is compilation_config.pass_config.enable_s",
        ),
        ("tensor_parallel_size: two", "tensor_parallel_size expects an integer"),
        ("compilation_config.splitting_ops: [1]", "compilation_config.splitting_ops expects a list"),
        (
            "compilation_config.pass_config.enable_sp: 'yes'",
            "compilation_config.pass_config.enable_sp expects true or false",
        ),
        ("dtype: float33", "dtype expects"),
        ("max_model_len: [1]", "max_model_len expects"),
        ("enforce_eager: 1", "enforce_eager expects true or false"),
        ("compilation_config: fast", "compilation_config expects a mapping"),
    ],
)
def test_domain_refuses_with_the_real_catalogue(line: str, said: str, catalogue: Catalogue) -> None:
    text = f"name: wrong\nengine:\n  model: tiny:llama\n  {line}\n"
    with pytest.raises(MatrixError) as refused:
        expand(parse(text), catalogue)
    assert said in str(refused.value)
    assert str(refused.value).startswith("line 4, column 3")
