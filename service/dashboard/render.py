"""Templates to HTML. Whatever comes from outside is escaped; the templates hold no exception from that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from service.dashboard import view
from service.dashboard.view import SweepView, sweep_view
from service.store.records import SweepSummary

FOLDER = Path(__file__).parent
STATIC = FOLDER / "static"


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        seconds=view.seconds, value=view.value, held=view.held, divergence=view.divergence, moment=_moment
    )
    return environment


def _moment(iso: str | None) -> str:
    """``2026-11-30 02:15:00 UTC`` from what reports hold."""
    return view.NOTHING if iso is None else f"{iso[:19].replace('T', ' ')} UTC"


_TEMPLATES = _environment()


def render_static(report: Mapping[str, Any]) -> str:
    """The page of a report as one HTML file that needs nothing else: styles inside, no scripts."""
    # Our own file, and the one text in a page that must not be escaped.
    styles = Markup((STATIC / "style.css").read_text(encoding="utf-8"))
    return _TEMPLATES.get_template("static.html").render(page=sweep_view(report), styles=styles)


def render_sweep(page: SweepView, csrf: str | None, may_change: bool) -> str:
    """The page of a sweep, which keeps itself up to date until the sweep has ended.

    ``csrf``: what the forms of a session bring; without a session it has none. ``may_change``: whether who looks at it
    may cancel the sweep and run it again.
    """
    return _TEMPLATES.get_template("sweep.html").render(page=page, csrf=csrf, may_change=may_change)


def render_table(page: SweepView) -> str:
    """The part of a sweep's page that changes."""
    return _TEMPLATES.get_template("_sweep.html").render(page=page)


def render_list(sweeps: Sequence[SweepSummary], older: str | None, csrf: str | None) -> str:
    """The list of sweeps; ``older`` is the cursor of the next page, ``csrf`` as for a sweep."""
    return _TEMPLATES.get_template("sweeps.html").render(sweeps=sweeps, older=older, csrf=csrf)


def render_login(where: str, refused: str | None) -> str:
    """The form that asks for a key, and leads to ``where``; ``refused`` is why the last one opened nothing."""
    return _TEMPLATES.get_template("login.html").render(next=where, refused=refused)
