"""Pages of what the controller works with: engine environments, and the cluster's machines and their slots now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fastapi import APIRouter
from starlette.responses import HTMLResponse

from service.api import inventory as api
from service.api.dependencies import SettingsDependency, StoreDependency
from service.api.problems import ProblemError
from service.api.resources import Nodes
from service.dashboard.amounts import amount
from service.dashboard.pages import FrameDependency, html
from service.dashboard.render import render
from service.store import repositories

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True)
class Slot:
    """One resource of the cluster. ``share``: of it in use, in hundredths."""

    name: str
    used: str
    free: str
    total: str
    share: int


@dataclass(frozen=True)
class Machine:
    id: str
    host: str
    alive: bool
    has: str


@router.get("/environments/")
def show_environments(settings: SettingsDependency, frame: FrameDependency) -> HTMLResponse:
    """What a matrix may name, and what is built."""
    found = api.list_environments(settings)
    return html(render("environments.html", frame, named=found.named, built=found.built))


@router.get("/nodes/")
def show_nodes(store: StoreDependency, frame: FrameDependency) -> HTMLResponse:
    """The cluster's machines, what is free of them, and how many cells want it."""
    with store.reading() as session:
        states = repositories.open_cells(session)
    try:
        found, trouble = api.list_nodes(), None
    except ProblemError as error:
        found, trouble = Nodes(nodes=[], available={}), error.detail
    machines = [Machine(node.id, node.host, node.alive, _has(node.resources)) for node in found.nodes]
    page = render(
        "nodes.html",
        frame,
        trouble=trouble,
        slots=slots(found),
        nodes=machines,
        states=[(str(state).replace("_", " "), count) for state, count in sorted(states.items())],
    )
    return html(page)


def slots(found: Nodes) -> list[Slot]:
    """What the machines that are alive have in all, and what of it is in use."""
    total: dict[str, float] = {}
    for node in found.nodes:
        for name, has in node.resources.items() if node.alive else ():
            total[name] = total.get(name, 0.0) + has
    return [_slot(name, has, found.available) for name, has in total.items() if has > 0]


def _has(resources: Mapping[str, float]) -> str:
    return ", ".join(f"{size(name, value)} {word(name)}" for name, value in resources.items())


def _slot(name: str, total: float, available: Mapping[str, float]) -> Slot:
    free = min(total, available.get(name, 0.0))
    used = total - free
    return Slot(word(name), size(name, used), size(name, free), size(name, total), round(100 * used / total))


def size(name: str, value: float) -> str:
    """``2`` of what is counted, ``1.25 GiB`` of memory."""
    return amount(value, "B") if name.endswith("memory") else f"{value:g}"


def word(name: str) -> str:
    """Ray's name of a resource as people say it."""
    return name.replace("_", " ")
