"""Threads and cores of a rank that was forked: vLLM tells them to each rank by variables that OpenMP has read before.

vLLM (``vllm.utils.ompmultiprocessing``) starts a rank with ``OMP_NUM_THREADS`` and its cores among the variables.
OpenMP reads them as it is loaded, which in a forked rank was in the process it was forked from. Left at that a rank
would compute with a thread for each core of the machine, on all of them: slower by far than the rank of a server, and
with other code, since Inductor writes loops for the number of threads.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from workers import environment

THREADS = "OMP_NUM_THREADS"
CORES = ("GOMP_CPU_AFFINITY", "OMP_PLACES")
"""Where the cores stand, as numbers between spaces, or in braces with commas between; the first that is set counts."""


def take_over() -> None:
    """In a forked rank, before it computes anything: have what vLLM set for it hold.

    The rank's threads share its cores, where OpenMP would bind each to one of them.
    """
    before = environment.imported_with
    if before is None or os.environ.get(THREADS) == before.get(THREADS):
        return
    import torch

    cores = bound_to(os.environ)
    if cores:
        os.sched_setaffinity(0, cores)
    torch.set_num_threads(int(os.environ[THREADS]))


def bound_to(env: Mapping[str, str]) -> list[int]:
    """The cores that ``env`` binds a rank to; empty where it binds it to none.

    Raises:
        ValueError: where they are written in another way.
    """
    written = next((env[name] for name in CORES if env.get(name)), "")
    return [int(core) for core in written.strip("{}").replace(",", " ").split()]
