"""The proxy around Inductor's allow list, and the states of the patch that installs it."""

from __future__ import annotations

import copy
import itertools
import pickle
from typing import Any

import pytest
import torch._inductor.graph
import torch._inductor.lowering
import vllm  # noqa: F401  (installs its own fast path where it has one)

from workers.engine.internals import allow_fallback
from workers.patches import establish, fallback_fast_path
from workers.patches.fallback_fast_path import WITNESS, FallbackAllowList, unwrapped
from workers.protocol import Patch, PatchMode, PatchState

NAME = "FALLBACK_ALLOW_LIST"
lowering: Any = torch._inductor.lowering
graph: Any = torch._inductor.graph
MODULES = (lowering, graph)


def ask(mode: PatchMode) -> PatchState:
    return fallback_fast_path.establish(mode)


def bindings() -> list[Any]:
    return [getattr(module, NAME) for module in MODULES]


@pytest.fixture(autouse=True)
def _as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test meets the bindings as vLLM left them, and a patch that has not been asked for yet."""
    for module in MODULES:
        monkeypatch.setattr(module, NAME, getattr(module, NAME))
    monkeypatch.setattr(fallback_fast_path, "_found", [])
    ask(PatchMode.NATIVE)


@pytest.fixture
def without_native(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A version without a fast path of its own: both modules hold Inductor's list."""
    raw = unwrapped(lowering.FALLBACK_ALLOW_LIST)
    monkeypatch.setattr(fallback_fast_path, "_found", [])
    for module in MODULES:
        monkeypatch.setattr(module, NAME, raw)
    return raw


# --- the proxy -----------------------------------------------------------------------------------------------------


class Reads:
    """Not a name, but it reads like one."""

    def __str__(self) -> str:
        return "vllm::all_reduce"


@pytest.mark.parametrize("name", ["vllm::all_reduce", "vllm_aiter::anything", "vllm::"])
def test_proxy_contains_every_operation_of_vllms_namespaces(name: str) -> None:
    inner: set[object] = set()
    assert name in FallbackAllowList(inner)
    assert name not in inner


@pytest.mark.parametrize(
    "name", ["aten::mm", "vllm", "vllm_ir::rms_norm", "xvllm::all_reduce", "", None, 7, ("vllm::",)]
)
def test_proxy_delegates_every_other_name(name: object) -> None:
    assert name not in FallbackAllowList({"torchvision::nms"})
    assert name in FallbackAllowList({name})


def test_proxy_adds_discards_counts_and_iterates_over_the_inner_list() -> None:
    inner = {"a::b"}
    proxy = FallbackAllowList(inner)
    proxy.add("c::d")
    assert inner == {"a::b", "c::d"}
    assert (len(proxy), sorted(proxy)) == (2, ["a::b", "c::d"])
    proxy.discard("a::b")
    assert "a::b" not in proxy
    assert inner == {"c::d"}
    assert proxy.union({"e::f"}) == {"c::d", "e::f"}
    assert not FallbackAllowList(set()), "as an empty set"


def test_proxy_takes_names_only() -> None:
    assert Reads() not in FallbackAllowList(set())


def test_proxies_around_proxies_are_all_taken_off() -> None:
    inner = {"a::b"}
    assert unwrapped(FallbackAllowList(FallbackAllowList(inner))) is inner
    assert unwrapped(inner) is inner


def test_proxy_of_a_list_without_an_attribute_has_it_neither() -> None:
    with pytest.raises(AttributeError, match="no_such_method"):
        _ = FallbackAllowList(set()).no_such_method


@pytest.mark.parametrize(
    "duplicate",
    [copy.copy, copy.deepcopy, lambda proxy: pickle.loads(pickle.dumps(proxy))],
    ids=["copy", "deep", "pickle"],
)
def test_proxy_can_be_copied(duplicate: Any) -> None:
    twin = duplicate(FallbackAllowList({"a::b"}))
    assert isinstance(twin, FallbackAllowList)
    assert sorted(twin) == ["a::b"]
    assert WITNESS in twin


def test_half_made_proxy_does_not_recurse() -> None:
    with pytest.raises(AttributeError, match="_inner"):
        _ = object.__new__(FallbackAllowList).anything


# --- states --------------------------------------------------------------------------------------------------------


def test_this_version_has_the_fast_path() -> None:
    assert ask(PatchMode.NATIVE) is PatchState.NATIVE
    assert ask(PatchMode.ON) is PatchState.NATIVE
    assert all(WITNESS in found and not isinstance(found, FallbackAllowList) for found in bindings())


def test_off_takes_the_native_one_away_in_both_places() -> None:
    assert ask(PatchMode.OFF) is PatchState.REMOVED
    for found in bindings():
        assert WITNESS not in found
        assert "vllm_aiter::anything" not in found
        assert len(found) > 0, "Inductor's own entries stay"


def test_native_after_off_gives_back_the_very_object() -> None:
    before = lowering.FALLBACK_ALLOW_LIST
    ask(PatchMode.OFF)
    assert lowering.FALLBACK_ALLOW_LIST is not before
    assert ask(PatchMode.NATIVE) is PatchState.NATIVE
    assert all(found is before for found in bindings())


def test_a_binding_that_was_made_before_vllm_replaced_the_list_is_replaced_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, NAME, unwrapped(lowering.FALLBACK_ALLOW_LIST))
    assert WITNESS not in graph.FALLBACK_ALLOW_LIST
    ask(PatchMode.ON)
    assert all(WITNESS in found for found in bindings())


def test_on_brings_it_to_a_version_that_has_none(without_native: Any) -> None:
    assert ask(PatchMode.NATIVE) is PatchState.ABSENT
    assert ask(PatchMode.ON) is PatchState.APPLIED
    assert all(isinstance(found, FallbackAllowList) for found in bindings())
    assert bindings()[0] is bindings()[1]
    assert ask(PatchMode.OFF) is PatchState.REMOVED
    assert all(found is without_native for found in bindings())


def test_applied_twice_is_applied_once(without_native: Any) -> None:
    assert [ask(PatchMode.ON), ask(PatchMode.ON)] == [PatchState.APPLIED] * 2
    assert lowering.FALLBACK_ALLOW_LIST._inner is without_native


def test_what_was_added_through_the_proxy_stays(without_native: Any) -> None:
    ask(PatchMode.ON)
    allow_fallback("shardproof::a_test")
    ask(PatchMode.OFF)
    assert all("shardproof::a_test" in found for found in bindings())
    without_native.discard("shardproof::a_test")


@pytest.mark.parametrize("modes", list(itertools.product(PatchMode, repeat=3)), ids="-".join)
@pytest.mark.parametrize("native", [True, False], ids=["native", "none"])
def test_any_state_can_follow_any_other(
    native: bool, modes: tuple[PatchMode, ...], request: pytest.FixtureRequest
) -> None:
    if not native:
        request.getfixturevalue("without_native")
    states = [ask(mode) for mode in modes]
    left_alone = PatchState.NATIVE if native else PatchState.ABSENT
    made_sure = PatchState.NATIVE if native else PatchState.APPLIED
    expected = {PatchMode.ON: made_sure, PatchMode.OFF: PatchState.REMOVED, PatchMode.NATIVE: left_alone}
    assert states == [expected[mode] for mode in modes]
    there = modes[-1] is PatchMode.ON or (native and modes[-1] is PatchMode.NATIVE)
    assert [WITNESS in found for found in bindings()] == [there, there]


# --- what may be missing -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", MODULES, ids=["lowering", "graph"])
@pytest.mark.parametrize("mode", PatchMode)
def test_missing_list_is_reported_and_not_raised(module: Any, mode: PatchMode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fallback_fast_path, "_found", [])
    monkeypatch.delattr(module, NAME)
    assert establish({Patch.FALLBACK_FAST_PATH: mode}) == {Patch.FALLBACK_FAST_PATH: PatchState.TARGET_MISSING}
    assert not hasattr(module, NAME), "nothing is put where nothing was"


class Opaque:
    """A fast path that does not show the list inside it."""

    def __contains__(self, name: object) -> bool:
        return True


def test_foreign_fast_path_that_cannot_be_opened_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fallback_fast_path, "_found", [])
    monkeypatch.setattr(lowering, NAME, Opaque())
    assert ask(PatchMode.OFF) is PatchState.TARGET_MISSING
    assert ask(PatchMode.ON) is PatchState.NATIVE
