"""What every process of an arm does before it compiles: patches as asked, and the fallback probe in place."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import vllm  # noqa: F401  (installs its own fast path where it has one)
from torch._inductor import codecache

from workers import environment, processes
from workers.bench import chain
from workers.engine import hooks, plugin
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


# --- precompiled headers ---------------------------------------------------------------------------------------------

COMPILE = """
import sys
import torch
from workers.engine.internals import keep_headers
if sys.argv[1:]:
    keep_headers(sys.argv[1])
torch.compile(lambda x: x.sin() + 1)(torch.ones(64))
"""
COMPILER = """#!/bin/sh
case "$*" in *c++-header*) echo header >> "$(dirname "$0")/made";; esac
exec g++ "$@"
"""


def kept() -> list[str]:
    return [codecache._HEADER_DIR, codecache._HEADER_LOCK_DIR]


def test_headers_are_kept_where_the_arm_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And where it says nothing they stay where PyTorch has them."""
    monkeypatch.setattr(codecache, "_HEADER_DIR", "theirs")
    monkeypatch.setattr(codecache, "_HEADER_LOCK_DIR", "theirs/locks")
    monkeypatch.setenv(environment.PATCHES, "{}")
    monkeypatch.delenv(environment.HEADERS, raising=False)
    plugin.register()
    assert kept() == ["theirs", "theirs/locks"]
    monkeypatch.setenv(environment.HEADERS, str(tmp_path))
    plugin.register()
    assert kept() == [str(tmp_path), str(tmp_path / "locks")]
    monkeypatch.delattr(codecache, "_HEADER_DIR")
    monkeypatch.setattr(hooks, "MISSING", [])
    plugin.register()
    assert not hasattr(codecache, "_HEADER_DIR")
    assert [text for text in hooks.MISSING if "_HEADER_DIR" in text and "precompiled headers" in text] == hooks.MISSING
    assert hooks.MISSING


@pytest.mark.slow
def test_a_warm_start_finds_the_headers_of_the_cold_one(tmp_path: Path) -> None:
    """It has another temporary folder, in which PyTorch of itself makes them once more."""
    compiler, kept = tmp_path / "compiler", str(tmp_path / "kept")
    compiler.write_text(COMPILER)
    compiler.chmod(0o755)

    def start(name: str, *arguments: str) -> int:
        """How many headers were made."""
        temporary = tmp_path / name
        temporary.mkdir()
        env = environment.clean() | {"TMPDIR": str(temporary), "CXX": str(compiler)}
        # What vector instructions work is not the question; to try takes seconds.
        env |= {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache"), "TORCHINDUCTOR_VEC_ISA_OK": "1"}
        before = _lines(tmp_path / "made")
        subprocess.run([sys.executable, "-c", COMPILE, *arguments], env=env, check=True, timeout=300)
        return _lines(tmp_path / "made") - before

    assert start("cold", kept) == 1
    assert start("warm", kept) == 0
    assert start("left-alone") == 1


def _lines(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0
