"""What an engine must not inherit: who asks, and what changes what it compiles."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from service.domain import reserved
from workers import environment
from workers.protocol import ROUNDING, ArmSpec, BatchPlan, Fault, Patch, PatchMode, Role, Trial


@pytest.mark.parametrize(
    "name",
    ["CI", "TORCHDYNAMO_DISABLE", "TORCHINDUCTOR_CACHE_DIR", "TORCH_LOGS", "VLLM_CACHE_ROOT", "RAY_ADDRESS"],
)
def test_a_cell_has_one_verdict_whoever_asks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "1")
    assert name not in environment.clean()


@pytest.mark.parametrize("name", ["PATH", "CIRCLE", "CUDA_VISIBLE_DEVICES", "HF_TOKEN"])
def test_what_the_machine_needs_is_kept(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "kept")
    assert environment.clean()[name] == "kept"


def arm(*faults: Fault | None) -> ArmSpec:
    return ArmSpec(
        role=Role.REPLICATED,
        key="k",
        engine={},
        patches=dict.fromkeys(Patch, PatchMode.NATIVE),
        env={},
        batch=BatchPlan(),
        taps=True,
        folder="folder",
        cache_root="cache",
        models_dir="models",
        timeout_s=1.0,
        trials=[Trial(name=f"trial-{number}", batch=BatchPlan(), fault=fault) for number, fault in enumerate(faults)],
    )


@pytest.mark.parametrize(
    ("faults", "through"),
    [
        ([], "0"),
        ([None], "0"),
        ([Fault(kind=ROUNDING, seed=1), None, Fault(kind=ROUNDING, seed=2)], "0"),
        ([Fault(kind="zeroed")], "1"),
        ([Fault(kind=ROUNDING), Fault(kind="zeroed")], "1"),
    ],
    ids=["no trial", "again", "rounding errors", "a fault", "a fault after rounding errors"],
)
def test_the_residual_is_read_through_taps_only_where_a_fault_changes_it(
    faults: list[Fault | None], through: str
) -> None:
    """A rounding error is put into the weights: a graph that is measured must not differ from the one compared with."""
    assert environment.for_arm(arm(*faults), 1, "events")[environment.FAULTS] == through


USER_S = {
    "HOME": "home",
    "XDG_CACHE_HOME": "xdg",
    "TMPDIR": "tmp",
    "VLLM_CACHE_ROOT": "vllm",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TRITON_CACHE_DIR": "triton-cache",
    "TRITON_HOME": "triton",
    "TORCH_EXTENSIONS_DIR": "extensions",
    "FLASHINFER_WORKSPACE_BASE": "flashinfer",
    "DG_JIT_CACHE_DIR": "deep-gemm",
    "TILELANG_CACHE_DIR": "tilelang",
    "TVM_FFI_CACHE_DIR": "tvm",
    "CUDA_CACHE_PATH": "cuda",
}
"""Where a user's compile caches may lie."""

ASK = """
import json, os
from torch._inductor.runtime.cache_dir_utils import cache_dir, triton_cache_dir
from torch.utils.cpp_extension import get_default_build_root
answers = {"inductor": cache_dir(), "triton by inductor": triton_cache_dir(0)}
answers["extensions"] = os.environ.get("TORCH_EXTENSIONS_DIR") or get_default_build_root()
try:
    from triton import knobs
except ImportError:
    pass
else:
    answers |= {"triton": knobs.cache.dir, "triton's dumps": knobs.cache.dump_dir}
print(json.dumps(answers))
"""


@pytest.fixture
def user_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, folder in USER_S.items():
        (tmp_path / folder).mkdir()
        monkeypatch.setenv(name, str(tmp_path / folder))
    return tmp_path


def places(given: dict[str, str]) -> dict[str, str]:
    """What PyTorch and Triton themselves say where they would write, given this environment."""
    command = [sys.executable, "-c", ASK]
    answer = subprocess.run(command, env=given, capture_output=True, text=True, check=True).stdout
    return dict(json.loads(answer))


@pytest.mark.slow
def test_no_engine_sees_the_user_s_compile_caches(user_s: Path) -> None:
    given = environment.for_arm(arm(), 1, "events")
    named = {*environment.CACHES_OF_THE_GRAPH, *environment.CACHES_OF_KERNELS, "VLLM_CACHE_ROOT"}
    assert {name: given[name] for name in named if not given[name].startswith("cache")} == {}
    found = places(given)
    mine = {what: place for what, place in found.items() if place.startswith(str(user_s)) and what != "triton's dumps"}
    assert mine == {}
    assert {"inductor", "triton by inductor", "extensions"} <= found.keys()


@pytest.mark.slow
def test_without_that_they_would_be_seen(user_s: Path) -> None:
    """The control: the questions above are those that tell."""
    found = places(dict(os.environ))
    assert {what for what, place in found.items() if not place.startswith(str(user_s))} == set()
    # Taking the variables away is not enough: what is then used lies in the home or temporary folder.
    found = places(environment.clean())
    assert [what for what, place in found.items() if place.startswith(str(user_s))]


def test_what_was_downloaded_is_kept(user_s: Path) -> None:
    given = environment.for_arm(arm(), 1, "events")
    assert given["FLASHINFER_CUBIN_DIR"] == str(user_s / "flashinfer" / ".cache" / "flashinfer" / "cubins")
    assert given["XDG_CACHE_HOME"] == str(user_s / "xdg")


def test_arms_that_are_not_timed_share_the_kernels_they_compile(user_s: Path) -> None:
    untimed = [
        environment.for_arm(arm().model_copy(update={"cache_root": root, "toolchain": "tools"}), 1, "events")
        for root in ("cache-1", "cache-2")
    ]
    timed = environment.for_arm(arm(), 1, "events")
    for name in (*environment.CACHES_OF_KERNELS, environment.HEADERS):
        one, other = (given[name] for given in untimed)
        assert one == other
        assert one.startswith("tools")
        assert timed[name].startswith("cache")
    for name in environment.CACHES_OF_THE_GRAPH:
        one, other = (given[name] for given in untimed)
        assert one != other


def test_no_cell_can_give_an_arm_the_caches_of_another() -> None:
    folders = {*environment.CACHES_OF_THE_GRAPH, *environment.CACHES_OF_KERNELS, "VLLM_CACHE_ROOT", "TMPDIR"}
    assert folders == reserved.OF_THE_ARM


def test_the_one_variable_of_ours_that_a_cell_may_set_is_read_by_the_engine() -> None:
    source = (Path(environment.__file__).parent / "platforms" / "cpu.py").read_text()
    assert {name for name in reserved.ALLOWED if f'"{name}"' not in source} == set()


def test_an_arm_is_told_where_its_spans_go_and_its_trace_if_it_is_asked_for() -> None:
    given = environment.for_arm(arm(), 1, "events")
    assert given[environment.SPANS] == arm().folder
    assert environment.TRACE not in given
    traced = environment.for_arm(arm().model_copy(update={"traces": True}), 1, "events")
    assert traced[environment.TRACE] == f"{arm().folder}/torch_trace"


def test_vllm_copies_caches_and_our_variables_to_its_ray_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked of vLLM itself. Its Ray workers are children of Ray, and have nothing of the engine's environment."""
    from vllm.ray.ray_env import get_env_vars_to_copy

    ours = {"VLLM_CACHE_ROOT", *environment.CACHES_OF_THE_GRAPH, *environment.CACHES_OF_KERNELS, environment.PATCHES}
    for backend, copied in (("ray", True), ("mp", False)):
        with monkeypatch.context() as patch:
            asked = arm().model_copy(update={"engine": {"distributed_executor_backend": backend}})
            for name, value in environment.for_arm(asked, 2, "events").items():
                patch.setenv(name, value)
            assert (ours <= get_env_vars_to_copy()) is copied
