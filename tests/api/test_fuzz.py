"""Every route there is, asked by schemathesis with what fits its description and with what does not.

Whoever asks, and whatever he sends: no answer is a server's error, and every error is a problem document. The routes
are read from the application, so that one which is added is asked too. No cluster is connected, and 503 that says so is
no fault of the server.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from dispatch.scripted import Asked, plan_of, settings_in, submit
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from starlette.responses import PlainTextResponse
from store.samples import SWEEP, add_sweep, evidence, finish

from api.client import StoringController
from api.keyed import bearer, make_key
from api.server import serving
from service.app import create_app
from service.dispatch import controller as controllers
from service.dispatch.controller import Controller
from service.domain.keys import Scope
from service.settings import Settings
from service.store import Store, open_store
from service.store.database import create_engine
from workers.protocol import Check

pytestmark = pytest.mark.slow

REQUESTS = 900
"""In all, shared out among the routes, so that the time this takes does not grow with their number."""

TIMEOUT_S = 20
PROBLEM = "application/problem+json"
CHECKS = [status_code_conformance, content_type_conformance, response_schema_conformance]


def description() -> dict[str, Any]:
    """OpenAPI's, which nothing behind the application is needed for."""
    store = Store(create_engine("sqlite://"))
    return create_app(Settings(), store, StoringController(store)).openapi()


SCHEMA = schemathesis.openapi.from_dict(description())
OPERATIONS = {operation.ok().label: operation.ok() for operation in SCHEMA.get_all_operations()}
EXAMPLES = max(3, REQUESTS // (8 * len(OPERATIONS)))


@dataclass(frozen=True)
class Api:
    """A served controller and a key of each scope. ``known``: path parameters that lead to something."""

    url: str
    keys: dict[Scope, str]
    known: tuple[dict[str, str], ...]


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """The controller itself on a real database; in place of the engine environment two cells answer to any matrix."""
    settings = settings_in(tmp_path_factory.mktemp("fuzz"))
    store = open_store(settings.store_url)
    asked = Asked("a", (Check.COMPILE,)), Asked("b", (Check.COMPILE,))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(controllers, "plan", lambda *_: plan_of(settings, *asked))
        controller = Controller(settings, store)
        queued = submit(controller, settings, *asked)
        add_sweep(store, cells=1)
        finish(store, "c0", evidence())
        keys = {scope: make_key(store, scope) for scope in Scope}
        unlimited = settings.model_copy(update={"rate_limit_per_minute": 0})
        known = ({"sweep_id": queued, "cell_id": "id-a"}, {"sweep_id": SWEEP, "cell_id": "c0"})
        with serving(create_app(unlimited, store, controller)) as url:
            yield Api(url, keys, known)
    store.close()


def test_there_is_something_to_ask() -> None:
    assert {"POST /v1/sweeps", "GET /v1/sweeps/{sweep_id}", "PATCH /v1/keys/{key_id}"} <= OPERATIONS.keys()


@pytest.mark.parametrize("label", OPERATIONS)
@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode))
def test_with_every_right(api: Api, label: str, mode: schemathesis.GenerationMode) -> None:
    headers = bearer(api.keys[Scope.ADMIN])

    def ask(case: schemathesis.Case) -> None:
        response = answer(api, case, headers)
        check(case, response)

    asked(api, label, mode, ask)


@pytest.mark.parametrize("label", OPERATIONS)
def test_with_a_key_that_may_only_look(api: Api, label: str) -> None:
    headers = bearer(api.keys[Scope.READ])

    def ask(case: schemathesis.Case) -> None:
        response = answer(api, case, headers)
        check_problem(response)
        if case.method != "GET":
            assert response.status_code in (400, 403, 413)

    asked(api, label, schemathesis.GenerationMode.POSITIVE, ask)


@pytest.mark.parametrize("label", OPERATIONS)
def test_without_a_key(api: Api, label: str) -> None:
    open_to_all = OPERATIONS[label].definition.raw.get("security") == []

    def ask(case: schemathesis.Case) -> None:
        response = answer(api, case, {})
        check_problem(response)
        if not open_to_all:
            assert response.status_code in (400, 401, 413, 429)

    asked(api, label, schemathesis.GenerationMode.POSITIVE, ask)


def test_a_route_that_breaks_is_found(tmp_path: Path) -> None:
    """The same checks on an application with two faults: an error of its own, and one that is no problem document."""
    store = open_store(f"sqlite:///{tmp_path / 'db'}")
    app = create_app(Settings(home=tmp_path), store, StoringController(store))

    def broken(number: int) -> str:
        return "x" * (10 // number)

    def rude(number: int) -> PlainTextResponse:
        return PlainTextResponse("no", 404)

    for route in (broken, rude):
        app.add_api_route(f"/v1/{route.__name__}", route, response_class=PlainTextResponse)
    schema = schemathesis.openapi.from_dict(app.openapi())
    with serving(app) as url:
        for route in (broken, rude):
            case = schema[f"/v1/{route.__name__}"]["GET"].Case(query={"number": 0})
            response = answer(Api(url, {}, ()), case, {})
            with pytest.raises((AssertionError, FailureGroup)):
                check(case, response)


def asked(api: Api, label: str, mode: schemathesis.GenerationMode, ask: Callable[[schemathesis.Case], None]) -> None:
    """``ask`` examples of an operation, the same ones each time: on what is there, and on what is not."""
    operation = OPERATIONS[label]
    wanted = {item["name"] for item in operation.definition.raw.get("parameters", []) if item["in"] == "path"}
    # A stream of a sweep that has not ended does not end either.
    known = () if label.endswith("/stream") else api.known
    for parameters in [*({name: item[name] for name in wanted & item.keys()} for item in known), None]:
        if parameters == {}:
            continue
        strategy = operation.as_strategy(generation_mode=mode, path_parameters=parameters)
        limits = settings(
            max_examples=EXAMPLES,
            derandomize=True,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        # An operation that takes nothing cannot be asked wrongly.
        with contextlib.suppress(Unsatisfiable):
            limits(given(case=strategy)(ask))()


def answer(api: Api, case: schemathesis.Case, headers: dict[str, str]) -> Any:
    return case.call(base_url=api.url, headers=headers, timeout=TIMEOUT_S)


def check(case: schemathesis.Case, response: Any) -> None:
    """What schemathesis holds against the description, and that errors are problem documents."""
    check_problem(response)
    case.validate_response(response, checks=CHECKS)


def check_problem(response: Any) -> None:
    """Every error is a problem document with a code, and none is the server's own."""
    assert response.status_code < 500 or response.status_code == HTTPStatus.SERVICE_UNAVAILABLE, response.text
    if response.status_code >= 400:
        assert response.headers["content-type"] == [PROBLEM], response.text
        assert response.json()["code"]
