"""What a matrix would become, asked of the real planner and the engine environment. Nothing is stored or started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from api.client import Client, make_client
from api.test_problems import assert_problem
from service.app import create_app
from service.dispatch.controller import Controller
from service.settings import Settings
from service.store import Store

YAML = {"Content-Type": "application/yaml"}
QUICKSTART = Path(__file__).parent.parent.parent / "deploy" / "matrices" / "quickstart.yaml"


@pytest.fixture
def planning(store: Store, tmp_path: Path) -> Client:
    settings = Settings(home=tmp_path)
    return Client(create_app(settings, store, Controller(settings, store)))


@pytest.mark.slow
def test_the_quickstart_is_shown_as_it_would_run(planning: Client, tmp_path: Path) -> None:
    response = planning.post("/v1/sweeps/preview", content=QUICKSTART.read_bytes(), headers=YAML)
    assert response.status_code == 200, response.text
    found = response.json()
    cells: dict[str, Any] = {cell["name"]: cell for cell in found["cells"]}
    assert list(cells) == ["replicated", "sp-full-graph", "sp-piecewise-asked", "sp-guard-removed"]
    assert found["runs"] == 3
    assert cells["sp-piecewise-asked"]["duplicate_of"] == "sp-full-graph"
    assert cells["sp-full-graph"]["ranks"] == 2
    assert cells["sp-full-graph"]["effective"]["compilation_config.pass_config.enable_sp"] is True
    changed = {change["key"] for change in cells["sp-piecewise-asked"]["changes"]}
    assert "compilation_config.splitting_ops" in changed
    assert found["environments"]["default"]["vllm"]
    assert planning.get("/v1/sweeps").json()["sweeps"] == []
    assert not (tmp_path / "artifacts").exists()


@pytest.mark.parametrize("path", ["/v1/sweeps", "/v1/sweeps/preview"])
def test_what_only_the_operator_may_set_is_refused_both_ways(client: Client, path: str) -> None:
    matrix = (
        b"name: x\nengine:\n  model: tiny:llama\n  trust_remote_code: true\nenvironments:\n  mine: /usr/bin/python3\n"
    )
    problem = assert_problem(client.post(path, content=matrix, headers=YAML), 422, "invalid-matrix")
    assert [(item["code"], item["line"]) for item in problem["errors"]] == [("not-allowed", 4), ("not-allowed", 6)]


@pytest.mark.parametrize("path", ["/v1/sweeps", "/v1/sweeps/preview"])
def test_the_operator_can_allow_more(store: Store, path: str) -> None:
    matrix = {"name": "x", "engine": {"model": "tiny:llama", "hf_overrides": {"a": 1}, "env.VLLM_NEW": "1"}}
    assert_problem(make_client(store).post(path, json=matrix), 422, "invalid-matrix")
    allowing = make_client(store, allow_settings=["hf_overrides.*", "hf_overrides"], allow_variables=["VLLM_*"])
    assert allowing.post(path, json=matrix).status_code in (200, 201)
