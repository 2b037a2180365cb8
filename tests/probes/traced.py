"""A small program that PyTorch compiles, in a process of its own, traced; its clock may be made to jump."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from workers import environment

PROGRAM = """
import json, os, sys, time
monotonic, wall, wall_ns = time.monotonic, time.time, time.time_ns
offset = 0.0
if sys.argv[1] == "jumping":
    def jump():
        global offset
        offset = 3600.0 if offset <= 0 else -3600.0
        return offset
    time.time = lambda: wall() + jump()
    time.time_ns = lambda: wall_ns() + int(jump() * 1e9)
begin = monotonic()
import torch
from workers.engine import hooks, internals
from workers.engine.spans import span
hooks.watch_compiler()
for number in range(3):
    torch._dynamo.reset()
    with span(f"round {number}"):
        torch.compile(lambda x: (x.sin() @ x.cos()).relu(), backend="aot_eager")(torch.ones(4 + number, 4 + number))
from torch._dynamo.utils import compilation_time_metrics as metrics
seconds = {name: sum(times) for name, times in metrics.items()}
found = {"begin": begin, "end": monotonic(), "pid": os.getpid(), "torch_s": seconds, "missing": hooks.MISSING}
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Traced:
    """``begin`` and ``end`` on the monotonic clock. ``torch_s``: PyTorch's timers. ``log``: its structured trace."""

    folder: Path
    begin: float
    end: float
    pid: int
    torch_s: dict[str, float]
    missing: list[str]

    @property
    def log(self) -> Path:
        (path,) = (self.folder / environment.TRACE_FOLDER).glob("*.log")
        return path


@cache
def steady() -> Traced:
    """One for all tests of this process."""
    folder = Path(tempfile.mkdtemp(prefix="shardproof-tests-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return run(folder)


def run(folder: Path, *, jumping: bool = False) -> Traced:
    trace = str(folder / environment.TRACE_FOLDER)
    own = {environment.SPANS: str(folder), environment.TRACE: trace, "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache")}
    # PyTorch's own variable is not set: the trace has to be there also where PyTorch was imported before.
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "jumping" if jumping else "steady"],
        env=os.environ | own,
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    return Traced(folder, **json.loads(done.stdout.splitlines()[-1]))
