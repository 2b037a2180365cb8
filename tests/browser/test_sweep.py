"""A sweep's page: what is chosen stands in its address, and shows what it says."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from .conftest import Visiting
from .pages import PAGES
from .scene import NIGHT, Scene

pytestmark = pytest.mark.slow

LISTED = """all => all.filter(e => !e.closest('table.heat') && /\\/cells\\//.test(e.href))
  .map(e => e.textContent.trim())"""


def listed(page: Page) -> set[str]:
    """The cells of the list, without those of the heat map."""
    names = page.locator("main").get_by_role("link").evaluate_all(LISTED)
    return set(names)


def test_all_cells_are_there_and_the_heat_map_has_them_at_their_axes(visiting: Visiting, scene: Scene) -> None:
    page = visiting(scene.url).go(PAGES["sweep"])
    assert listed(page) == set(NIGHT)
    heat = page.locator("table.heat")
    expect(heat).to_have_count(1)
    assert heat.locator("tbody th").all_inner_texts() == ["512", "2048", "8192"]
    assert heat.locator("thead th").all_inner_texts() == ["false", "true"]
    fault = heat.locator("tbody tr").nth(0).locator("td").nth(1)
    expect(fault).to_contain_text("✗")
    expect(fault).to_contain_text("10")


def test_a_filter_by_verdict_stands_in_the_address(visiting: Visiting, scene: Scene) -> None:
    visit = visiting(scene.url)
    page = visit.go(PAGES["sweep"])
    page.get_by_role("link", name=re.compile("fail-residual")).first.click()
    expect(page).to_have_url(re.compile(r"verdict=fail-residual"))
    assert listed(page) == {"sp-guard-removed"}
    again = visiting(scene.url).go(page.url.removeprefix(scene.url))
    assert listed(again) == {"sp-guard-removed"}, "whoever is sent the address sees the same"
    page.get_by_role("link", name="Show all").click()
    assert listed(page) == set(NIGHT)
    page.go_back()
    assert listed(page) == {"sp-guard-removed"}


def test_a_filter_by_the_value_of_an_axis(visiting: Visiting, scene: Scene) -> None:
    page = visiting(scene.url).go(PAGES["sweep"])
    # The whole page, not its address alone: the script that answers to a choice comes with it.
    with page.expect_navigation(url=re.compile(r"value=compilation_config\.pass_config\.enable_sp")):
        page.locator("select[name=value]").nth(1).select_option("true")
    assert listed(page) == {"sp-guard-removed", "tp2-bfloat16", "tp2-lost"}


def test_only_what_changed_or_is_not_ok(visiting: Visiting, scene: Scene) -> None:
    page = visiting(scene.url).go(PAGES["sweep"])
    with page.expect_navigation(url=re.compile(r"changed=1")):
        page.get_by_label("Only what changed or is not ok").check()
    assert listed(page) == set(NIGHT) - {"sp-full-graph"}


def test_the_axes_of_the_heat_map_are_chosen(visiting: Visiting, scene: Scene) -> None:
    page = visiting(scene.url).go(PAGES["sweep"])
    with page.expect_navigation(url=re.compile(r"x=-")):
        page.get_by_label("Columns").select_option("none")
    with page.expect_navigation(url=re.compile(r"by=compilation_config")):
        page.get_by_label("Small multiples").select_option("compilation_config.pass_config.enable_sp")
    expect(page.locator("table.heat")).to_have_count(2)


def test_filters_work_without_scripts(visiting: Visiting, scene: Scene) -> None:
    page = visiting(scene.url, script=False).go(PAGES["sweep"])
    page.get_by_label("Only what changed or is not ok").check()
    page.get_by_role("button", name="Show").click()
    assert listed(page) == set(NIGHT) - {"sp-full-graph"}


def test_filters_that_match_nothing_say_so(visiting: Visiting, scene: Scene) -> None:
    visit = visiting(scene.url)
    page = visit.go(f"{PAGES['sweep']}?verdict=skipped")
    expect(page.get_by_text("No cell is like that.")).to_be_visible()
    page = visit.go(f"{PAGES['sweep']}?x=%3Cscript%3E&value=nope%3D1")
    expect(page.get_by_text("No axis of this sweep is called").first).to_be_visible()
