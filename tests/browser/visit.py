"""A page in the browser, and what it did meanwhile: what it asked for, and what the console said."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, Route

WIDE, NARROW = 1280, 360
GRAVE = ("serious", "critical")
OWN_SCHEMES = ("data", "blob", "about")
PATIENCE_MS = 15_000
SPARE_STEPS = 60

_ALL = """const all = [...document.querySelectorAll(
    'a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex="0"]')]
  .filter(e => e.checkVisibility({visibilityProperty: true}) && !e.disabled)
  // Of radio buttons that belong together one is reached, the others by arrows.
  .filter(e => e.type !== 'radio' || e.checked);"""

FOCUSABLE = f"() => {{ {_ALL} return all.map(e => (e.textContent || e.name || e.tagName).trim().slice(0, 60)); }}"

# By its place: a page that keeps itself up to date puts another element there.
FOCUSED = f"""() => {{
  {_ALL}
  const e = document.activeElement;
  const style = getComputedStyle(e);
  const outlined = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0;
  return {{place: all.indexOf(e), seen: outlined || style.boxShadow !== 'none', name: e.outerHTML.slice(0, 120)}};
}}"""

OVERFLOW = """() => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return [];
  return [...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > width + 1)
    .map(e => e.outerHTML.slice(0, 120));
}"""

BRIGHTNESS = """() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const bright = color => {
    canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
    const [r, g, b] = canvas.getImageData(0, 0, 1, 1).data;
    return (2 * r + 7 * g + b) / 2550;
  };
  const shown = getComputedStyle(document.documentElement).backgroundColor;
  const own = getComputedStyle(document.body).backgroundColor;
  const clear = color => color === 'rgba(0, 0, 0, 0)';
  return {ground: bright(clear(own) ? (clear(shown) ? 'Canvas' : shown) : own),
          text: bright(getComputedStyle(document.body).color)};
}"""


@dataclass
class Visit:
    """``asked``: addresses of every request. ``said``: errors and warnings of the console, and of scripts."""

    page: Page
    origin: str
    asked: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def go(self, path: str) -> Page:
        """Open a page of the served application, and wait until it has loaded."""
        response = self.page.goto(self.origin + path)
        assert response is not None
        assert response.ok, f"{path}: {response.status}"
        return self.page

    def foreign(self) -> list[str]:
        """Requests to anywhere else than the served application."""
        return [
            url
            for url in self.asked
            if not url.startswith(f"{self.origin}/") and urlsplit(url).scheme not in OWN_SCHEMES
        ]

    def check_quiet(self) -> None:
        """It asked nobody else for anything, and nothing went wrong in it."""
        assert self.foreign() == []
        assert self.said == []

    def check_accessible(self) -> None:
        """axe finds nothing serious. What it tries itself on a page that forbids it is not the page's doing."""
        before = len(self.said)
        grave = [item for item in Axe().run(self.page).response["violations"] if item["impact"] in GRAVE]
        del self.said[before:]
        assert [_fault(item) for item in grave] == []

    def check_keyboard(self) -> None:
        """Whatever can be used is reached by the tabulator key, and is seen to be."""
        wanted = self.page.evaluate(FOCUSABLE)
        reached, unseen = set(), []
        self.page.evaluate("() => { document.activeElement?.blur(); window.getSelection()?.removeAllRanges(); }")
        # A date has several places within, and so have charts.
        for _ in range(len(wanted) + SPARE_STEPS):
            if len(reached) == len(wanted):
                break
            self.page.keyboard.press("Tab")
            found = self.page.evaluate(FOCUSED)
            if found["place"] < 0:
                continue
            reached.add(found["place"])
            if not found["seen"]:
                unseen.append(found["name"])
        assert [name for place, name in enumerate(wanted) if place not in reached] == []
        assert unseen == []

    def check_fits(self) -> None:
        """Nothing has to be scrolled sideways but tables that scroll by themselves."""
        assert self.page.evaluate(OVERFLOW) == []

    def put_out_the_light(self) -> None:
        """From now on the system asks for dark pages."""
        self.page.emulate_media(color_scheme="dark")

    def narrow(self) -> None:
        """From now on it is seen on a phone."""
        self.page.set_viewport_size({"width": NARROW, "height": 740})

    def is_dark(self) -> bool:
        """Whether light text stands on a dark ground."""
        found = self.page.evaluate(BRIGHTNESS)
        return bool(found["text"] > found["ground"])

    def leave(self) -> None:
        """Close the page, before what it asks is gone."""
        self.page.context.close()

    def shoot(self, path: Path) -> None:
        """Keep a picture of the whole page."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=path, full_page=True)


def open_visit(
    browser: Browser,
    origin: str,
    *,
    scheme: Literal["light", "dark"] = "light",
    width: int = WIDE,
    script: bool = True,
    zone: str = "Europe/Berlin",
) -> Visit:
    """A browser that was never here before. Whoever calls closes ``visit.page.context``."""
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme=scheme,
        java_script_enabled=script,
        timezone_id=zone,
        locale="en-GB",
        reduced_motion="reduce",
    )
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    visit = Visit(page, origin)
    # Before a request is made, so that nothing of it leaves the machine even if the browser could.
    context.route("**/*", lambda route: _let(route, visit))
    page.on("request", lambda request: visit.asked.append(_url(request)))
    page.on("console", lambda message: _note(message, visit))
    page.on("pageerror", lambda error: visit.said.append(f"error: {error}"))
    return visit


def _let(route: Route, visit: Visit) -> None:
    if route.request.url.startswith(f"{visit.origin}/"):
        route.continue_()
    else:
        route.abort()


def _url(request: Request) -> str:
    return request.url


def _note(message: ConsoleMessage, visit: Visit) -> None:
    if message.type in ("error", "warning"):
        visit.said.append(f"{message.type}: {message.text}")


def _fault(item: dict[str, object]) -> str:
    nodes = item["nodes"]
    assert isinstance(nodes, list)
    places = "; ".join(f"{node['html'][:100]} ({node['failureSummary'][:200]})" for node in nodes[:3])
    return f"{item['id']}: {item['help']}, {len(nodes)} times: {places}"
