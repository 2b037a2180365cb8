"""The client against a real server: also one that breaks off, restarts and refuses."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from api import server
from api.client import StoringController
from store.samples import SWEEP, add_sweep, evidence, finish, run_spec

from service import client as module
from service.api import streams
from service.app import create_app
from service.client import Client, RequestRefused, Unreachable
from service.settings import Settings
from service.store import Store, open_store, repositories
from service.store.records import NewEvent

MATRIX = b"name: quickstart\nengine:\n  model: tiny:llama\n"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{tmp_path / 'shardproof.db'}")
    yield store
    store.close()


@pytest.fixture
def client(store: Store, tmp_path: Path) -> Iterator[Client]:
    app = create_app(Settings(home=tmp_path), store, StoringController(store))
    with server.serving(app) as url, Client(url) as client:
        yield client


def happen(store: Store, *at: float) -> None:
    with store.transaction() as session:
        repositories.add_events(session, [NewEvent(SWEEP, moment, "phase", "c0") for moment in at])


def end(store: Store) -> None:
    with store.transaction() as session:
        repositories.end_sweep(session, SWEEP)


def test_a_sweep_is_submitted_watched_and_its_report_read(client: Client, store: Store) -> None:
    sweep = client.submit(MATRIX)
    assert client.sweep(sweep)["name"] == "quickstart"
    assert client.report(sweep)["summary"]["cells"] == 2
    assert client.export(sweep, "html").startswith(b"<!doctype html>")
    assert [cell["id"] for cell in client.cells(sweep)] == ["c0", "c1"]


def test_a_list_of_many_pages_is_one(client: Client, store: Store) -> None:
    ids = add_sweep(store, cells=120)
    assert [cell["id"] for cell in client.cells(SWEEP)] == ids


def test_what_is_refused_says_what_where_and_what_to_do(client: Client) -> None:
    with pytest.raises(RequestRefused) as caught:
        client.submit(b"\n  \nengine: {}\n")
    assert (caught.value.status, caught.value.code) == (422, "invalid-matrix")
    assert "line 3, column 1 engine: there is no name. Add name:" in str(caught.value)
    with pytest.raises(RequestRefused) as caught:
        client.report("nope")
    assert caught.value.code == "unknown-sweep"


def test_a_file_of_a_run_is_downloaded(client: Client, store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "artifacts" / SWEEP / "cells" / "c0" / "run-1" / "cold"
    folder.mkdir(parents=True)
    (folder / "a file.bin").write_bytes(b"\0" * 200_000)
    spec = run_spec("run-1")
    own = spec.arms[0].model_copy(update={"folder": str(folder)})
    add_sweep(store)
    with store.transaction() as session:
        repositories.create_run(session, SWEEP, "c0", spec.model_copy(update={"arms": [own]}))
    assert [run["id"] for run in client.runs(SWEEP)] == ["run-1"]
    (artifact,) = client.artifacts("run-1")
    client.download("run-1", artifact["path"], tmp_path / "here")
    assert (tmp_path / "here").read_bytes() == b"\0" * 200_000
    with pytest.raises(RequestRefused, match="no artifact"):
        client.download("run-1", "cold/none", tmp_path / "there")
    assert not (tmp_path / "there").exists()


def test_waiting_tells_each_event_and_gives_the_report(client: Client, store: Store) -> None:
    add_sweep(store, cells=1)
    finish(store, "c0", evidence())
    happen(store, 1.0, 2.0)
    told: list[float] = []

    def tell(event: dict[str, Any]) -> None:
        told.append(event["at"])
        if event["at"] == 2.0:
            happen(store, 3.0)
            end(store)

    report = client.wait(SWEEP, tell)
    assert told == [1.0, 2.0, 3.0]
    assert report["sweep"]["state"] == "ended"


def test_what_keeps_a_stream_open_is_no_event(client: Client, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "PING_S", 0.05)
    add_sweep(store)
    happen(store, 1.0)
    told = []
    for event in client.events(SWEEP):
        told.append(event["at"])
        if event["at"] == 1.0:
            threading.Timer(0.3, lambda: (happen(store, 2.0), end(store))).start()
    assert told == [1.0, 2.0]


def test_a_controller_that_is_restarted_is_waited_for(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAUSE_S", 0.05)
    add_sweep(store)
    happen(store, 1.0, 2.0)
    settings = Settings(home=tmp_path)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    again = threading.Event()

    def restart() -> None:
        again.wait(30)
        happen(store, 3.0)
        end(store)
        with served_at(port, settings, store):
            finished.wait(30)

    finished = threading.Event()
    restarting = threading.Thread(target=restart)
    restarting.start()
    told: list[float] = []
    with contextlib.ExitStack() as first, Client(f"http://127.0.0.1:{port}", backoff_s=0.01) as client:
        first.enter_context(served_at(port, settings, store))
        for event in client.events(SWEEP):
            told.append(event["at"])
            if event["at"] == 2.0:
                first.close()
                again.set()
    finished.set()
    restarting.join(30)
    assert told == [1.0, 2.0, 3.0]


@contextlib.contextmanager
def served_at(port: int, settings: Settings, store: Store) -> Iterator[None]:
    with server.serving(create_app(settings, store, StoringController(store)), port):
        yield


def test_nobody_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE_S", 0.01)
    monkeypatch.setattr(module, "PATIENCE_S", 0.1)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with Client(f"http://127.0.0.1:{port}", backoff_s=0.01) as client:
        with pytest.raises(Unreachable, match="is `shardproof serve` running there"):
            client.report("x")
        with pytest.raises(Unreachable):
            list(client.events("x"))


class Unreliable(BaseHTTPRequestHandler):
    """Answers with what the test put down for each request, in turn: a status, or ``None`` to hang up."""

    protocol_version = "HTTP/1.1"
    answers: list[int | None]
    seen: list[tuple[str, str | None]]
    keys: ClassVar[list[str | None]] = []

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.seen.append((self.path, self.headers.get("Idempotency-Key")))
        self.keys.append(self.headers.get("Authorization"))
        status = self.answers.pop(0)
        if status is None:
            self.close_connection = True
            return
        body = json.dumps({"id": "sweep-1", "title": "told", "code": "a-code", "detail": "why"}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextlib.contextmanager
def unreliable(*answers: int | None) -> Iterator[tuple[Client, list[tuple[str, str | None]]]]:
    handler = type("Handler", (Unreliable,), {"answers": list(answers), "seen": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as stranger:
        thread = threading.Thread(target=stranger.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        with Client(f"http://127.0.0.1:{stranger.server_address[1]}", backoff_s=0.01) as client:
            yield client, handler.seen  # type: ignore[attr-defined]
        stranger.shutdown()
        thread.join(30)


@pytest.mark.parametrize("trouble", [None, 502, 503, 504, 429])
def test_submitting_is_tried_again_under_one_key(trouble: int | None) -> None:
    with unreliable(trouble, trouble, 201) as (client, seen):
        assert client.submit(MATRIX) == "sweep-1"
        client_keys = [key for _, key in seen]
        assert len(client_keys) == 3
        assert len(set(client_keys)) == 1
        assert client_keys[0]


def test_each_submission_has_a_key_of_its_own_unless_it_is_given() -> None:
    with unreliable(201, 201, 201) as (client, seen):
        client.submit(MATRIX)
        client.submit(MATRIX)
        client.submit(MATRIX, idempotency_key="mine")
    first, second, third = (key for _, key in seen)
    assert first != second
    assert third == "mine"


def test_terms_and_key_are_sent_where_they_are_given() -> None:
    with unreliable(201, 201) as (client, seen):
        client.submit(MATRIX)
        with Client(client.url, "sp_secret") as other:
            other.submit(MATRIX, priority=3, max_parallel=2)
    assert [path for path, _ in seen] == ["/v1/sweeps", "/v1/sweeps?priority=3&max_parallel=2"]
    assert Unreliable.keys[-2:] == [None, "Bearer sp_secret"]


def test_what_must_not_happen_twice_is_not_tried_again_once_it_was_sent() -> None:
    with unreliable(None, 202) as (client, seen):
        with pytest.raises(Unreachable):
            client.rerun("sweep-1")
        assert len(seen) == 1
    with unreliable(502, 202) as (client, seen), pytest.raises(RequestRefused, match="told: why"):
        client.cancel("sweep-1")
    assert len(seen) == 1


@pytest.mark.parametrize("trouble", [429, 503])
def test_what_was_turned_away_is_tried_again(trouble: int) -> None:
    with unreliable(trouble, 202, trouble, 202) as (client, seen):
        client.cancel("sweep-1", "c0")
        client.rerun("sweep-1", ["c0"])
    assert [path for path, _ in seen] == ["/v1/cells/sweep-1/c0/cancel"] * 2 + ["/v1/sweeps/sweep-1/rerun"] * 2


def test_a_stranger_s_answer_is_refused_in_words() -> None:
    with unreliable(404) as (client, _), pytest.raises(RequestRefused) as caught:
        client.clone("sweep-1")
    assert caught.value.code == "a-code"
