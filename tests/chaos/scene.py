"""What is killed in a fault test: two Ray nodes on this machine, and a served controller that uses them."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx
from ray.cluster_utils import Cluster
from sqlalchemy import func, select

from service.domain.lifecycle import State
from service.settings import Settings
from service.store import open_store
from service.store.models import CellRow, SweepRow
from service.store.records import SweepState
from workers.recording import Recording

COMMAND = Path(sys.executable).with_name("shardproof")
NODE_CPUS = 2
"""Of each node; a cell with two ranks takes as many."""

SPEED = 25.0
"""An engine then lives for about a second."""

UNENDED = 6
"""So many cells wait or run while something is still to be killed."""

PATIENCE_S = 90.0

DETECTION = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 4}
"""How soon Ray knows that a node is gone."""


class Scene:
    """Use in a ``with`` block, at whose end everything is shut down in order.

    ``submitted``: cells of each sweep that was accepted, by its id. ``unasked``: last words of controllers that ended
    although nobody killed them. ``cells``: how many there are to be at least.
    """

    def __init__(self, home: Path, scratch: Path, cells: int, recording: Path) -> None:
        self.scratch = scratch
        self.submitted: dict[str, int] = {}
        self.unasked: list[str] = []
        self._home = home
        self._wanted = cells
        self._size = max(5, cells // 6)
        self._recording = recording
        (self._engine, *_) = Recording(recording).engines
        self._store = open_store(Settings(home=home, database_url=None).store_url)
        self._server: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Scene:
        options: dict[str, Any] = {"temp_dir": str(self.scratch / "ray"), "include_dashboard": False}
        # Not a process for each slot before there is a run for it.
        system = {"prestart_worker_first_driver": False, **DETECTION}
        self._cluster = Cluster(
            initialize_head=True,
            shutdown_at_exit=False,
            head_node_args={"num_cpus": NODE_CPUS, "_system_config": system, **options},
        )
        self._second = self._cluster.add_node(num_cpus=NODE_CPUS)
        self.serve()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._server is not None:
            self._server.terminate()
            self._server.wait(PATIENCE_S)
        self._cluster.shutdown()
        self._store.close()

    # --- the controller ----------------------------------------------------------------------------------------------

    def serve(self) -> None:
        """Start a controller in place of the one that is gone, and wait until it answers."""
        if self._server is not None:
            self._server.wait(PATIENCE_S)
        self._url = f"http://127.0.0.1:{_free_port()}"
        with (self._home / "serve.log").open("ab") as log:
            self._server = subprocess.Popen(
                [COMMAND, "serve"], env=self._environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        _until(lambda: self._answers() or self._ended_unasked(), PATIENCE_S, f"{self._url} did not answer")

    def _environment(self) -> dict[str, str]:
        return os.environ | {
            "SHARDPROOF_HOME": str(self._home),
            "SHARDPROOF_PORT": self._url.rpartition(":")[2],
            "SHARDPROOF_RAY_ADDRESS": str(self._cluster.address),
            "SHARDPROOF_NULL_ENGINE": str(self._recording),
            "SHARDPROOF_NULL_ENGINE_SPEED": str(SPEED),
            "SHARDPROOF_ALLOW_VARIABLES": '["CELL"]',
        }

    def _answers(self) -> bool:
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(f"{self._url}/healthz", timeout=5).is_success
        return False

    def _ended_unasked(self) -> bool:
        return self._server is not None and self._server.poll() is not None

    def _serve_if_gone(self) -> None:
        if self._ended_unasked():
            self.unasked.append("\n".join((self._home / "serve.log").read_text(errors="replace").splitlines()[-20:]))
            self.serve()

    # --- sweeps ------------------------------------------------------------------------------------------------------

    def keep_busy(self) -> None:
        """See to it that a controller is there and has something to do."""
        self._serve_if_gone()
        if self._unended_cells() < UNENDED:
            self._submit()

    def submit_the_rest(self) -> None:
        while sum(self.submitted.values()) < self._wanted:
            self._submit()

    def _submit(self) -> None:
        engine = {key: value for key, value in self._engine.items() if not key.startswith("patches.")}
        first = sum(self.submitted.values())
        numbers = list(range(first, first + self._size))
        matrix = {"name": "chaos", "engine": engine, "matrix": {"env.CELL": numbers}, "checks": ["audit", "compile"]}
        answer = httpx.post(f"{self._url}/v1/sweeps", json=matrix, timeout=PATIENCE_S)
        assert answer.status_code == httpx.codes.CREATED, answer.text
        self.submitted[answer.json()["id"]] = len(numbers)

    def _unended_cells(self) -> int:
        ended = [state for state in State if state.ended]
        with self._store.reading() as session:
            return session.scalars(select(func.count()).where(CellRow.state.not_in(ended))).one()

    def wait_for_the_end(self, patience_s: float) -> None:
        """Until every sweep has ended."""

        def ended() -> bool:
            self._serve_if_gone()
            with self._store.reading() as session:
                active = select(func.count()).where(SweepRow.state == SweepState.ACTIVE)
                return session.scalars(active).one() == 0

        _until(ended, patience_s, "sweeps did not end")

    # --- the second node ---------------------------------------------------------------------------------------------

    def kill_raylet(self) -> int:
        """Kill the raylet of the second node and add a node in its place. The first is the one drivers talk to."""
        (raylet,) = self._second.all_processes["raylet"]
        os.kill(raylet.process.pid, signal.SIGKILL)
        self._cluster.remove_node(self._second, allow_graceful=False)
        self._second = self._cluster.add_node(num_cpus=NODE_CPUS)
        return int(raylet.process.pid)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _until(condition: Callable[[], bool], patience_s: float, what: str) -> None:
    deadline = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} within {patience_s:g} s")
        time.sleep(0.2)
