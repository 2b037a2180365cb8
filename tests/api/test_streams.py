"""Events by Server-Sent Events, over a real connection."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from httpx_sse import ServerSentEvent, connect_sse
from store.samples import SWEEP, add_sweep, run_spec

from api import server
from api.client import StoringController
from api.test_problems import assert_problem
from service.api import streams
from service.app import create_app
from service.domain.lifecycle import State
from service.settings import Settings
from service.store import Store, repositories
from service.store.records import NewEvent

PATIENCE = httpx.Timeout(10.0, read=20.0)


@pytest.fixture
def url(store: Store) -> Iterator[str]:
    add_sweep(store)
    with store.transaction() as session:
        repositories.create_run(session, SWEEP, "c0", run_spec("run-1"), State.LEASED)
        repositories.set_run_state(session, "run-1", State.RUNNING)
    with server.serving(create_app(Settings(), store, StoringController(store))) as url:
        yield url


def happen(store: Store, *at: float, run_id: str | None = "run-1", **data: Any) -> None:
    with store.transaction() as session:
        repositories.add_events(session, [NewEvent(SWEEP, moment, "phase", "c0", run_id, data=data) for moment in at])


def end_run(store: Store) -> None:
    with store.transaction() as session:
        repositories.finish_run(session, "run-1", State.FINISHED, None)


def end_sweep(store: Store) -> None:
    with store.transaction() as session:
        repositories.end_sweep(session, SWEEP)


def stream(url: str, path: str, **headers: str) -> Iterator[ServerSentEvent]:
    with httpx.Client(timeout=PATIENCE) as client, connect_sse(client, "GET", url + path, headers=headers) as source:
        assert source.response.status_code == 200
        yield from source.iter_sse()


def moments(events: list[ServerSentEvent]) -> list[float]:
    return [event.json()["at"] for event in events if event.event != "end"]


def test_events_come_as_they_happen_and_the_end_is_said(url: str, store: Store) -> None:
    happen(store, 1.0, name="dynamo")
    following = stream(url, "/v1/runs/run-1/events/stream")
    first = next(following)
    assert (first.event, first.json()["data"], first.json()["run_id"]) == ("phase", {"name": "dynamo"}, "run-1")
    assert first.id == str(first.json()["id"])
    happen(store, 2.0)
    assert moments([next(following)]) == [2.0]
    happen(store, 3.0)
    end_run(store)
    rest = list(following)
    assert moments(rest) == [3.0]
    assert (rest[-1].event, rest[-1].data, rest[-1].id) == ("end", "{}", rest[-2].id)


def test_who_was_cut_off_goes_on_behind_the_last_event(url: str, store: Store) -> None:
    happen(store, *map(float, range(6)))
    first = stream(url, "/v1/runs/run-1/events/stream")
    seen = [next(first) for _ in range(3)]
    first.close()
    end_run(store)
    rest = list(stream(url, "/v1/runs/run-1/events/stream?after=0", **{"Last-Event-ID": seen[-1].id}))
    assert moments(seen + rest) == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert len(moments(list(stream(url, "/v1/runs/run-1/events/stream")))) == 6, "without it all come again"
    (last,) = stream(url, "/v1/runs/run-1/events/stream", **{"Last-Event-ID": rest[-1].id})
    assert last.event == "end"


def test_more_events_than_are_read_at_once(url: str, store: Store) -> None:
    count = streams.BATCH * 2 + 1
    happen(store, *map(float, range(count)))
    end_run(store)
    assert moments(list(stream(url, "/v1/runs/run-1/events/stream"))) == [float(at) for at in range(count)]


def test_a_sweep_s_stream_has_the_events_of_all_its_runs(url: str, store: Store) -> None:
    happen(store, 1.0, run_id=None)
    happen(store, 2.0)
    end_run(store)
    following = stream(url, f"/v1/sweeps/{SWEEP}/events/stream")
    assert moments([next(following), next(following)]) == [1.0, 2.0]
    happen(store, 3.0, run_id="run-2")
    end_sweep(store)
    assert moments(list(following)) == [3.0]


def test_two_readers_of_one_run_each_get_everything(url: str, store: Store) -> None:
    found: list[list[float]] = []
    readers = [
        threading.Thread(target=lambda: found.append(moments(list(stream(url, "/v1/runs/run-1/events/stream")))))
        for _ in range(2)
    ]
    for reader in readers:
        reader.start()
    happen(store, 1.0, 2.0)
    end_run(store)
    for reader in readers:
        reader.join(30)
    assert found == [[1.0, 2.0]] * 2


def test_numbers_that_json_does_not_have_stay_readable(url: str, store: Store) -> None:
    happen(store, 1.0, score=float("inf"), text="two\nlines\r\nand é")
    end_run(store)
    event = next(stream(url, "/v1/runs/run-1/events/stream"))
    assert json.loads(event.data)["data"] == {"score": "Infinity", "text": "two\nlines\r\nand é"}


@pytest.mark.parametrize("last", ["x", "-1", str(2**63), ""])
def test_a_last_event_that_is_none(url: str, last: str) -> None:
    response = httpx.get(f"{url}/v1/runs/run-1/events/stream", headers={"Last-Event-ID": last})
    problem = assert_problem(response, 422, "invalid-request")
    assert [item["path"] for item in problem["errors"]] == ["header.last-event-id"]


def test_streams_are_bounded_and_a_closed_one_makes_place(
    url: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "MOST_STREAMS", 1)
    happen(store, 1.0)
    first = stream(url, "/v1/runs/run-1/events/stream")
    next(first)
    problem = assert_problem(httpx.get(f"{url}/v1/runs/run-1/events/stream"), 503, "too-many-streams")
    assert "list of events" in problem["detail"]
    first.close()
    end_run(store)
    for _ in range(200):
        response = httpx.get(f"{url}/v1/runs/run-1/events/stream")
        if response.is_success:
            return
        threading.Event().wait(0.05)
    raise AssertionError(response.text)


SERVE = """
import sys, uvicorn
from service.app import create_app
from service.dispatch.controller import Controller
from service.settings import Settings
from service.store import open_store
store, settings = open_store(sys.argv[1]), Settings()
uvicorn.run(create_app(settings, store, Controller(settings, store)), port=int(sys.argv[2]), log_level="error")
"""


@pytest.mark.slow
def test_a_server_that_is_told_to_stop_does_not_wait_for_its_readers(store: Store, tmp_path: Path) -> None:
    add_sweep(store)
    happen(store, 1.0)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    database = f"sqlite:///{tmp_path / 'shardproof.db'}"
    process = subprocess.Popen([sys.executable, "-c", SERVE, database, str(port)])
    try:
        following = stream(f"http://127.0.0.1:{port}", f"/v1/sweeps/{SWEEP}/events/stream")
        for _ in range(600):
            with contextlib.suppress(httpx.ConnectError):
                assert moments([next(following)]) == [1.0]
                break
            following = stream(f"http://127.0.0.1:{port}", f"/v1/sweeps/{SWEEP}/events/stream")
            threading.Event().wait(0.1)
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        with contextlib.suppress(httpx.RemoteProtocolError):
            assert [event.event for event in following] == [], "it broke off; the end was not said"
    finally:
        process.kill()
        process.wait()
