"""What every process of an arm does before it compiles: patches as asked, and the fallback probe in place."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import vllm  # noqa: F401  (installs its own fast path where it has one)

from workers import environment, processes
from workers.bench import chain
from workers.engine import plugin
from workers.probes.fallback import NOT_INSTALLED, PROBE
from workers.protocol import Patch, PatchMode


@pytest.fixture(autouse=True)
def _as_in_an_arm(native_patches: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """But this process outlives the test, so it does not die with its parent, nor keep our passes."""
    monkeypatch.setattr(processes, "die_with_parent", lambda: None)
    monkeypatch.setattr(plugin, "_hook_passes", lambda: None)
    PROBE.remove()
    yield
    PROBE.remove()
    PROBE.forget()


@pytest.mark.parametrize(("mode", "counts"), [(PatchMode.OFF, (3, 0)), (PatchMode.ON, (0, 3))])
def test_what_is_compiled_afterwards_is_counted(
    mode: PatchMode, counts: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(environment.PATCHES, json.dumps({Patch.FALLBACK_FAST_PATH: mode}))
    plugin.register()
    PROBE.forget()
    chain.make(2).compile()
    told = PROBE.told(0)
    assert (told.calls, told.fast_calls) == counts


def test_in_a_process_that_is_not_ours_nothing_is_put(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(environment.PATCHES, raising=False)
    plugin.register()
    assert PROBE.told(0).reason == NOT_INSTALLED
