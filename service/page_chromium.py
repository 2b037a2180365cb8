"""How long a browser takes until it shows something of a page, and how much it fetched for it."""

from __future__ import annotations

import os
import shutil
import socket
import statistics
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import uvicorn
from fastapi import FastAPI

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ("--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-sync")
PATIENCE_S = 30.0

FIRST_CONTENT = """() => new Promise(done => {
  const told = () => performance.getEntriesByName('first-contentful-paint')[0];
  if (told()) return done(told().startTime);
  new PerformanceObserver(() => { if (told()) done(told().startTime); }).observe({type: 'paint', buffered: true});
})"""
FETCHED = """() => [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]
  .reduce((sum, entry) => sum + entry.transferSize, 0)"""


class NoBrowser(RuntimeError):
    """There is no browser to measure with. The text says what to install."""


@dataclass(frozen=True)
class Shown:
    """Milliseconds from the request until something is seen, of the middle and the slowest visit; bytes fetched."""

    middle_ms: float
    slowest_ms: float
    fetched: int


def shown(app: FastAPI, paths: Mapping[str, str], times: int) -> dict[str, Shown]:
    """Visit each of ``paths``, name → path, so often, with nothing kept from the visit before.

    Raises:
        NoBrowser: where Playwright or Chromium are not installed.
    """
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        raise NoBrowser("Playwright is not installed; it is in the extra dev: pip install -e '.[dev]'") from error
    command = next(filter(None, map(shutil.which, NAMES)), None)
    if command is None:
        raise NoBrowser("there is no Chromium; install Debian's package chromium")
    flags = [*FLAGS, "--no-sandbox"] if os.geteuid() == 0 else [*FLAGS]
    found: dict[str, Shown] = {}
    with _served(app) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=command, args=flags)
        for name, path in paths.items():
            visits: list[tuple[float, int]] = []
            for _ in range(times + 1):
                context = browser.new_context()
                page = context.new_page()
                page.goto(url + path, wait_until="load")
                visits.append((page.evaluate(FIRST_CONTENT), page.evaluate(FETCHED)))
                context.close()
            # The first visit of all is also the browser's first.
            took = [first for first, _ in visits[1:]]
            found[name] = Shown(statistics.median(took), max(took), visits[-1][1])
        browser.close()
    return found


@contextmanager
def _served(app: FastAPI) -> Iterator[str]:
    """The address of ``app`` on loopback, served by a thread of this process."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off", timeout_graceful_shutdown=1))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join(PATIENCE_S)
