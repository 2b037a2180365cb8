from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from .chromium import NoChromium, chromium, executable
from .scene import Scene, served
from .visit import PATIENCE_MS, Visit, open_visit

Visiting = Callable[..., Visit]


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """One for the tests of this folder. It is gone before others run an event loop in this thread."""
    try:
        executable()
    except NoChromium as missing:
        pytest.fail(str(missing), pytrace=False)
    expect.set_options(timeout=PATIENCE_MS)
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="package")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Served sweeps that nobody changes."""
    with served(tmp_path_factory.mktemp("scene")) as scene:
        yield scene


@pytest.fixture
def visiting(browser: Browser) -> Iterator[Visiting]:
    """Opens pages; at the end each of them has to have been quiet. ``loud=True``: not this one."""
    opened: list[tuple[Visit, bool]] = []

    def visit(origin: str, *, loud: bool = False, **options: Any) -> Visit:
        found = open_visit(browser, origin, **options)
        opened.append((found, loud))
        return found

    yield visit
    for found, loud in opened:
        found.leave()
        if not loud:
            found.check_quiet()
