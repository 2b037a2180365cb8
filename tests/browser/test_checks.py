"""Each check of the pages finds what it looks for: pages with one fault each, served by themselves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from api.server import serving
from fastapi import FastAPI
from starlette.responses import HTMLResponse

from .chromium import NAMES, NoChromium, executable
from .conftest import Visiting
from .visit import NARROW

pytestmark = pytest.mark.slow

HEAD = '<!doctype html><html lang="en"><head><title>t</title><link rel="icon" href="data:,"></head><body><main>'
FAULTS = {
    "foreign": '<h1>t</h1><img alt="" src="http://elsewhere.example/pixel.png">',
    "noisy": "<h1>t</h1><script>console.error('no')</script>",
    "broken": "<h1>t</h1><script>missing()</script>",
    "nameless": '<h1>t</h1><button></button><img src="data:image/gif;base64,R0lGODlhAQABAAAAACw=">',
    "pale": '<h1>t</h1><p style="color: #bbb; background: #fff">hardly to be read</p>',
    "wide": '<h1>t</h1><div style="width: 900px">wide</div>',
    "unreachable": '<h1>t</h1><a href="#a">one</a><button tabindex="-1">two</button>',
    "unseen": '<h1>t</h1><style>a:focus { outline: none }</style><a href="#a">one</a>',
    "healthy": '<h1>t</h1><p>all is well</p><a href="#a">one</a><button>two</button>',
}


@pytest.fixture(scope="module")
def faulty() -> Iterator[str]:
    app = FastAPI()

    def page(name: str) -> HTMLResponse:
        return HTMLResponse(f"{HEAD}{FAULTS[name]}</main></body></html>")

    app.add_api_route("/{name}", page, response_class=HTMLResponse)
    with serving(app) as url:
        yield url


@pytest.mark.parametrize("name", ["foreign", "noisy", "broken"])
def test_a_page_that_is_not_quiet_is_found(visiting: Visiting, faulty: str, name: str) -> None:
    visit = visiting(faulty, loud=True)
    visit.go(f"/{name}")
    with pytest.raises(AssertionError):
        visit.check_quiet()
    assert visit.foreign() == (["http://elsewhere.example/pixel.png"] if name == "foreign" else [])


@pytest.mark.parametrize("name", ["nameless", "pale"])
def test_a_page_that_not_everybody_can_read_is_found(visiting: Visiting, faulty: str, name: str) -> None:
    visit = visiting(faulty)
    visit.go(f"/{name}")
    with pytest.raises(AssertionError):
        visit.check_accessible()


@pytest.mark.parametrize("name", ["unreachable", "unseen"])
def test_what_the_keyboard_does_not_reach_or_show_is_found(visiting: Visiting, faulty: str, name: str) -> None:
    visit = visiting(faulty)
    visit.go(f"/{name}")
    with pytest.raises(AssertionError):
        visit.check_keyboard()


def test_what_is_too_wide_for_a_phone_is_found(visiting: Visiting, faulty: str) -> None:
    visit = visiting(faulty, width=NARROW)
    visit.go("/wide")
    with pytest.raises(AssertionError, match="wide"):
        visit.check_fits()


def test_a_page_without_a_dark_side_is_found(visiting: Visiting, faulty: str) -> None:
    visit = visiting(faulty, scheme="dark")
    visit.go("/healthy")
    assert not visit.is_dark()


def test_a_healthy_page_passes_all_of_them(visiting: Visiting, faulty: str) -> None:
    visit = visiting(faulty, width=NARROW)
    visit.go("/healthy")
    visit.check_accessible()
    visit.check_keyboard()
    visit.check_fits()
    visit.check_quiet()


def test_without_chromium_the_tests_say_what_to_install() -> None:
    with pytest.raises(NoChromium, match="apt-get install chromium"):
        executable(["no-such-browser"])
    assert executable(NAMES)
