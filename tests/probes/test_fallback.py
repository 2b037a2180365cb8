"""The fallback probe on real compilations: what took the slow path, and what its text cost. Never how long."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch._inductor.graph

from workers.bench import chain
from workers.bench.fallback import _read
from workers.patches import fallback_fast_path
from workers.probes.fallback import NOT_INSTALLED, FallbackProbe
from workers.protocol import PatchMode, RankFallback

graph: Any = torch._inductor.graph
ISSUES = (graph.MissingOperatorWithDecomp, graph.MissingOperatorWithoutDecomp)
RANK = 3


@pytest.fixture(autouse=True)
def _patch_as_found() -> Iterator[None]:
    yield
    fallback_fast_path.establish(PatchMode.NATIVE)


@pytest.fixture
def probe() -> Iterator[FallbackProbe]:
    probe = FallbackProbe()
    probe.install()
    yield probe
    probe.remove()


def lowered(probe: FallbackProbe, depth: int, mode: PatchMode) -> tuple[chain.Chain, RankFallback]:
    """A chain of ``depth``, compiled and run; what the probe has seen of it."""
    fallback_fast_path.establish(mode)
    probe.forget()
    subject = chain.make(depth)
    subject.compile()
    return subject, probe.told(RANK)


def names(subject: chain.Chain) -> set[str]:
    return {op.name() for op in (subject.add_norm, subject.reduce, subject.last)}


def eagerly(func: Any, *args: Any) -> Any:
    """In place of the text that is made when somebody reads it, as older PyTorch did."""
    return func(*args)


def test_unpatched_every_operation_takes_the_slow_path_once(probe: FallbackProbe) -> None:
    subject, told = lowered(probe, 3, PatchMode.OFF)
    assert {op.op: op.calls for op in told.ops} == dict.fromkeys(names(subject), 1)
    assert (told.rank, told.calls, told.fast_calls, told.reason) == (RANK, 3, 0, None)


def test_patched_none_does(probe: FallbackProbe) -> None:
    _, told = lowered(probe, 3, PatchMode.ON)
    assert (told.calls, told.fast_calls, told.ops) == (0, 3, [])
    assert (told.characters, told.slow_path_s) == (0, 0.0)


def test_without_a_reader_this_torch_makes_no_text(probe: FallbackProbe) -> None:
    _, told = lowered(probe, 3, PatchMode.OFF)
    assert (told.eager, told.calls, told.characters, told.slow_path_s) == (False, 3, 0, 0.0)


def test_text_grows_with_the_depth_where_it_is_made(probe: FallbackProbe) -> None:
    """More than in proportion: the sum of a layer stands in it twice for each time the next layer's does."""
    with _read():
        characters = [_of_last(*lowered(probe, depth, PatchMode.OFF)) for depth in (3, 4, 5)]
        _, patched = lowered(probe, 5, PatchMode.ON)
    assert characters[1] > 1.8 * characters[0]
    assert characters[2] > 1.8 * characters[1]
    assert patched.characters == 0


def _of_last(subject: chain.Chain, told: RankFallback) -> int:
    assert told.eager is False, "that somebody reads it makes no torch an eager one"
    (last,) = [op for op in told.ops if op.op == subject.last.name()]
    assert last.slow_path_s > 0
    return last.characters


def test_an_eager_torch_is_known_by_what_it_does(probe: FallbackProbe, monkeypatch: pytest.MonkeyPatch) -> None:
    assert probe.told(RANK).eager is False
    monkeypatch.setattr(graph, "LazyString", eagerly)
    assert probe.told(RANK).eager is True
    _, told = lowered(probe, 3, PatchMode.OFF)
    assert told.characters is not None
    assert told.characters > 1000
    # The probe's own question is no part of the count.
    assert {op.op.split("::")[0] for op in told.ops} == {chain.NAMESPACE}


def test_asking_leaves_logging_as_it_was(probe: FallbackProbe) -> None:
    before = logging.root.manager.disable
    probe.told(RANK)
    assert logging.root.manager.disable == before


def test_nothing_compiled_is_zero_and_not_unknown(probe: FallbackProbe) -> None:
    told = probe.told(RANK)
    assert (told.calls, told.fast_calls, told.characters, told.reason) == (0, 0, 0, None)


def test_what_is_compiled_already_counts_no_more(probe: FallbackProbe) -> None:
    subject, _ = lowered(probe, 3, PatchMode.OFF)
    probe.forget()
    subject.compile()
    assert probe.told(RANK).calls == 0


def test_twice_installed_counts_once(probe: FallbackProbe) -> None:
    probe.install()
    _, told = lowered(probe, 3, PatchMode.OFF)
    assert told.calls == 3


def test_removed_it_leaves_nothing_behind(probe: FallbackProbe) -> None:
    probe.remove()
    assert graph.make_fallback is torch._inductor.lowering.make_fallback
    assert not any("operator_str" in vars(issue) for issue in ISSUES)


# --- where it cannot see ---------------------------------------------------------------------------------------------


def unknown(told: RankFallback) -> bool:
    return (told.calls, told.fast_calls, told.slow_path_s, told.characters, told.eager) == (None,) * 5


def test_not_installed_is_unknown_and_not_zero() -> None:
    probe = FallbackProbe()
    _, told = lowered(probe, 3, PatchMode.OFF)
    assert unknown(told)
    assert told.reason == NOT_INSTALLED


@pytest.mark.parametrize("name", ["make_fallback", "FALLBACK_ALLOW_LIST", "MissingOperatorWithoutDecomp"])
def test_a_name_that_is_gone_is_the_reason(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(graph, name)
    probe = FallbackProbe()
    probe.install()
    told = probe.told(RANK)
    assert unknown(told)
    assert told.reason is not None
    assert f"torch._inductor.graph:{name} is not there" in told.reason


def test_a_fallback_made_by_another_way_is_unknown(probe: FallbackProbe, monkeypatch: pytest.MonkeyPatch) -> None:
    """The names are all there, but the lowering no longer comes by them."""
    monkeypatch.setattr(graph.GraphLowering, "call_function", lambda self, target, args, kwargs: None)
    told = probe.told(RANK)
    assert unknown(told)
    assert told.reason is not None
    assert told.reason.endswith("did not come by make_fallback")


def test_a_lowering_that_takes_other_arguments_is_unknown(
    probe: FallbackProbe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph.GraphLowering, "call_function", lambda self, call: None)
    told = probe.told(RANK)
    assert unknown(told)
    assert "TypeError" in str(told.reason)
