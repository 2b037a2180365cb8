"""The machines of the Ray cluster that this process is connected to."""

from __future__ import annotations

from typing import Any

import ray

KINDS = ("CPU", "GPU", "memory", "object_store_memory")
"""Resources that are shown; Ray has more, which name addresses of machines."""


class NotConnected(RuntimeError):
    """There is no cluster, or not yet."""

    def __init__(self) -> None:
        super().__init__("this controller is not connected to a Ray cluster; its log says why, try again in a moment")


def all_nodes() -> list[dict[str, Any]]:
    """Each node: ``id``, ``alive``, ``host`` and ``resources``, in memory as bytes.

    Raises:
        NotConnected: if there is no cluster.
    """
    _check()
    return [
        {
            "id": node["NodeID"],
            "alive": node["Alive"],
            "host": node["NodeManagerHostname"],
            "resources": _shown(node["Resources"]),
        }
        for node in ray.nodes()  # type: ignore[no-untyped-call]
    ]


def available() -> dict[str, float]:
    """What nobody holds at the moment, over all nodes."""
    _check()
    return _shown(ray.available_resources())  # type: ignore[no-untyped-call]


def _check() -> None:
    if not ray.is_initialized():
        raise NotConnected


def _shown(resources: dict[str, float]) -> dict[str, float]:
    return {kind: resources[kind] for kind in KINDS if kind in resources}
