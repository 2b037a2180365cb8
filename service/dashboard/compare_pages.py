"""The page that holds two cells against each other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter
from starlette.responses import HTMLResponse

from service.api import cells as api
from service.api.dependencies import StoreDependency
from service.dashboard.badges import Badge, verdict_badge
from service.dashboard.compare_view import comparison
from service.dashboard.complaints import NONE, Complaints
from service.dashboard.pages import FrameDependency, html
from service.dashboard.render import render
from service.page_paths import cell_page, sweep_page
from service.store import Store
from service.store.records import UnknownRecord

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True)
class Side:
    """One of the two, with links from the page."""

    letter: str
    cell: dict[str, Any]
    sweep: str
    verdict: Badge
    link: str
    sweep_link: str
    json: str


class _NotThere(ValueError):
    """A cell was asked for that there is none of."""


@router.get("/compare")
def compare(store: StoreDependency, frame: FrameDependency, a: str = "", b: str = "", all: str = "") -> HTMLResponse:
    """Two cells, each as ``sweep/cell``: what differs; with ``all`` what is alike too."""
    found: dict[str, dict[str, Any]] = {}
    wrong: dict[str, list[str]] = {}
    for name, text in (("a", a), ("b", b)):
        try:
            found[name] = _cell(store, text)
        except _NotThere as error:
            wrong[name] = [str(error)] if text else []
    wrong = {name: said for name, said in wrong.items() if said}
    both = len(found) == 2
    page = render(
        "compare.html",
        replace(frame, here="trends/"),
        found=comparison(found["a"], found["b"], bool(all)) if both else None,
        sides=[_side(name, found[name], frame.up) for name in ("a", "b")] if both else [],
        fields={"a": a, "b": b},
        everything=bool(all),
        complaints=Complaints(HTTPStatus.NOT_FOUND, wrong) if wrong else NONE,
    )
    return html(page, HTTPStatus.NOT_FOUND if wrong else HTTPStatus.OK)


def _cell(store: Store, text: str) -> dict[str, Any]:
    """
    Raises:
        _NotThere: ``text`` leads to no cell.
    """
    sweep_id, slash, cell_id = text.strip().partition("/")
    if not slash or not cell_id:
        raise _NotThere(f"{text[:60]!r} is no cell; write SWEEP/CELL")
    try:
        return api.get_cell(sweep_id, cell_id, store)
    except UnknownRecord as error:
        raise _NotThere(str(error)) from error


def _side(name: str, cell: dict[str, Any], up: str) -> Side:
    sweep_id, cell_id = quote(cell["sweep"], safe=""), quote(cell["id"], safe="")
    return Side(
        letter=name.upper(),
        cell=cell,
        sweep=cell["sweep"],
        verdict=verdict_badge(cell["verdict"]),
        link=up + cell_page(cell["sweep"], cell["id"]),
        sweep_link=up + sweep_page(cell["sweep"]),
        json=f"{up}v1/cells/{sweep_id}/{cell_id}",
    )
