"""Two cells side by side: what differs is shown, what is alike is counted."""

from __future__ import annotations

from typing import Any

import pytest
from api.client import Client
from store.samples import SWEEP, add_sweep, audited, evidence, finish, times

from dashboard.page import Page
from service.dashboard.compare_view import comparison
from service.report import stored_report
from service.store import Store, repositories
from workers.protocol import Compile, Environment, RankResources

NEWER = Environment(vllm="0.32.0", torch="2.12.0", ray="2.56.0", python="3.11.2", device="cpu", devices=0, cores=2)
MEMORY = [RankResources(rank=rank, peak_rss_bytes=(rank + 1) * 2**30) for rank in range(2)]


@pytest.fixture
def two(store: Store) -> Store:
    """Cells ``c0`` and ``c1``: another version, another setting, three seconds more in what no phase explains."""
    add_sweep(store, cells=3)
    with store.transaction() as session:
        for cell_id in ("c0", "c1"):
            found = audited(cell_id)
            if cell_id == "c1":
                found = found.model_copy(update={"effective": {**(found.effective or {}), "dtype": "<b>"}})
            repositories.record_audit(session, SWEEP, cell_id, found, None)
    finish(store, "c0", evidence(), "run-0")
    later = times(23.0).model_copy(update={"resources": MEMORY})
    finish(store, "c1", evidence(environment=NEWER, compile=Compile(cold=later, warm=None)), "run-1")
    return store


def cells(store: Store) -> list[dict[str, Any]]:
    with store.reading() as session:
        return list(stored_report(session, SWEEP)["cells"])


def test_only_what_differs_is_told_apart(two: Store) -> None:
    a, b, _ = cells(two)
    found = comparison(a, b)
    assert [(pair.name, pair.a, pair.b) for pair in found.settings] == [("dtype", "—", '"<b>"')]
    assert found.same == 2
    assert len(comparison(a, b, everything=True).settings) == 3
    differing = {pair.name: (pair.a, pair.b) for pair in found.versions if pair.differs}
    assert differing == {"vllm": ("0.31.0", "0.32.0"), "torch": ("2.11.0", "2.12.0")}
    cold, warm = found.times
    assert (cold.total.a, cold.total.b, cold.total.by, cold.total.change) == (
        "20.0\N{NO-BREAK SPACE}s",
        "23.0\N{NO-BREAK SPACE}s",
        "+3.00\N{NO-BREAK SPACE}s",
        "+15.0\N{NO-BREAK SPACE}%",
    )
    assert cold.phases[0].name == "unaccounted"
    assert {row.by for row in cold.phases[1:]} == {"0\N{NO-BREAK SPACE}s"}
    assert (warm.total.b, warm.total.by, warm.total.change) == ("—", "—", "—")
    (memory,) = found.figures
    assert (memory.a, memory.b) == ("—", "2.00\N{NO-BREAK SPACE}GiB")


def test_a_cell_beside_itself_differs_in_nothing(two: Store) -> None:
    a, *_ = cells(two)
    found = comparison(a, a)
    assert found.settings == []
    assert not any(pair.differs for pair in found.versions)
    assert {row.by for times in found.times for row in times.phases} == {"0\N{NO-BREAK SPACE}s"}


def test_a_cell_without_evidence_is_compared_by_what_it_asked_for(two: Store) -> None:
    a, _, nothing = cells(two)
    found = comparison(nothing, a)
    assert "compilation_config.pass_config.enable_sp" in {pair.name for pair in found.settings}
    assert found.times[0].total.a == "—"
    assert comparison(nothing, nothing).times == []


def test_the_page_shows_both_and_leads_to_them(client: Client, two: Store) -> None:
    response = client.get(f"/compare?a={SWEEP}/c0&b={SWEEP}/c1")
    assert response.status_code == 200
    page = Page(response.text)
    assert "total 20.0 s 23.0 s +3.00 s +15.0 %" in page.text
    assert "vllm 0.31.0 0.32.0 ≠ differs" in page.text
    assert 'dtype — "<b>" ≠ differs' in page.text
    assert {f"./sweeps/{SWEEP}/cells/c0", f"./v1/cells/{SWEEP}/c1"} <= set(page.attributes("href"))
    for link in page.attributes("href"):
        if link.startswith(("./sweeps", "./v1")):
            assert client.get(link[1:]).status_code == 200, link
    assert "alike" in Page(client.get(f"/compare?a={SWEEP}/c0&b={SWEEP}/c1&all=1").text).text


@pytest.mark.parametrize("text", ["nonsense", "none/c0", f"{SWEEP}/none", f"{SWEEP}/", "<script>/x"])
def test_what_is_no_cell_is_said_beside_its_field(client: Client, two: Store, text: str) -> None:
    response = client.get("/compare", params={"a": text, "b": f"{SWEEP}/c1"})
    assert response.status_code == 404
    page = Page(response.text)
    (wrong,) = [field for field in page.named("input") if field.get("aria-invalid")]
    assert wrong["name"] == "a"
    assert wrong["value"] == text
    assert page.named("table") == []


def test_without_cells_it_asks_for_them(client: Client) -> None:
    response = client.get("/compare")
    assert response.status_code == 200
    assert not [field for field in Page(response.text).named("input") if field.get("aria-invalid")]
