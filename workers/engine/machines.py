"""An engine whose ranks are on several machines, by vLLM's executor of processes.

The machine that leads has the engine, with the first ranks; on each of the others an executor without an engine starts
the next ones. All meet at an address of the first. None of these settings enters vLLM's cache key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workers.protocol import Portion, Settings

if TYPE_CHECKING:
    from vllm.config import VllmConfig


def settings(portion: Portion | None) -> Settings:
    """vLLM's settings for ``portion``; none where one machine has all ranks."""
    if portion is None:
        return {}
    return {
        "distributed_executor_backend": "mp",
        "nnodes": portion.count,
        "node_rank": portion.number,
        "master_addr": portion.address,
        "master_port": portion.port,
    }


def have_ranks(config: VllmConfig) -> None:
    """Start the ranks of a machine that does not lead, as ``vllm serve --headless`` does, and wait until one ends.

    Raises:
        SystemExit: then.
    """
    from vllm.v1.executor.multiproc_executor import MultiprocExecutor

    executor = MultiprocExecutor(config, monitor_workers=False)
    executor.start_worker_monitor(inline=True)
    raise SystemExit("a rank of this machine has ended")
