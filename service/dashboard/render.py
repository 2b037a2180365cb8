"""Templates to HTML. Whatever comes from outside is escaped; the templates hold no exception from that."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from service.dashboard import formats, residual_map
from service.dashboard.badges import held_badge
from service.dashboard.frame import Frame

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
        age=formats.age,
        amount=formats.amount,
        divergence=formats.divergence,
        elapsed=elapsed,
        held=held_badge,
        moment=moment,
        number=formats.number,
        seconds=formats.seconds,
        value=formats.value,
    )
    environment.globals["residual_legend"] = residual_map.LEGEND
    return environment


def moment(at: datetime | str | None) -> Markup | str:
    """A point in time, in UTC; a script shows it in the zone of whoever looks. ``at`` may be as reports hold it."""
    if at is None:
        return formats.NOTHING
    found = (datetime.fromisoformat(at) if isinstance(at, str) else at).astimezone(UTC)
    shown = found.strftime("%Y-%m-%d %H:%M:%S UTC")
    return Markup('<time datetime="{}">{}</time>').format(found.strftime("%Y-%m-%dT%H:%M:%SZ"), shown)


def elapsed(passed_s: float) -> Markup:
    """Seconds that a script counts on."""
    return Markup('<span data-elapsed="{}">{}</span>').format(round(passed_s, 1), formats.seconds(passed_s))


_TEMPLATES = _environment()


def render(template: str, frame: Frame, **context: Any) -> str:
    """The page that ``template`` makes of ``context``."""
    return _TEMPLATES.get_template(template).render(frame=frame, **context)
