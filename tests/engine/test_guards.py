"""The four guards: they hold in this version, not with the patch off, and a missing one is not a broken one."""

from __future__ import annotations

from typing import Any

import pytest

from workers.engine.internals import TargetMissing, resolve
from workers.patches import establish, full_graph_sp
from workers.probes import guards
from workers.probes.guards import check_guards
from workers.protocol import Guard, Patch, PatchMode

pytestmark = pytest.mark.usefixtures("native_patches")

NAMES = ["config-rule", "sp-pass", "async-tp-pass", "runner-helper"]
SAYS = {
    "config-rule": "splitting_ops became []",
    "sp-pass": "asserts: SequenceParallelismPass requires full-graph compilation",
    "async-tp-pass": "asserts: AsyncTPPass requires full-graph compilation",
    "runner-helper": "asserts: Sequence parallelism requires full-graph compilation",
}


def has_async_tp() -> bool:
    try:
        resolve(guards.ASYNC_TP_PASS, "test it")
    except TargetMissing:
        return False
    return True


def asked() -> dict[str, Guard]:
    found = check_guards()
    assert [guard.name for guard in found] == NAMES
    return {guard.name: guard for guard in found}


def test_all_hold_natively() -> None:
    for name, guard in asked().items():
        if name == "async-tp-pass" and not has_async_tp():
            assert guard.held is None
            assert "AsyncTPPass is not there" in guard.detail
        else:
            assert (guard.held, guard.detail) == (True, SAYS[name])


def test_none_holds_with_the_patch_off() -> None:
    establish({Patch.FULL_GRAPH_SP: PatchMode.OFF})
    found = asked()
    expected = dict.fromkeys(NAMES, False) | ({} if has_async_tp() else {"async-tp-pass": None})
    assert {name: guard.held for name, guard in found.items()} == expected
    assert found["config-rule"].detail == f"splitting_ops became {[guards.ATTENTION_OP]}"
    for name in ("sp-pass", "runner-helper"):
        assert found[name].detail == "answered True for a piecewise configuration"


def test_all_hold_with_ours_in_place_of_the_native_ones() -> None:
    full_graph_sp.impose()
    assert [guard.name for guard in check_guards() if guard.held is False] == []
    assert asked()["sp-pass"].held


@pytest.mark.parametrize("broken", NAMES)
def test_one_broken_guard_is_the_only_one_that_does_not_hold(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if broken == "async-tp-pass" and not has_async_tp():
        pytest.skip("no async TP on this platform")
    path, name, harmless = {
        "config-rule": ("vllm.config.compilation:CompilationConfig", "set_splitting_ops_for_v1", lambda self: None),
        "sp-pass": (guards.SP_PASS, "is_applicable_for_range", lambda self, compile_range: True),
        "async-tp-pass": (guards.ASYNC_TP_PASS, "is_applicable_for_range", lambda self, compile_range: True),
        "runner-helper": ("vllm.v1.worker.utils:", "is_residual_scattered_for_sp", lambda config, tokens: True),
    }[broken]
    owner: Any = resolve(path, "test it") if path[-1] != ":" else __import__("vllm.v1.worker.utils", fromlist=["_"])
    monkeypatch.setattr(owner, name, harmless)
    assert [guard.name for guard in check_guards() if guard.held is False] == [broken]


@pytest.mark.parametrize("constant", ["CONFIG_RULE", "SP_PASS", "ASYNC_TP_PASS", "RUNNER_HELPER"])
def test_a_guard_that_is_not_there_is_unknown_and_says_what_is_missing(
    constant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"{getattr(guards, constant)}_moved"
    monkeypatch.setattr(guards, constant, path)
    unknown = [guard for guard in check_guards() if guard.held is None and path in guard.detail]
    assert [guard.name for guard in unknown] == [
        NAMES[["CONFIG", "SP", "ASYNC", "RUNNER"].index(constant.split("_")[0])]
    ]


def test_a_version_without_sps_settings_is_unknown_and_not_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**overrides: Any) -> Any:
        raise ValueError("enable_sp: Unexpected keyword argument")

    monkeypatch.setattr(guards, "piecewise_config", refuse)
    guard = asked()["config-rule"]
    assert guard.held is None
    assert "enable_sp: Unexpected keyword argument" in guard.detail
