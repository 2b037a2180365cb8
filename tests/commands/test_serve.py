"""``shardproof serve`` as an operator sees it: ready, measured, logged, firing what was missed. No engine starts."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from service.domain.schedule import Missed
from service.store import open_store, repositories
from service.store.schedule_records import ScheduleFields

pytestmark = pytest.mark.slow

COMMAND = Path(sys.executable).with_name("shardproof")
PATIENCE_S = 120.0
NO_INTERPRETER = "/nowhere/python"


@dataclass(frozen=True)
class Served:
    url: str
    log: Path

    def until(self, done: Callable[[httpx.Client], Any]) -> Any:
        """What ``done`` gives once that is something; not being answered is nothing."""
        deadline = time.monotonic() + PATIENCE_S
        with httpx.Client(base_url=self.url) as client:
            while True:
                try:
                    found = done(client)
                except httpx.TransportError:
                    found = None
                if found:
                    return found
                assert time.monotonic() < deadline, self.log.read_text()
                time.sleep(0.1)

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("home")
    store = open_store(f"sqlite:///{home / 'shardproof.db'}")
    fields = ScheduleFields("0 0 1 1 *", "UTC", Missed.ONCE, False, {"name": "yearly", "engine": {}})
    with store.transaction() as session:
        repositories.create_schedule(session, "yearly", fields, datetime(2020, 6, 1, tzinfo=UTC))
    store.close()
    settings, port = home / "shardproof.toml", free_port()
    settings.write_text(
        f'home = "{home}"\nport = {port}\npreload = false\nlog_format = "json"\npython = "{NO_INTERPRETER}"\n'
    )
    log = home / "serve.log"
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("SHARDPROOF_")}
    with log.open("w") as file:
        process = subprocess.Popen(
            [COMMAND, "serve"], env=inherited | {"SHARDPROOF_CONFIG": str(settings)}, stderr=file
        )
        yield Served(f"http://127.0.0.1:{port}", log)
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)


def test_it_lives_before_it_is_ready_and_becomes_ready(served: Served) -> None:
    served.until(lambda client: client.get("/healthz").status_code == 200)
    answers = []

    def ready(client: httpx.Client) -> bool:
        answers.append(client.get("/readyz"))
        return answers[-1].status_code == 200

    served.until(ready)
    assert {answer.json()["code"] for answer in answers[:-1]} <= {"not-ready"}


def test_the_slots_are_those_of_its_ray(served: Served) -> None:
    served.until(lambda client: client.get("/readyz").status_code == 200)

    def slots(client: httpx.Client) -> dict[str, float]:
        return {
            sample.name: sample.value
            for family in text_string_to_metric_families(client.get("/metrics").text)
            for sample in family.samples
            if sample.labels.get("resource") == "CPU"
        }

    cores = len(os.sched_getaffinity(0))
    assert served.until(slots) == {"shardproof_slots": cores, "shardproof_slots_used": 0}


def test_what_was_missed_fires_and_tells_why_there_is_no_sweep(served: Served) -> None:
    def fired(client: httpx.Client) -> list[dict[str, Any]]:
        fires = client.get("/v1/schedules/yearly/fires").json()["fires"]
        return [fire for fire in fires if fire["state"] != "claimed"]

    (fire,) = served.until(fired)
    assert (fire["cause"], fire["state"], fire["sweep_id"]) == ("missed", "failed", None)
    assert NO_INTERPRETER in fire["detail"]
    told = [line for line in served.lines if line.get("schedule") == "yearly" and line.get("state") == "failed"]
    assert [line["level"] for line in told] == ["warning"]


def test_every_line_of_its_log_is_an_object_requests_too(served: Served) -> None:
    served.until(lambda client: client.get("/v1/nowhere").status_code == 404)
    served.until(lambda client: any("/v1/nowhere" in line["event"] for line in served.lines))
    assert all({"event", "level", "logger", "timestamp"} <= line.keys() for line in served.lines)
