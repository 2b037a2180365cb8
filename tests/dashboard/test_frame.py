from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urljoin

import pytest
from api.client import Client, make_client
from store.samples import SWEEP, add_sweep, evidence, finish

from dashboard.page import Page
from service.dashboard.frame import ENTRIES
from service.dashboard.pages import shown
from service.dashboard.render import STATIC
from service.store import Store, repositories

CELL = f"/sweeps/{SWEEP}/cells/c0"
PATHS = ("/", "/sweeps/", f"/sweeps/{SWEEP}", CELL)
BROWSER = {"Accept": "text/html"}


def fill(store: Store) -> None:
    add_sweep(store)
    finish(store, "c0", evidence())


@pytest.mark.parametrize("prefix", ["", "/deep/prefix"])
@pytest.mark.parametrize("path", PATHS)
def test_every_link_leads_somewhere_under_any_prefix(store: Store, prefix: str, path: str) -> None:
    fill(store)
    client = make_client(store, root_path=prefix)
    page = Page(client.get(prefix + path).text)
    links = [*page.attributes("href"), *page.attributes("src"), *page.attributes("data-source")]
    links += [form["action"] for form in page.named("form") if form["method"] == "get"]
    for link in {link for link in links if not link.startswith(("#", "data:"))}:
        assert client.get(urljoin(prefix + path, link)).status_code == 200, link
    anchors = {link[1:] for link in links if link.startswith("#")}
    assert anchors <= set(page.attributes("id"))


@pytest.mark.parametrize("path", PATHS)
def test_pages_load_nothing_from_elsewhere_and_say_so(client: Client, store: Store, path: str) -> None:
    fill(store)
    response = client.get(path)
    assert "//" not in response.text.replace("<!doctype", "")
    assert "default-src 'none'" in response.headers["Content-Security-Policy"]
    assert "style=" not in response.text
    assert not re.search(r"\son\w+=", response.text)
    assert "<script>" not in response.text


@pytest.mark.parametrize("path", PATHS)
def test_ids_in_a_page_are_unique_and_it_has_one_heading_of_the_first_level(
    client: Client, store: Store, path: str
) -> None:
    fill(store)
    page = Page(client.get(path).text)
    ids = page.attributes("id")
    assert len(ids) == len(set(ids))
    assert len(page.named("h1")) == 1


def test_the_navigation_marks_where_one_is(client: Client, store: Store) -> None:
    fill(store)
    for path, up, marked in (
        (PATHS[0], "./", "./"),
        (PATHS[1], "../", "../sweeps/"),
        (CELL, "../../../", "../../../sweeps/"),
    ):
        current = [link for link in Page(client.get(path).text).named("a") if "aria-current" in link]
        assert [link["href"] for link in current] == [marked]
        assert f'href="{up}static/style.css"' in client.get(path).text


def test_only_pages_that_are_there_stand_in_the_navigation(client: Client) -> None:
    hrefs = Page(client.get("/").text).attributes("href")
    for entry in ENTRIES:
        there = client.get(f"/{entry.path}").status_code == 200
        assert (f"./{entry.path}" in hrefs) is there, entry


def test_an_application_without_pages_has_no_navigation() -> None:
    assert shown([]) == ()


def test_what_is_not_there_is_a_page_for_people_and_a_problem_for_programs(client: Client, store: Store) -> None:
    fill(store)
    for path in ("/sweeps/nope", f"/sweeps/{SWEEP}/cells/nope", "/nowhere"):
        response = client.get(path, headers=BROWSER)
        assert response.status_code == 404
        page = Page(response.text)
        assert page.text.startswith("Not Found · Shardproof")
        assert client.get(urljoin(path, page.named("link")[1]["href"] or "")).status_code == 200
        assert client.get(path).headers["Content-Type"] == "application/problem+json"
    assert client.get("/v1/sweeps/nope", headers=BROWSER).headers["Content-Type"] == "application/problem+json"


def test_a_moment_says_its_zone_and_can_be_read_by_a_script(client: Client, store: Store) -> None:
    fill(store)
    html = client.get("/sweeps/").text
    assert '<time datetime="2026-11-30T02:15:00Z">2026-11-30 02:15:00 UTC</time>' in html


def test_styles_and_scripts_ship_with_the_package() -> None:
    import service.dashboard

    folder = Path(service.dashboard.__file__).parent
    assert folder / "static" == STATIC
    assert {path.suffix for path in STATIC.iterdir()} == {".css", ".js"}
    assert list((folder / "templates").glob("*.html"))


def test_nothing_in_scripts_or_styles_is_fetched_from_elsewhere() -> None:
    for path in STATIC.iterdir():
        text = path.read_text(encoding="utf-8")
        assert "http" not in text.replace("`HTTP", ""), path
        assert "url(" not in text


def test_the_sweeps_have_pages(client: Client, store: Store) -> None:
    for number in range(51):
        add_sweep(store, f"sweep-{number:02}", cells=0)
    first = Page(client.get("/sweeps/").text)
    assert "?before=sweep-01" in first.attributes("href")
    second = Page(client.get("/sweeps/?before=sweep-01").text)
    assert [link for link in second.attributes("href") if "sweep-" in link] == ["../sweeps/sweep-00"]


def test_the_list_names_sweeps_and_how_they_went(client: Client, store: Store) -> None:
    add_sweep(store, cells=1)
    finish(store, "c0", evidence())
    text = Page(client.get("/sweeps/").text).text
    assert "quickstart 2026-11-30 02:15:00 UTC active 1 ✓ 1 ✗ 0" in text


def test_an_empty_store_says_what_to_do(client: Client) -> None:
    for path in ("/", "/sweeps/"):
        assert "shardproof submit MATRIX" in Page(client.get(path).text).text


def test_the_page_says_when_the_files_of_a_sweep_were_removed(client: Client, store: Store) -> None:
    fill(store)
    assert "its files removed" not in Page(client.get(f"/sweeps/{SWEEP}").text).text
    with store.transaction() as session:
        repositories.note_artifacts_removed(session, SWEEP, 1796000000.0)
    assert "its files removed 2026-11-30 00:53:20 UTC" in Page(client.get(f"/sweeps/{SWEEP}").text).text
    assert "were removed 2026-11-30 00:53:20 UTC" in Page(client.get(CELL).text).text
