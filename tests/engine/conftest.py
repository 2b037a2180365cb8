"""Tests that import vLLM. The environment is set before that happens, so this module imports neither."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

SCRATCH = tempfile.mkdtemp(prefix="shardproof-tests-")
atexit.register(shutil.rmtree, SCRATCH, ignore_errors=True)

os.environ.update(
    SHARDPROOF_FULL_COMPILE="1",
    VLLM_NO_USAGE_STATS="1",
    VLLM_CACHE_ROOT=os.path.join(SCRATCH, "cache"),
    # A hub that cannot be reached is asked six times before it is given up.
    HF_HUB_OFFLINE="1",
)


@pytest.fixture(scope="session")
def models_dir() -> Path:
    """Where the ``tiny:`` models of this session are built; removed with the scratch folder."""
    return Path(SCRATCH) / "models"


@pytest.fixture
def native_patches() -> Any:
    """Leaves both patches as this version has them, whatever a test asked for."""
    from workers.patches import establish
    from workers.protocol import Patch, PatchMode

    native = dict.fromkeys(Patch, PatchMode.NATIVE)
    establish(native)
    yield
    establish(native)


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The recorder the taps write to, empty and enabled."""
    from workers.probes import boundary, eager, recorder, taps

    from .graphs import CAPACITY

    fresh = recorder.Recorder(CAPACITY)
    fresh.enabled = True
    for module in (recorder, taps, eager, boundary):
        monkeypatch.setattr(module, "RECORDER", fresh)
    return fresh
