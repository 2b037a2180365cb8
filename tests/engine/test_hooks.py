"""What makes the spans of a process: hooks that change nothing, and say so where there is nothing to hook."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from workers import environment
from workers.engine import clock, hooks, internals, spans
from workers.probes.spans import Span, read_all


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Reads what was recorded since."""
    monkeypatch.setenv(environment.SPANS, str(tmp_path))
    fresh = spans.Recorder()
    monkeypatch.setattr(spans, "RECORDER", fresh)
    monkeypatch.setattr(hooks, "MISSING", [])
    monkeypatch.setattr(hooks, "_hooked", set())

    def read() -> list[Span]:
        return read_all(tmp_path)[os.getpid()].spans if read_all(tmp_path) else []

    return read


@pytest.mark.parametrize("calls", ["MAIN_CALLS", "RANK_CALLS"])
def test_all_that_is_hooked_is_there_in_this_version(calls: str) -> None:
    for path in getattr(internals, calls):
        assert callable(internals.resolve(path, "test")), path
    for name in (internals.EVENT_BEGINS, internals.EVENT_ENDS):
        assert callable(internals.resolve(f"{internals.COMPILE_EVENTS}.{name}", "test"))


def test_what_is_gone_is_told_and_the_rest_is_hooked(monkeypatch: pytest.MonkeyPatch, recorded: Any) -> None:
    kind = SimpleNamespace(method=lambda self, value: value + 1)
    monkeypatch.setattr(clock, "Probe", kind, raising=False)
    calls = {"workers.engine.clock:Gone.method": "gone", "workers.engine.clock:Probe.method": "there"}
    monkeypatch.setattr(internals, "RANK_CALLS", calls)
    hooks.watch_rank()
    hooks.watch_rank()
    assert kind.method(None, 3) == 4
    # Hooked once, however often it is asked for.
    assert [one.name for one in recorded()] == ["there"]
    (missing,) = hooks.MISSING
    assert "workers.engine.clock:Gone.method is not there" in missing


def test_a_function_of_a_module_is_replaced_where_it_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "probe", lambda: 1, raising=False)
    internals.replace("workers.engine.clock:probe", "test", lambda function: lambda: function() + 1)
    assert clock.probe() == 2  # type: ignore[attr-defined]
    with pytest.raises(internals.TargetMissing):
        internals.replace("workers.engine.clock:gone", "test", lambda function: function)


def test_a_compile_range_is_told_with_the_span(monkeypatch: pytest.MonkeyPatch, recorded: Any) -> None:
    def compile(graph: str, compile_range: Any, graph_index: int = 0) -> str:
        return graph

    monkeypatch.setattr(clock, "compile", compile, raising=False)
    monkeypatch.setattr(internals, "RANK_CALLS", {"workers.engine.clock:compile": "compile_range"})
    hooks.watch_rank()
    found: Any = clock
    assert found.compile("g", SimpleNamespace(start=1, end=512)) == "g"
    assert found.compile(graph="h", compile_range=SimpleNamespace(start=513, end=2048)) == "h"
    assert [one.arguments for one in recorded()] == [{"range": "1–512"}, {"range": "513–2048"}]


class Ours:
    def __call__(self, graph: str) -> str:
        return graph.upper()


Theirs = type("Theirs", (), {"__call__": lambda self, graph: graph, "__module__": "vllm.compilation.passes"})


def test_every_pass_has_a_span_by_its_name(monkeypatch: pytest.MonkeyPatch, recorded: Any) -> None:
    monkeypatch.setattr(hooks, "_timed_passes", set())
    monkeypatch.setattr(Ours, "__module__", "workers.probes.passes")
    monkeypatch.setattr(Ours, "__call__", Ours.__call__)
    manager: Any = SimpleNamespace(passes=[Ours(), Theirs(), Theirs(), object()], post_cleanup=Theirs())
    for _ in range(2):
        hooks.time_passes(manager)
    assert [one("g") for one in [*manager.passes[:3], manager.post_cleanup]] == ["G", "g", "g", "g"]
    assert [one.name for one in recorded()] == ["pass.shardproof.Ours", *["pass.vllm.Theirs"] * 3]


def test_a_pass_that_is_timed_has_the_cache_key_it_had() -> None:
    from workers.platforms.pass_manager import NoFixFunctionalization
    from workers.probes.passes import CountAfter

    before = NoFixFunctionalization().uuid()
    manager: Any = SimpleNamespace(passes=[NoFixFunctionalization()])
    hooks.time_passes(manager)
    assert NoFixFunctionalization().uuid() == before
    assert NoFixFunctionalization().uuid() != CountAfter(None, 1).uuid()


def test_the_first_token_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(clock, "emit", told.append)
    seen: list[list[Any]] = []
    processor = SimpleNamespace(process_outputs=lambda outputs, **_: seen.append(outputs))
    engine: Any = SimpleNamespace(output_processor=processor)
    clock.tell_first_token(engine)
    nothing, token = SimpleNamespace(new_token_ids=[]), SimpleNamespace(new_token_ids=[7])
    for outputs in ([], [nothing], [nothing, token], [token]):
        processor.process_outputs(outputs, engine_core_timestamp=1.0)
        assert told == (["first-token"] if len(seen) > 2 else [])
    assert len(seen) == 4


def test_a_version_that_shows_no_tokens_tells_of_none(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(clock, "emit", told.append)
    clock.tell_first_token(SimpleNamespace())  # type: ignore[arg-type]
    engine: Any = SimpleNamespace(output_processor=SimpleNamespace(process_outputs=lambda outputs: None))
    clock.tell_first_token(engine)
    engine.output_processor.process_outputs([SimpleNamespace()])
    assert told == []
