"""The vLLM platform that compiles in full on CPU."""

from __future__ import annotations

import os

from workers import environment


def register() -> str | None:
    """vLLM's ``vllm.platform_plugins`` entry point.

    Stays out of the way unless a Shardproof process asks for it, and wherever vLLM would not have chosen the CPU.
    """
    if os.environ.get(environment.FULL_COMPILE) != "1":
        return None
    from vllm.platforms import cpu_platform_plugin

    return "workers.platforms.cpu.FullCompileCpuPlatform" if cpu_platform_plugin() is not None else None
