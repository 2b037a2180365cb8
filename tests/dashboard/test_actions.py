"""Buttons of a sweep's page: they reach the controller, from this service's own pages alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from api.client import Client
from api.keyed import make_key
from api.test_problems import assert_problem
from dispatch.scripted import Asked, plan_of, settings_in, submit
from store.samples import sweep as new_sweep

from dashboard.page import Page
from dashboard.test_login import OWN, session
from service.app import create_app
from service.dispatch import controller as controllers
from service.dispatch.controller import Controller
from service.domain.keys import Scope
from service.store import Store, repositories
from workers.protocol import Check


@pytest.fixture
def sweep(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Client, str]:
    """A queued sweep, and a client of the controller that queued it."""
    settings = settings_in(tmp_path / "home")
    controller = Controller(settings, store)
    asked = Asked("a", (Check.COMPILE,))
    sweep_id = submit(controller, settings, asked)
    monkeypatch.setattr(controllers, "plan", lambda *_: plan_of(settings, asked))
    return Client(create_app(settings, store, controller)), sweep_id


def button(client: Client, sweep_id: str, headers: dict[str, str]) -> tuple[str, dict[str, str]]:
    """Where the page's form leads, and what it brings."""
    page = Page(client.get(f"/sweeps/{sweep_id}", headers=headers).text)
    where = [form["action"] for form in page.named("form") if "logout" not in str(form["action"])]
    (token,) = {str(field["value"] or "") for field in page.named("input")}
    return f"/sweeps/{where[0]}", {"csrf": token}


@pytest.mark.parametrize("keyed", [False, True])
def test_a_sweep_is_cancelled_and_run_again_from_its_page(sweep: tuple[Client, str], store: Store, keyed: bool) -> None:
    client, sweep_id = sweep
    headers = session(client, make_key(store, Scope.SUBMIT)) if keyed else {}
    for action, state in (("cancel", "ended"), ("rerun", "active")):
        where, fields = button(client, sweep_id, headers)
        assert where == f"/sweeps/{sweep_id}/{action}"
        foreign = headers | {"Origin": "http://evil.example"}
        assert_problem(client.post(where, data=fields, headers=foreign), 403, "cross-site")
        if keyed:
            assert_problem(client.post(where, data={"csrf": "wrong"}, headers=headers | OWN), 403, "csrf")
        response = client.post(where, data=fields, headers=headers | OWN)
        assert (response.status_code, response.headers["Location"]) == (303, f"../{sweep_id}")
        assert client.get(f"/v1/sweeps/{sweep_id}", headers=headers).json()["state"] == state


def test_who_may_only_look_is_offered_nothing(sweep: tuple[Client, str], store: Store) -> None:
    client, sweep_id = sweep
    headers = session(client, make_key(store, Scope.READ))
    page = Page(client.get(f"/sweeps/{sweep_id}", headers=headers).text)
    assert [form["action"] for form in page.named("form")] == ["../logout"]


def test_a_sweep_is_submitted_again_from_its_page_and_the_new_one_shown(sweep: tuple[Client, str]) -> None:
    client, sweep_id = sweep
    response = client.post(f"/sweeps/{sweep_id}/clone", headers=OWN)
    assert response.status_code == 303
    new = response.headers["Location"].removeprefix("../")
    assert new != sweep_id
    assert client.get(f"/sweeps/{new}").status_code == 200


def test_what_the_operator_alone_may_set_is_not_submitted_again_from_a_page(
    sweep: tuple[Client, str], store: Store
) -> None:
    client, _ = sweep
    matrix = {"name": "x", "engine": {"model": "tiny:llama"}, "matrix": {"env.LD_PRELOAD": ["a.so"]}}
    with store.transaction() as session:
        repositories.create_sweep(session, replace(new_sweep("20260101-000000-abcdef"), matrix=matrix), [])
    assert_problem(client.post("/sweeps/20260101-000000-abcdef/clone", headers=OWN), 422, "invalid-matrix")


def test_a_cell_is_cancelled_and_run_again_from_its_page(sweep: tuple[Client, str], store: Store) -> None:
    client, sweep_id = sweep
    path = f"/sweeps/{sweep_id}/cells/id-a"
    for action, state in (("cancel", "cancelled"), ("rerun", "queued")):
        (where,) = [form["action"] for form in Page(client.get(path).text).named("form")]
        assert where == f"id-a/{action}"
        response = client.post(f"{path}/{action}", headers=OWN)
        assert (response.status_code, response.headers["Location"]) == (303, "../id-a")
        with store.reading() as session:
            assert repositories.get_cell(session, sweep_id, "id-a").state == state
