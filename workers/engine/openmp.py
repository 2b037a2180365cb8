"""Threads and cores of a rank that was forked: vLLM tells them to each rank by variables that OpenMP has read before.

vLLM (``vllm.utils.ompmultiprocessing``) starts a rank with ``OMP_NUM_THREADS`` and its cores among the variables.
OpenMP reads them as it is loaded, which in a forked rank was in the process it was forked from. Left at that a rank
would compute with a thread for each core of the machine, on all of them: slower by far than the rank of a server, and
with other code, since Inductor writes loops for the number of threads.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from workers import environment

THREADS = "OMP_NUM_THREADS"
CORES = {
    "KMP_AFFINITY": re.compile(r".*\bproclist=\[(\d+(?:,\d+)*)\]"),
    "GOMP_CPU_AFFINITY": re.compile(r"(\d+(?: \d+)*)"),
    "OMP_PLACES": re.compile(r"\{(\d+(?:,\d+)*)\}"),
}
"""Where the cores stand, by the library that is preloaded, and how vLLM writes them; the first that is set counts."""


def take_over() -> None:
    """In a forked rank, before it computes anything: have what vLLM set for it hold.

    The rank's threads share its cores, where OpenMP would bind each to one of them.
    """
    if environment.imported_with is None or THREADS not in os.environ:
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
    for name, form in CORES.items():
        if written := env.get(name):
            found = form.fullmatch(written)
            if found is None:
                raise ValueError(f"{name}={written} is not how this version of vLLM was known to write a rank's cores")
            return [int(core) for core in re.findall(r"\d+", found[1])]
    return []
