"""No compile state crosses from a zygote to its forks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

LOOK = """
import json, os, sys, tempfile
from workers.engine import internals
from workers.zygote import preload

old, new = sys.argv[1:3]
os.environ["TMPDIR"] = old
os.environ["VLLM_CACHE_ROOT"] = os.path.join(old, "vllm")
preload.load()
os.environ["TMPDIR"] = new
os.environ["VLLM_CACHE_ROOT"] = os.path.join(new, "vllm")

def lies_in_old():
    for name, module in [(name, module) for name, module in sys.modules.items() if not name.endswith("main__")]:
        for attribute, value in list(vars(module).items()) if module else []:
            if isinstance(value, (str, os.PathLike)) and old in str(value):
                yield f"{name}.{attribute}"

before = sorted(lies_in_old())
preload.forget()
held = internals.compiled_here()
after = sorted(lies_in_old())
files = [os.path.join(folder, name) for folder, _, names in os.walk(old) for name in names]
import torch
torch.compile(lambda x: x + 1)(torch.ones(8))
print(json.dumps({"before": before, "after": after, "files": files, "held": held, "then": internals.compiled_here()}))
"""

HARMLESS = {
    "dill.session.TEMPDIR",  # where interactive sessions are saved
    "torch._inductor.wrapper_benchmark.PROFILE_DIR",  # used by generated code that benchmarks itself
    "torch._inductor.wrapper_benchmark.PROFILE_PATH",
    "vllm.model_executor.model_loader.weight_utils.temp_dir",  # locks of downloads
}


@pytest.fixture(scope="module")
def looked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    old, new = (tmp_path_factory.mktemp(name) for name in ("of-the-zygote", "of-the-engine"))
    done = subprocess.run(
        [sys.executable, "-c", LOOK, str(old), str(new)], stdout=subprocess.PIPE, text=True, check=True
    )
    found: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_nothing_lies_in_the_zygote_s_folders_any_more(looked: dict[str, list[str]]) -> None:
    assert set(looked["after"]) - HARMLESS == set()


def test_it_did_before(looked: dict[str, list[str]]) -> None:
    """Else nothing was looked at."""
    assert "torch._inductor.codecache._HEADER_DIR" in looked["before"]
    assert "tempfile.tempdir" in looked["before"]


def test_nothing_was_compiled_or_written(looked: dict[str, list[str]]) -> None:
    assert looked["held"] == []
    assert [Path(path).name for path in looked["files"]] == []


def test_what_was_compiled_would_be_seen(looked: dict[str, list[str]]) -> None:
    assert "compile times" in looked["then"]
    assert any("C++" in what or "Python" in what for what in looked["then"])
    assert "precompiled headers" in looked["then"]
