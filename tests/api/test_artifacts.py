"""Files of a run over HTTP."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from store.samples import SWEEP, add_sweep, run_spec

from api.client import Client, make_client
from api.test_problems import assert_problem
from service.store import Store, repositories
from workers.artifacts import ArtifactPlace

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


ELSEWHERE = [
    "cold/none",
    "cold",
    "cold/report",
    "../secret",
    "%2e%2e/secret",
    "cold/..%2f..%2f..%2f..%2f..%2fsecret",
    "cold/%2e%2e/%2e%2e/%2e%2e/%2e%2e/%2e%2e/secret",
    "%2fetc%2fpasswd",
    "shared-reference/passwd",
    "cold/link",
]


def test_what_lies_elsewhere_is_not_there(client: Client, arm: Path) -> None:
    (arm / "link").symlink_to("../../../../../secret")
    assert (arm / "link").read_bytes() == b"secret"
    for path in ELSEWHERE:
        response = client.get(f"/v1/runs/run-1/artifacts/{path}")
        assert response.status_code == 404, path
        assert response.json()["code"] in ("unknown-artifact", "not-found"), path
        assert b"secret" not in response.content.replace(b"/secret", b""), path


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


def kept(store: Store, tmp_path: Path, arm: Path) -> Client:
    """The same run where its own arm ran on a node whose disk is not seen here; the shared one is here."""
    url = f"file://{tmp_path / 'bucket'}"
    ArtifactPlace(url).put(arm, f"{SWEEP}/cells/c0/run-1/cold")
    (tmp_path / "bucket" / "secret").write_bytes(b"secret")
    shutil.rmtree(arm)
    return make_client(store, home=tmp_path, artifacts_url=url)


def test_files_of_other_nodes_are_read_from_where_they_are_kept(store: Store, tmp_path: Path, arm: Path) -> None:
    client = kept(store, tmp_path, arm)
    paths = listed(client)
    assert paths == ["cold/engine.log", "cold/report/index.html", "cold/ä b#c?.txt", "shared-replicated/engine.log"]
    content = [client.get(f"/v1/runs/run-1/artifacts/{quote(path)}").content for path in paths]
    assert content == [LOG, PAGE, b"", b"shared\n"]
    logs = client.get("/v1/runs/run-1/logs").json()["logs"]
    assert [(log["arm"], log["bytes"], log["modified_at"] is None) for log in logs] == [
        ("cold", len(LOG), True),
        ("shared-replicated", 7, False),
    ]
    assert client.get("/v1/runs/run-1/logs/cold?tail=3").text == " \N{REPLACEMENT CHARACTER}\n"
    assert listed(make_client(store, home=tmp_path)) == ["shared-replicated/engine.log"], "without that place"


def test_nothing_else_is_read_from_there(store: Store, tmp_path: Path, arm: Path) -> None:
    client = kept(store, tmp_path, arm)
    for path in [path for path in ELSEWHERE if "link" not in path]:
        response = client.get(f"/v1/runs/run-1/artifacts/{path}")
        assert response.status_code == 404, path
        assert b"secret" not in response.content.replace(b"/secret", b""), path


def test_a_place_that_does_not_answer_is_said_so(store: Store, tmp_path: Path, arm: Path) -> None:
    shutil.rmtree(arm)
    client = make_client(store, home=tmp_path, artifacts_url="unheard-of://x")
    problem = assert_problem(client.get("/v1/runs/run-1/artifacts"), 503, "artifacts-away")
    assert "SHARDPROOF_ARTIFACTS_URL" in problem["detail"]
