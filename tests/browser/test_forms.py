"""What people say on pages: it is done, and what is refused is told beside its field."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from .conftest import Visiting
from .pages import PAGES
from .scene import SERIES, Scene, served

pytestmark = pytest.mark.slow


@pytest.fixture
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A scene to be changed."""
    with served(tmp_path_factory.mktemp("forms")) as scene:
        yield scene


def test_a_baseline_is_accepted_and_a_series_muted_and_unpinned(own: Scene, visiting: Visiting) -> None:
    visit = visiting(own.url)
    page = visit.go(PAGES["series"])
    accept = page.locator("form", has=page.get_by_role("button", name="Accept"))
    accept.get_by_label("Why").fill("the new vLLM <b>compiles</b> more")
    accept.get_by_role("button", name="Accept").click()
    expect(page.get_by_text("the new vLLM <b>compiles</b> more").first).to_be_visible()
    mute = page.locator("form", has=page.get_by_role("button", name="Mute"))
    mute.get_by_label("Why").fill("somebody looks at it")
    mute.get_by_label("Until the end of").fill("2027-01-31")
    mute.get_by_role("button", name="Mute").click()
    expect(page.get_by_text("somebody looks at it").first).to_be_visible()
    page.get_by_role("button", name="Take it off the overview").click()
    expect(page.get_by_role("button", name="Pin to the overview")).to_be_visible()
    visit.leave()


def test_a_night_of_the_chart_leads_to_its_cell(own: Scene, visiting: Visiting) -> None:
    visit = visiting(own.url)
    page = visit.go(PAGES["series"])
    expect(page.locator("#chart canvas").first).to_be_visible()
    page.locator("main table tbody th a").first.click()
    expect(page).to_have_url(re.compile(r"/sweeps/20261130-021500-ab12cd/cells/c2"))
    visit.leave()


def test_two_nights_are_compared(own: Scene, visiting: Visiting) -> None:
    visit = visiting(own.url)
    page = visit.go(PAGES["series"])
    page.get_by_role("button", name="Compare A with B").click()
    expect(page).to_have_url(re.compile(r"/compare\?.*a=20261129"))
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    visit.leave()


def test_a_schedule_that_cannot_be_is_refused_beside_its_field(own: Scene, visiting: Visiting) -> None:
    visit = visiting(own.url, loud=True)
    page = visit.go("/schedules/")
    form = page.locator("form", has=page.get_by_label("Matrix, as in a matrix file"))
    form.get_by_label("Name").fill("weekly")
    form.get_by_label("Times", exact=False).first.fill("at noon")
    form.get_by_label("Matrix, as in a matrix file").fill("name: weekly\nengine: {model: tiny:llama}\n")
    form.get_by_role("button").click()
    field = page.get_by_label("Times", exact=False).first
    expect(field).to_have_value("at noon")
    expect(field).to_have_attribute("aria-invalid", "true")
    visit.check_accessible()
    assert visit.foreign() == []
    visit.leave()


def test_the_first_key_is_shown_once_and_opens_the_door_it_locked(own: Scene, visiting: Visiting) -> None:
    """The last one: from then on the scene needs a key."""
    visit = visiting(own.url)
    page = visit.go("/keys/")
    page.get_by_label("Name").fill("the operator")
    page.get_by_label("Scope").select_option("admin")
    page.get_by_role("button", name="Make", exact=True).click()
    key = page.locator("code.secret").inner_text()
    assert key.startswith("sp_")
    page.get_by_role("link", name="Log in with it").click()
    page.get_by_label("API key").fill(key)
    page.get_by_role("button", name="Log in").click()
    expect(page).to_have_url(f"{own.url}/keys/")
    expect(page.get_by_text("the operator").first).to_be_visible()
    assert key not in page.content()
    page.goto(f"{own.url}/trends/{SERIES}")
    expect(page.get_by_role("heading", level=1)).to_contain_text("tp2-long-prompts")
    page.get_by_role("button", name="Log out").click()
    expect(page).to_have_url(f"{own.url}/login")
    visit.leave()
