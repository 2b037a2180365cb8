"""Every page, in a real browser: quiet, readable in light and dark, on a phone, by keyboard, and without sight."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from .conftest import Visiting
from .faults import SENTENCE
from .pages import PAGES
from .scene import HOSTILE, HOSTILE_TEXT, NIGHTLY, Scene

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_for_everybody(visiting: Visiting, scene: Scene, pictures: Path, name: str) -> None:
    """At its end nothing has gone wrong in it, and nobody else was asked for anything."""
    visit = visiting(scene.url)
    visit.go(PAGES[name])
    visit.shoot(pictures / f"{name}.png")
    assert not visit.is_dark()
    visit.check_fits()
    visit.check_accessible()
    visit.check_keyboard()
    visit.put_out_the_light()
    visit.shoot(pictures / f"{name}-dark.png")
    assert visit.is_dark()
    visit.check_accessible()
    visit.narrow()
    visit.shoot(pictures / f"{name}-narrow.png")
    visit.check_fits()


@pytest.mark.parametrize("name", ["overview", "sweeps", "sweep", "cell-sp-guard-removed", "series", "compare", "keys"])
def test_a_page_says_what_it_has_to_say_without_scripts(visiting: Visiting, scene: Scene, name: str) -> None:
    with_scripts = visiting(scene.url).go(PAGES[name])
    without = visiting(scene.url, script=False).go(PAGES[name])
    expect(without.get_by_role("heading", level=1)).to_be_visible()
    headings = "h1, h2, h3, caption, thead th"
    assert without.locator(headings).all_inner_texts() == with_scripts.locator(headings).all_inner_texts()


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("sp-guard-removed", SENTENCE),
        ("tp2-long-prompts", "baseline 8 s (+55 %)"),
        ("tp2-bfloat16", "engine died"),
    ],
)
def test_from_the_overview_to_the_reason_of_a_failure_in_two_clicks(
    visiting: Visiting, scene: Scene, cell: str, reason: str
) -> None:
    page = visiting(scene.url).go("/")
    page.get_by_role("link", name=cell).first.click()
    expect(page).to_have_url(scene.url + PAGES[f"cell-{cell}"])
    expect(page.get_by_text(reason).first).to_be_visible()


def test_the_way_by_the_list_takes_no_more_clicks(visiting: Visiting, scene: Scene) -> None:
    page = visiting(scene.url).go("/")
    page.locator(f'a[href="sweeps/{NIGHTLY}"]').last.click()
    expect(page.get_by_text(SENTENCE[:60]).first).to_be_visible()
    page.get_by_role("link", name="sp-guard-removed").last.click()
    expect(page.get_by_text(SENTENCE).first).to_be_visible()


def test_hostile_text_is_text(visiting: Visiting, scene: Scene) -> None:
    visit = visiting(scene.url)
    for name in ("overview", "sweeps", "sweep-hostile", "cell-hostile"):
        page = visit.go(PAGES[name])
        assert "owned" not in page.title().replace(HOSTILE_TEXT, "")
        expect(page.get_by_text("{{7*7}}").first).to_be_visible()
        assert page.locator("img").count() == 0


TURNED = """() => {
  const found = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text = walk.nextNode(); text; text = walk.nextNode()) {
    const around = text.parentElement;
    if (!text.data.includes('\\u202e') || !around.checkVisibility()) continue;
    const style = getComputedStyle(around);
    // What stands in a block of its own has nothing beside it.
    const alone = style.unicodeBidi !== 'normal' || style.display !== 'inline';
    if (!alone || text.nextElementSibling) found.push(around.outerHTML.slice(0, 200));
  }
  return found;
}"""


@pytest.mark.parametrize("path", ["/", "/sweeps/", f"/sweeps/{HOSTILE}"])
def test_what_turns_the_direction_of_writing_turns_nothing_but_itself(
    visiting: Visiting, scene: Scene, path: str
) -> None:
    page = visiting(scene.url).go(path)
    assert "\u202e" in page.content()
    assert page.evaluate(TURNED) == []


def test_what_an_engine_wrote_in_its_log_is_text(visiting: Visiting, scene: Scene) -> None:
    page = visiting(scene.url).go(PAGES["cell-tp2-bfloat16"])
    expect(page.get_by_text("no <weights> & no way").first).to_be_visible()


@pytest.mark.parametrize(("zone", "shown"), [("Asia/Kolkata", "7:45"), ("America/New_York", "21:15"), ("UTC", "2:15")])
def test_times_are_in_the_zone_of_who_looks(visiting: Visiting, scene: Scene, zone: str, shown: str) -> None:
    page = visiting(scene.url, zone=zone).go(PAGES["sweep"])
    submitted = page.locator('time[datetime^="2026-11-30T02:15"]').first
    expect(submitted).to_contain_text(shown)
    without = visiting(scene.url, zone=zone, script=False).go(PAGES["sweep"])
    expect(without.locator('time[datetime^="2026-11-30T02:15"]').first).to_contain_text("02:15:00 UTC")


def test_what_is_not_there_says_so(visiting: Visiting, scene: Scene) -> None:
    visit = visiting(scene.url, loud=True)
    for path in ("/sweeps/nope", f"/sweeps/{NIGHTLY}/cells/nope", "/nowhere"):
        response = visit.page.goto(scene.url + path)
        assert response is not None
        assert response.status == 404
        expect(visit.page.get_by_text("there is no").first).to_be_visible()
    assert visit.foreign() == []
