"""A page that is kept open shows what happens, also after the controller was away, and behind a proxy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from api.keyed import make_key
from api.server import serving
from playwright.sync_api import expect

from service.app import create_app
from service.dispatch.controller import Controller
from service.domain.keys import Scope
from service.settings import Settings
from service.store import Store, open_store, repositories

from . import faults
from .conftest import Visiting
from .proxy import proxied
from .scene import add, begin, end, finish, happen

pytestmark = pytest.mark.slow

SWEEP = "20261130-031500-0ddba1"
PREFIX = "/team/shardproof"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path, database_url=None, public_url=None)


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    """A sweep whose first cell runs."""
    store = open_store(settings.store_url)
    add(store, SWEEP, "by hand", {"c0": "goes on", "c1": "waits"})
    begin(store, SWEEP, "c0")
    yield store
    store.close()


class Service:
    """A controller that can be away for a while, and is then where it was."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self._settings = settings
        self._store = store
        self._open = ExitStack()
        self.url = self._serve(0)

    def _serve(self, port: int) -> str:
        app = create_app(self._settings, self._store, Controller(self._settings, self._store))
        return self._open.enter_context(serving(app, port))

    def stop(self) -> None:
        self._open.close()

    def start(self) -> None:
        self._serve(urlsplit(self.url).port or 0)


@pytest.fixture
def service(settings: Settings, store: Store) -> Iterator[Service]:
    service = Service(settings, store)
    yield service
    service.stop()


@pytest.mark.parametrize("path", ["/", f"/sweeps/{SWEEP}", f"/sweeps/{SWEEP}/cells/c0"])
def test_what_happens_is_seen_without_asking(service: Service, visiting: Visiting, store: Store, path: str) -> None:
    page = visiting(service.url).go(path)
    page.evaluate("window.untouched = true")
    shown = page.locator("#live")
    expect(shown).to_contain_text("dynamo")
    happen(store, SWEEP, "c0", "inductor_compile")
    expect(shown).to_contain_text("inductor_compile", timeout=15_000)
    finish(store, SWEEP, "c0", faults.residual_fault())
    expect(shown).to_contain_text("✗ 1" if path == "/" else "fail-residual", timeout=15_000)
    assert page.evaluate("window.untouched"), "it was not loaded anew"


def test_what_is_open_and_has_the_focus_stays_so(service: Service, visiting: Visiting, store: Store) -> None:
    page = visiting(service.url).go(f"/sweeps/{SWEEP}")
    link = page.locator("#live").get_by_role("link", name="waits").last
    link.focus()
    happen(store, SWEEP, "c0", "inductor_compile")
    expect(page.locator("#live")).to_contain_text("inductor_compile", timeout=15_000)
    expect(page.locator("#live").get_by_role("link", name="waits").last).to_be_focused()


def test_a_sweep_that_has_ended_is_asked_for_no_more(service: Service, visiting: Visiting, store: Store) -> None:
    visit = visiting(service.url)
    page = visit.go(f"/sweeps/{SWEEP}")
    finish(store, SWEEP, "c0", faults.healthy())
    end(store, SWEEP, "c1", faults.healthy())
    with store.transaction() as session:
        repositories.end_sweep(session, SWEEP)
    expect(page.locator("#live [data-ended]")).to_have_count(1, timeout=15_000)
    before = len(visit.asked)
    page.wait_for_timeout(7_000)
    assert len(visit.asked) <= before + 1, visit.asked[before:]


@pytest.mark.parametrize("path", [f"/sweeps/{SWEEP}", f"/sweeps/{SWEEP}/cells/c0"])
def test_a_stream_that_was_cut_goes_on_behind_the_last_event(
    service: Service, visiting: Visiting, store: Store, path: str
) -> None:
    visit = visiting(service.url, loud=True)
    page = visit.go(path)
    happen(store, SWEEP, "c0", "inductor_compile")
    expect(page.locator("#live")).to_contain_text("inductor_compile", timeout=15_000)
    service.stop()
    expect(page.get_by_role("alert")).to_contain_text("does not answer", timeout=15_000)
    happen(store, SWEEP, "c0", "capture")
    service.start()
    expect(page.locator("#live")).to_contain_text("capture", timeout=15_000)
    expect(page.get_by_role("alert")).to_be_hidden()
    happen(store, SWEEP, "c0", "first_token")
    expect(page.locator("#live")).to_contain_text("first_token", timeout=15_000)
    streams = [url for url in visit.asked if "/events/stream" in url]
    numbers = [int(url.rpartition("after=")[2]) for url in streams]
    assert len(numbers) > 1
    assert numbers[-1] > numbers[0], "not from the beginning"
    assert visit.foreign() == []


def test_without_a_stream_it_is_asked_for_now_and_then(service: Service, visiting: Visiting, store: Store) -> None:
    visit = visiting(service.url, loud=True)
    visit.page.context.route("**/events/stream*", lambda route: route.abort())
    page = visit.go(f"/sweeps/{SWEEP}")
    happen(store, SWEEP, "c0", "inductor_compile")
    expect(page.locator("#live")).to_contain_text("inductor_compile", timeout=15_000)


def test_pages_work_under_a_prefix_of_a_proxy(visiting: Visiting, settings: Settings, store: Store) -> None:
    """With keys: the way to the form and back, a link, a live page, an action, and out again."""
    key = make_key(store, Scope.SUBMIT)
    app = create_app(settings, store, Controller(settings, store))
    with serving(app, root_path=PREFIX) as inner, proxied(inner, PREFIX) as outer:
        visit = visiting(outer)
        page = visit.go(f"{PREFIX}/sweeps/{SWEEP}")
        expect(page).to_have_url(f"{outer}{PREFIX}/login?next=/sweeps/{SWEEP}")
        page.get_by_label("API key").fill(key)
        page.get_by_role("button", name="Log in").click()
        expect(page).to_have_url(f"{outer}{PREFIX}/sweeps/{SWEEP}")
        happen(store, SWEEP, "c0", "inductor_compile")
        expect(page.locator("#live")).to_contain_text("inductor_compile", timeout=15_000)
        page.locator("#live").get_by_role("link", name="goes on").last.click()
        expect(page).to_have_url(f"{outer}{PREFIX}/sweeps/{SWEEP}/cells/c0")
        page.get_by_role("link", name="Sweeps", exact=True).first.click()
        expect(page).to_have_url(f"{outer}{PREFIX}/sweeps/")
        page.get_by_role("link", name="by hand").first.click()
        page.get_by_role("button", name="Log out").click()
        expect(page).to_have_url(f"{outer}{PREFIX}/login")
        outside = [url for url in visit.asked if not url.startswith(f"{outer}{PREFIX}/")]
        assert outside == [], "nothing is asked for outside of the prefix"
        visit.leave()
