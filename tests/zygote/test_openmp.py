"""A forked rank computes with the threads and on the cores that a rank of its own imports would."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from workers.engine.openmp import bound_to

CORES = sorted(os.sched_getaffinity(0))

RANK = """
import json, os, sys
import torch
from workers import environment
from workers.engine import openmp

for_rank = json.loads(sys.argv[1])

def computes():
    openmp.take_over()
    a = torch.ones(256, 256)
    return {"threads": torch.get_num_threads(), "cores": sorted(os.sched_getaffinity(0)), "sum": float((a @ a).sum())}

def forked(is_fork):
    read, write = os.pipe()
    if os.fork() == 0:
        environment.imported_with = dict(os.environ) if is_fork else None
        os.environ.update(for_rank)
        os.write(write, json.dumps(computes()).encode())
        os._exit(0)
    os.close(write)
    return json.loads(os.fdopen(read, "rb").read())

print(json.dumps([forked(True), forked(False)]))
"""

COMPUTES = """
import json, os, torch
print(json.dumps({"threads": torch.get_num_threads(), "cores": sorted(os.sched_getaffinity(0))}))
"""


def run(code: str, *arguments: str, **more: str) -> object:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, env=clean | more, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


@pytest.mark.slow
def test_a_fork_does_what_a_new_process_would() -> None:
    for_rank = {"OMP_NUM_THREADS": "1", "GOMP_CPU_AFFINITY": str(CORES[-1])}
    started = run(COMPUTES, **for_rank)
    assert started == {"threads": 1, "cores": [CORES[-1]]}
    taken, left = run(RANK, json.dumps(for_rank))  # type: ignore[misc]
    assert taken == started | {"sum": 256.0**3}
    # What comes of it when nothing is taken over: the machine's cores, all of them.
    assert left["cores"] == CORES
    assert left["threads"] == len(CORES) or len(CORES) == 1


@pytest.mark.slow
def test_a_rank_that_is_bound_to_nothing_is_left_alone() -> None:
    taken, left = run(RANK, "{}")  # type: ignore[misc]
    assert taken == left


@pytest.mark.parametrize(
    ("env", "cores"),
    [
        ({"GOMP_CPU_AFFINITY": "0 2 4"}, [0, 2, 4]),
        ({"OMP_PLACES": "{1,3}", "OMP_PROC_BIND": "true"}, [1, 3]),
        ({"GOMP_CPU_AFFINITY": "5", "OMP_PLACES": "{1}"}, [5]),
        ({"KMP_AFFINITY": "granularity=fine,explicit,proclist=[0,3]", "KMP_BLOCKTIME": "5"}, [0, 3]),
        ({"OMP_NUM_THREADS": "2"}, []),
        ({}, []),
    ],
)
def test_cores_are_read_as_vllm_writes_them(env: dict[str, str], cores: list[int]) -> None:
    assert bound_to(env) == cores


@pytest.mark.parametrize("written", ["0-3:2", "0,1", "all"])
def test_cores_written_in_another_way_are_not_guessed(written: str) -> None:
    with pytest.raises(ValueError, match=f"GOMP_CPU_AFFINITY={written}"):
        bound_to({"GOMP_CPU_AFFINITY": written})
