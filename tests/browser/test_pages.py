"""Every page, in a real browser: quiet, readable in light and dark, on a phone, with the keyboard, and without sight."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from .conftest import Visiting
from .pages import PAGES
from .scene import HOSTILE, NIGHTLY, Scene
from .visit import NARROW

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_quiet_and_accessible_and_reached_by_keyboard(
    visiting: Visiting, scene: Scene, pictures: Path, name: str
) -> None:
    visit = visiting(scene.url)
    visit.go(PAGES[name])
    visit.shoot(pictures / f"{name}.png")
    assert not visit.is_dark()
    visit.check_accessible()
    visit.check_keyboard()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_in_the_dark(visiting: Visiting, scene: Scene, pictures: Path, name: str) -> None:
    visit = visiting(scene.url, scheme="dark")
    visit.go(PAGES[name])
    visit.shoot(pictures / f"{name}-dark.png")
    assert visit.is_dark()
    visit.check_accessible()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_on_a_phone(visiting: Visiting, scene: Scene, pictures: Path, name: str) -> None:
    visit = visiting(scene.url, width=NARROW)
    visit.go(PAGES[name])
    visit.shoot(pictures / f"{name}-narrow.png")
    visit.check_fits()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_without_scripts(visiting: Visiting, scene: Scene, name: str) -> None:
    page = visiting(scene.url, script=False).go(PAGES[name])
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    assert page.locator("main").inner_text().strip()


def test_from_the_overview_to_the_reason_of_a_failure_in_two_clicks(visiting: Visiting, scene: Scene) -> None:
    page = visiting(scene.url).go("/")
    page.get_by_role("link", name="nightly").first.click()
    page.get_by_role("link", name="sp-guard-removed").first.click()
    expect(page.get_by_text("the parts were gathered in another order").first).to_be_visible()


def test_hostile_text_is_text(visiting: Visiting, scene: Scene) -> None:
    visit = visiting(scene.url)
    for path in ("/", f"/sweeps/{HOSTILE}"):
        page = visit.go(path)
        assert "owned" not in page.title().replace("<script>document.title='owned'</script>", "")
        assert page.get_by_text("{{7*7}}").count() >= 1
        assert page.locator("img").count() == 0


def test_what_an_engine_wrote_in_its_log_is_text(visiting: Visiting, scene: Scene) -> None:
    page = visiting(scene.url).go(f"/sweeps/{NIGHTLY}")
    for details in page.locator("details").all():
        details.evaluate("e => e.open = true")
    expect(page.get_by_text("no <weights> & no way").first).to_be_visible()
