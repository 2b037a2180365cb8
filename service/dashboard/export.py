"""A report as one HTML file that opens without a network: the same figures as the pages, by the same templates."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from markupsafe import Markup

from service.dashboard.cell_view import cell_view
from service.dashboard.common import apart
from service.dashboard.frame import BARE
from service.dashboard.lines import figures_in, glance_of, lines_of
from service.dashboard.render import STATIC, render
from service.dashboard.sweep_view import SweepHead, sweep_view

STYLES = ("style.css", "sweep.css", "cell.css")


def render_static(report: Mapping[str, Any]) -> str:
    """The page of a report, its styles inside, without scripts.

    ``baselines`` of it, where they are there, shade the cells as on their page, see ``service.exports.baselines``.
    """
    head = _head(report["sweep"])
    cells = report["cells"]
    anchors = {cell["id"]: f"cell-{place}" for place, cell in enumerate(cells, start=1)}
    lines = lines_of(
        [glance_of(cell, head.id) for cell in cells],
        {cell["id"]: figures_in(cell) for cell in cells},
        lambda glance: f"#{anchors[glance.id]}",
        report.get("baselines"),
    )
    common, views = apart([cell_view(line, cell) for line, cell in zip(lines, cells, strict=True)])
    # Our own files, and the one text in a page that must not be escaped.
    styles = Markup("\n".join((STATIC / name).read_text(encoding="utf-8") for name in STYLES))
    return render(
        "static.html",
        BARE,
        page=sweep_view(head, lines, rows=max(1, len(lines))),
        cells=[*zip(anchors.values(), views, strict=True)],
        common=common,
        styles=styles,
        linked=False,
    )


def _head(sweep: Mapping[str, Any]) -> SweepHead:
    return SweepHead(
        id=sweep["id"],
        name=sweep["name"],
        created_at=datetime.fromisoformat(sweep["created_at"]),
        ended_at=_time(sweep["ended_at"]),
        artifacts_removed_at=_time(sweep.get("artifacts_removed_at")),
        matrix=sweep["matrix"],
    )


def _time(iso: str | None) -> datetime | None:
    return None if iso is None else datetime.fromisoformat(iso)
