"""How much of the Ray cluster is in use."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

logger = logging.getLogger(__name__)

RESOURCES = ("CPU", "GPU")
PATIENCE_S = 2.0


@dataclass(frozen=True)
class Occupancy:
    """Of one resource: all there is, and what no run holds."""

    total: float
    free: float


def ask_ray() -> Mapping[str, Occupancy]:
    """By resource; empty where this process is not connected."""
    # Who never used Ray need not import it to learn that.
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return {}
    total, free = ray.cluster_resources(), ray.available_resources()
    return {name: Occupancy(total[name], free.get(name, 0.0)) for name in RESOURCES if total.get(name)}


class ClusterOccupancy:
    """Asks, but waits no longer than ``patience_s``: a cluster that is away may take minutes to say so."""

    def __init__(self, ask: Callable[[], Mapping[str, Occupancy]] = ask_ray, patience_s: float = PATIENCE_S) -> None:
        self._ask = ask
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._asking: threading.Thread | None = None
        self._answer: Mapping[str, Occupancy] = {}

    def __call__(self) -> Mapping[str, Occupancy]:
        """The answer; empty where there is none."""
        with self._lock:
            if self._asking is None or not self._asking.is_alive():
                self._asking = threading.Thread(target=self._keep_answer, name="occupancy", daemon=True)
                self._asking.start()
            self._asking.join(self._patience_s)
            return {} if self._asking.is_alive() else self._answer

    def _keep_answer(self) -> None:
        self._answer = {}
        try:
            self._answer = self._ask()
        except Exception:
            logger.exception("resources of the Ray cluster")
