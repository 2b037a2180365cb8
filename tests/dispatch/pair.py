"""A Ray cluster of two nodes with one slot each, on this machine."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import psutil
from ray.cluster_utils import Cluster

RANKS = 2


@contextlib.contextmanager
def two_nodes(folder: Path) -> Iterator[str]:
    """Its address. ``folder`` has a short path: Ray puts sockets below it."""
    node = {"num_cpus": 1, "include_dashboard": False}
    system = {"prestart_worker_first_driver": False}
    head = {**node, "temp_dir": str(folder / "ray"), "_system_config": system}
    found = Cluster(initialize_head=True, shutdown_at_exit=False, head_node_args=head)
    try:
        found.add_node(**node)
        yield str(found.address)
    finally:
        found.shutdown()


def playing() -> list[psutil.Process]:
    """Processes that emit a recording, and their supervisors. Ray's nodes are children of this process."""
    return [process for process in _below() if "workers.null_engine" in _line(process)]


def engine_of(machine: str) -> list[psutil.Process]:
    """The main process and the ranks of the null engine on the machine that ``leads``, or that ``follows``."""
    found = [process for process in playing() if "workers.supervisor" not in _line(process)]
    return [process for process in found if ("/machine-1/" in _line(process)) == (machine == "follows")]


def actors(name: str) -> list[psutil.Process]:
    return [process for process in _below() if _line(process).startswith(f"ray::{name}")]


def _below() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


def _line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
