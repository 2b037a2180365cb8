"""A sweep followed from outside: real controller, Ray, actors and child processes; engines are played by a script."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import httpx
import pytest
from dispatch.scripted import Asked, controlling, settings_in, short_folder, submit, until

from api import server
from service.app import create_app
from service.client import Client, RequestRefused
from workers.protocol import Check

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

COLD = (Check.COMPILE,)


@dataclass
class Told:
    """What a client saw of a sweep with one fault, in which it cancelled a cell that hung."""

    client: Client
    sweep: str
    home: Path
    events: list[dict[str, Any]] = field(default_factory=list)
    report: dict[str, Any] = field(default_factory=dict)

    def cell(self, name: str) -> dict[str, Any]:
        return next(cell for cell in self.report["cells"] if cell["name"] == name)

    def run(self, name: str) -> str:
        answer = httpx.get(f"{self.client.url}/v1/cells/{self.sweep}/id-{name}").json()
        return str(answer["run"])


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    # Where pytest keeps its folders has to be settled before: the temporary folder is another one inside.
    tmp_path_factory.getbasetemp()
    with short_folder() as folder:
        settings = settings_in(folder / "home")
        with controlling(settings) as (controller, store):
            app = create_app(settings, store, controller)
            with server.serving(app) as url, Client(url) as client:
                asked = [
                    Asked("healthy", COLD),
                    Asked("dead", COLD, env={"DIE": "1"}),
                    Asked("hangs", COLD, env={"GATE": str(folder / "never")}),
                ]
                told = Told(client, submit(controller, settings, *asked), settings.home)
                _follow(told)
                yield told


def _follow(told: Told) -> None:
    hangs = "id-hangs"
    for event in told.client.events(told.sweep):
        told.events.append(event)
        if (event["cell_id"], event["kind"], event["data"].get("name")) == (hangs, "phase", "dynamo"):
            told.client.cancel(told.sweep, hangs)
    told.report = told.client.report(told.sweep)


def test_it_came_to_its_end_with_every_event_once(told: Told) -> None:
    assert told.report["sweep"]["state"] == "ended"
    ids = [event["id"] for event in told.events]
    assert ids == sorted(set(ids))
    listed = httpx.get(f"{told.client.url}/v1/sweeps/{told.sweep}/events?limit=1000").json()["events"]
    assert told.events == listed
    started = {event["cell_id"] for event in told.events if event["kind"] == "arm-started"}
    assert started == {"id-healthy", "id-dead", "id-hangs"}


def test_what_was_cancelled_is_cancelled_and_the_rest_is_not(told: Told) -> None:
    states = {cell["name"]: cell["state"] for cell in told.client.cells(told.sweep)}
    assert states["hangs"] == "cancelled"
    assert states["healthy"] == "finished"
    assert told.cell("dead")["ok"] is False
    with pytest.raises(RequestRefused) as caught:
        told.client.cancel(told.sweep, "id-hangs")
    assert (caught.value.status, caught.value.code) == (409, "wrong-state")


def test_the_files_and_logs_of_its_arms_can_be_read(told: Told, tmp_path: Path) -> None:
    run = told.run("healthy")
    paths = {item["path"]: item["bytes"] for item in told.client.artifacts(run)}
    assert {"cold/engine.log", "cold/spec.json", "cold/result.json"} <= paths.keys()
    for path, size in paths.items():
        told.client.download(run, path, tmp_path / "file")
        assert (tmp_path / "file").stat().st_size == size
    logs = httpx.get(f"{told.client.url}/v1/runs/{run}/logs").json()["logs"]
    assert [log["arm"] for log in logs] == ["cold", "warm"]


def test_its_phases_are_those_of_its_arms(told: Told) -> None:
    starts = httpx.get(f"{told.client.url}/v1/runs/{told.run('healthy')}/phases").json()["starts"]
    assert [start["arm"] for start in starts] == ["cold", "warm"]
    for start in starts:
        assert len(start["ranks"]) == 2
        for rank in start["ranks"]:
            assert {"launch", "exit"} <= {phase["name"] for phase in rank["phases"]}
            assert sum(phase["s"] for phase in rank["phases"]) + rank["unaccounted_s"] == pytest.approx(rank["total_s"])


def test_its_junit_file_counts_the_fault_and_says_it_in_words(told: Told) -> None:
    root = ElementTree.fromstring(told.client.export(told.sweep, "junit"))
    summary = told.report["summary"]
    wrong = [
        case for case in root.iter("testcase") if case.find("failure") is not None or case.find("error") is not None
    ]
    assert int(str(root.get("tests"))) == summary["cells"] == 3
    assert (
        int(str(root.get("failures"))) + int(str(root.get("errors"))) == summary["cells"] - summary["ok"] == len(wrong)
    )
    (dead,) = [case for case in wrong if case.get("name") == "dead"]
    said = str(next(found for found in dead if found.tag in ("failure", "error")).get("message"))
    assert said in told.cell("dead")["reasons"]
    assert "cold" in said


def test_the_nodes_are_those_of_its_ray(told: Told) -> None:
    (node,) = httpx.get(f"{told.client.url}/v1/nodes").json()["nodes"]
    assert node["alive"]


def test_what_is_run_again_has_a_second_attempt(told: Told) -> None:
    """The last test of the module: it changes the sweep."""
    told.client.rerun(told.sweep, ["id-dead"])
    until(lambda: told.client.sweep(told.sweep)["state"] == "ended")
    runs = httpx.get(f"{told.client.url}/v1/cells/{told.sweep}/id-dead/runs").json()["runs"]
    assert [run["attempt"] for run in runs] == [1, 2]
    seen = told.events[-1]["id"]
    later = list(told.client.events(told.sweep, after=seen))
    assert {event["run_id"] for event in later} == {runs[1]["id"]}
