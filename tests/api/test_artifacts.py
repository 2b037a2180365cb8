"""Files of a run over HTTP."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from store.samples import SWEEP, add_sweep, run_spec

from api.client import Client, make_client
from api.test_problems import assert_problem
from service.store import Store, repositories

LOG = b"line 1\nline 2 \xff\n"
PAGE = b"<script>alert(1)</script>"


@pytest.fixture
def arm(store: Store, tmp_path: Path) -> Iterator[Path]:
    """The folder of the cold arm of a stored run."""
    folder = tmp_path / "artifacts" / SWEEP / "cells" / "c0" / "run-1" / "cold"
    folder.mkdir(parents=True)
    (folder / "engine.log").write_bytes(LOG)
    (folder / "report").mkdir()
    (folder / "report" / "index.html").write_bytes(PAGE)
    (folder / "ä b#c?.txt").write_bytes(b"")
    shared = tmp_path / "artifacts" / SWEEP / "arms" / "key"
    shared.mkdir(parents=True)
    (shared / "engine.log").write_bytes(b"shared\n")
    (tmp_path / "artifacts" / "secret").write_bytes(b"secret")
    spec = run_spec("run-1")
    own = spec.arms[0].model_copy(update={"folder": str(folder)})
    add_sweep(store)
    with store.transaction() as session:
        asked = spec.model_copy(update={"arms": [own], "replicated": str(shared), "reference": "/etc"})
        repositories.create_run(session, SWEEP, "c0", asked)
    return folder


@pytest.fixture
def client(store: Store, tmp_path: Path, arm: Path) -> Client:
    return make_client(store, home=tmp_path)


def listed(client: Client) -> list[str]:
    found: list[str] = []
    after = ""
    while True:
        page = client.get(f"/v1/runs/run-1/artifacts?limit=1{after}").json()
        found += [item["path"] for item in page["artifacts"]]
        if page["next"] is None:
            return found
        after = f"&after={page['next']}"


def test_files_are_listed_and_downloaded(client: Client) -> None:
    paths = listed(client)
    assert paths == ["cold/engine.log", "cold/report/index.html", "cold/ä b#c?.txt", "shared-replicated/engine.log"]
    content = {path: client.get(f"/v1/runs/run-1/artifacts/{quote(path)}").content for path in paths}
    assert content == dict(zip(paths, [LOG, PAGE, b"", b"shared\n"], strict=True))


def test_a_page_that_an_engine_wrote_is_never_shown_as_one(client: Client) -> None:
    headers = client.get("/v1/runs/run-1/artifacts/cold/report/index.html").headers
    assert headers["Content-Type"] == "application/octet-stream"
    assert headers["Content-Disposition"] == "attachment; filename*=UTF-8''index.html"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Content-Length"] == str(len(PAGE))


@pytest.mark.parametrize(
    "path",
    [
        "cold/none",
        "cold",
        "cold/report",
        "../secret",
        "%2e%2e/secret",
        "cold/..%2f..%2f..%2f..%2f..%2fsecret",
        "cold/%2e%2e/%2e%2e/%2e%2e/%2e%2e/%2e%2e/secret",
        "cold/engine.log%00",
        "%2fetc%2fpasswd",
        "shared-reference/passwd",
        "cold/link",
    ],
)
def test_what_lies_elsewhere_is_not_there(client: Client, arm: Path, path: str) -> None:
    (arm / "link").symlink_to("../../../../../secret")
    assert (arm / "link").read_bytes() == b"secret"
    response = client.get(f"/v1/runs/run-1/artifacts/{path}")
    assert response.status_code == 404
    assert response.json()["code"] in ("unknown-artifact", "not-found")
    assert b"secret" not in response.content.replace(b"/secret", b"")


def test_logs_are_listed_by_arm_and_their_end_is_read(client: Client) -> None:
    logs = client.get("/v1/runs/run-1/logs").json()["logs"]
    assert [(log["arm"], log["bytes"]) for log in logs] == [("cold", len(LOG)), ("shared-replicated", 7)]
    whole = client.get("/v1/runs/run-1/logs/cold")
    assert whole.text == "line 1\nline 2 \N{REPLACEMENT CHARACTER}\n"
    assert whole.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert client.get("/v1/runs/run-1/logs/cold?tail=3").text == " \N{REPLACEMENT CHARACTER}\n"
    assert_problem(client.get("/v1/runs/run-1/logs/warm"), 404, "unknown-artifact")
    assert_problem(client.get("/v1/runs/run-1/logs/cold?tail=0"), 422, "invalid-request")


def test_files_that_were_removed_are_gone_not_unknown(client: Client, store: Store, arm: Path) -> None:
    for path in (arm / "engine.log", arm / "report" / "index.html"):
        path.unlink()
    assert_problem(client.get("/v1/runs/run-1/artifacts/cold/engine.log"), 404, "unknown-artifact")
    with store.transaction() as session:
        repositories.note_artifacts_removed(session, SWEEP, time.time())
    problem = assert_problem(client.get("/v1/runs/run-1/artifacts/cold/engine.log"), 410, "artifacts-removed")
    assert "SHARDPROOF_RETENTION_SWEEPS" in problem["detail"]
    assert client.get("/v1/runs/run-1/artifacts").json()["removed_at"] is not None
