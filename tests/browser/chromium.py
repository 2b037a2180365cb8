"""Which Chromium the tests drive, and how it is started: without a screen, and without a way off this machine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # A name that a page asks for leads nowhere, whatever the page is; the tests say which names were asked for.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
MISSING = (
    "there is no Chromium here ({}), and the pages are tested in one: install Debian's package `chromium` "
    "(`apt-get install chromium`)"
)


class NoChromium(RuntimeError):
    """Nothing to drive. The text says what to install."""


def executable(names: Sequence[str] = NAMES) -> str:
    """
    Raises:
        NoChromium: if none of ``names`` is a command.
    """
    for name in names:
        if (found := shutil.which(name)) is not None:
            return found
    raise NoChromium(MISSING.format(", ".join(names)))


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser of its own, with an empty profile. While it is there, this thread can run no event loop."""
    # Chromium's sandbox cannot be set up by root.
    flags = [*FLAGS, "--no-sandbox"] if os.geteuid() == 0 else [*FLAGS]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=flags)
        yield browser
        browser.close()
