"""Pages of series: the list, and one over time with what people say of it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Depends, Query
from sqlalchemy.orm import Session
from starlette.responses import HTMLResponse, JSONResponse

from service.api.dependencies import StoreDependency
from service.dashboard import bokeh, plots, scales, trend_table, trends_view
from service.dashboard.badges import verdict_badge
from service.dashboard.complaints import NONE, Complaints
from service.dashboard.formats import value
from service.dashboard.frame import Frame
from service.dashboard.pages import HEADERS, FrameDependency, html
from service.dashboard.render import render
from service.dashboard.trend_chart import Chart, columns
from service.dashboard.trend_query import LINEAR, Asked, asked, ranges, written
from service.store import Store
from service.store.repositories import histories, series_notices, series_state, trends
from service.store.repositories import series as series_of
from service.store.repositories.trends import Stretch
from service.store.series_records import SeriesRecord, SeriesState

PAGE = 50
ROWS = 50
"""Nights that the table has."""

NOTICES = 10
MUTED_FOR = timedelta(days=14)
"""What the form to mute suggests."""

_SUMMARY = 120
"""Characters that the list shows of the settings."""

_FRAME_OF_PLOT = {
    "width": scales.WIDTH,
    "height": scales.HEIGHT,
    "left": scales.LEFT,
    "right": scales.RIGHT,
    "top": scales.TOP,
    "bottom": scales.BOTTOM,
}

router = APIRouter(include_in_schema=False)


def _address(
    figure: Annotated[Sequence[str], Query(max_length=40)] = (),
    since: str = "",
    until: str = "",
    scale: str = LINEAR,
) -> Callable[[Sequence[str]], Asked]:
    """What the address asks for, once it is known which figures there are."""
    return lambda known: asked(figure, known, since, until, scale)


Address = Annotated[Callable[[Sequence[str]], Asked], Depends(_address)]


@router.get("/trends/")
def list_series(store: StoreDependency, frame: FrameDependency, q: str = "", after: str | None = None) -> HTMLResponse:
    """Series by name; ``q``: a part of it."""
    with store.reading() as session:
        found = series_of.list_series(session, PAGE + 1, after, q.strip() or None)
    page = found[:PAGE]
    following = page[-1].id if len(found) > PAGE else None
    return html(render("trends.html", frame, series=[_row(item) for item in page], text=q.strip(), following=following))


def _row(record: SeriesRecord) -> dict[str, object]:
    written_settings = ", ".join(f"{key}: {value(item)}" for key, item in sorted(record.settings.items()))
    short = written_settings if len(written_settings) <= _SUMMARY else written_settings[: _SUMMARY - 1] + "…"
    badge = verdict_badge(record.last_verdict)
    return {"series": record, "settings": short, "machine": machine(record), "verdict": badge}


def machine(record: SeriesRecord) -> str:
    """``2 × H200, 16 cores``."""
    devices = f"{record.devices} × {record.device}" if record.devices else record.device
    return f"{devices}, {record.cores} cores" if record.cores else devices


@router.get("/trends/{series_id}")
def show_series(series_id: str, store: StoreDependency, frame: FrameDependency, address: Address) -> HTMLResponse:
    """One series over time."""
    with store.reading() as session:
        known = histories.figures_of(session, series_id)
        return page_of(session, frame, series_id, known, address(known))


@router.get("/trends/{series_id}/chart")
def show_chart(series_id: str, store: StoreDependency, address: Address) -> JSONResponse:
    """What the page's script draws."""
    with store.reading() as session:
        _, chart = _looked(session, series_id, address(histories.figures_of(session, series_id)))
    return JSONResponse(columns(chart), headers={"Cache-Control": "no-store"})


def _looked(session: Session, series_id: str, wanted: Asked) -> tuple[SeriesState, Chart]:
    state = series_state.state_of(session, series_id)
    stretch = Stretch(wanted.since, wanted.until)
    drawn = {name: trends.dots(session, series_id, name, stretch, len(wanted.figures)) for name in wanted.figures}
    changes = trends.version_changes(session, (dot.outcome for dots in drawn.values() for dot in dots))
    return state, trends_view.chart_of(wanted, drawn, changes, state)


def page_of(
    session: Session,
    frame: Frame,
    series_id: str,
    known: list[str],
    wanted: Asked,
    complaints: Complaints = NONE,
    fields: Mapping[str, str] | None = None,
) -> HTMLResponse:
    """The page of a series; ``complaints`` and ``fields`` are of a form that was sent and refused."""
    state, chart = _looked(session, series_id, wanted)
    record = state.series
    found = histories.history(session, series_id, [*wanted.figures], Stretch(wanted.since, wanted.until), ROWS)
    whole, phases = trends_view.choices(known, wanted)
    over = wanted.stretches()
    nonce = secrets.token_urlsafe(16)
    acceptable = trend_table.acceptable(found, state.figures)
    page = render(
        "series.html",
        frame,
        series=record,
        machine=machine(record),
        verdict=verdict_badge(record.last_verdict),
        state=state,
        standings=trends_view.standings(state),
        asked=wanted,
        since="" if wanted.since is None else written(wanted.since)[:10],
        until="" if wanted.until is None else written(wanted.until)[:10],
        whole=whole,
        phases=phases,
        stretches=[
            *((name, over(begin, None)) for name, begin in ranges(record.last_at)),
            ("all", over(None, None)),
        ],
        plots=plots.plots(chart),
        frame_of_plot=_FRAME_OF_PLOT,
        source=f"{frame.up}trends/{quote(series_id, safe='')}/chart{wanted.query()}",
        scripts=[f"{bokeh.FOLDER}/{name}" for name in bokeh.SCRIPTS],
        nonce=nonce,
        thinned=chart.thinned,
        totals=sum(curve.total for curve in chart.curves),
        rows=trend_table.rows(found, wanted.figures),
        labels=[curve.label for curve in chart.curves],
        points_query=wanted.rest_query(),
        notices=series_notices.notices(session, NOTICES, series_id=series_id),
        acceptable=[(item.key, item.text) for item in acceptable],
        complaints=complaints,
        none_wrong=NONE,
        fields={**_blank(), **(fields or {})},
    )
    answer = html(page, complaints.status if complaints is not NONE else 422 if wanted.problems else 200)
    answer.headers["Content-Security-Policy"] = _policy(nonce)
    return answer


def _policy(nonce: str) -> str:
    """That of all pages, and styles of who knows ``nonce``: Bokeh makes style elements as it draws."""
    return HEADERS["Content-Security-Policy"].replace("style-src 'self'", f"style-src 'self' 'nonce-{nonce}'")


def _blank() -> dict[str, str]:
    until = datetime.now(UTC) + MUTED_FOR
    return {"form": "", "point": "", "reason": "", "until": f"{until:%Y-%m-%d}"}


def again(
    store: Store, frame: Frame, series_id: str, complaints: Complaints, fields: Mapping[str, str]
) -> HTMLResponse:
    """The page of a series with a form as it was sent, and what is wrong with it."""
    with store.reading() as session:
        known = histories.figures_of(session, series_id)
        return page_of(session, frame, series_id, known, asked((), known, "", "", LINEAR), complaints, fields)
