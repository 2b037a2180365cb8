"""What all pages have in common: where the root is from here, the navigation, and who looks.

Links are relative, so pages work under any path prefix without being told of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """A page of the navigation; ``path`` is from the root, without the slash in front."""

    path: str
    text: str


ENTRIES = (
    Entry("", "Overview"),
    Entry("sweeps/", "Sweeps"),
    Entry("trends/", "Trends"),
    Entry("schedules/", "Schedules"),
    Entry("environments/", "Environments"),
    Entry("nodes/", "Nodes"),
    Entry("keys/", "Keys"),
)
"""The navigation. An application shows those of them that it has a route for."""


@dataclass(frozen=True)
class Frame:
    """``up``: from the page to the root, ``./`` on the root itself. ``here``: path of the entry that it belongs to.

    ``csrf``: what the forms of a session bring; without a session it has none. ``may_change``: whether who looks may
    submit and change sweeps.
    """

    up: str = "./"
    here: str = ""
    entries: Sequence[Entry] = ()
    csrf: str | None = None
    may_change: bool = False
    who: str = ""


BARE = Frame()
"""Of a page that nobody has been let in to."""
