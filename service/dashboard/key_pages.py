"""The page of API keys, for administrators: a new key is shown once, in the answer to its form."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends, Response
from starlette.responses import HTMLResponse, RedirectResponse

from service.api import keys as api
from service.api.dependencies import StoreDependency
from service.api.keys import CreatedKey, NewKey
from service.api.principal import ADMIN_ONLY, KeyringDependency, PrincipalDependency
from service.dashboard.complaints import NONE, Complaints, attempt
from service.dashboard.forms import form
from service.dashboard.frame import Frame
from service.dashboard.pages import FrameDependency, html
from service.dashboard.render import render
from service.domain.keys import DEFAULT_LIFE, Scope
from service.store import Store

PAGE = 100

BLANK = {"name": "", "scope": str(Scope.SUBMIT), "lifetime": DEFAULT_LIFE}

SCOPES = (
    (Scope.READ, "read: look"),
    (Scope.SUBMIT, "submit: and change sweeps"),
    (Scope.ADMIN, "admin: and keys"),
)

router = APIRouter(include_in_schema=False)

Fields = Annotated[dict[str, str], Depends(form)]


@router.get("/keys/")
def list_keys(
    store: StoreDependency, frame: FrameDependency, principal: PrincipalDependency, before: str | None = None
) -> HTMLResponse:
    """Keys, newest first, and a form for one more."""
    if not principal.scope.allows(Scope.ADMIN):
        return html(render("keys.html", frame, admitted=False), HTTPStatus.FORBIDDEN)
    return _page(store, frame, before=before)


@router.post("/keys/", dependencies=[ADMIN_ONLY])
def make_key(
    store: StoreDependency,
    frame: FrameDependency,
    keyring: KeyringDependency,
    principal: PrincipalDependency,
    fields: Annotated[dict[str, str], Depends(form)],
) -> HTMLResponse:
    """A new key, shown in this answer and never again; or the form again with what is wrong."""
    given = {key: fields.get(key, "").strip() for key in BLANK}
    first = not keyring.locked
    done = attempt(lambda: api.create_key(NewKey.model_validate(given), Response(), keyring, principal))
    if isinstance(done, Complaints):
        return _page(store, frame, fields={**BLANK, **fields}, complaints=done)
    return _page(store, frame, made=done, first=first)


@router.post("/keys/{key_id}/revoke", dependencies=[ADMIN_ONLY])
def revoke_key(key_id: str, keyring: KeyringDependency) -> RedirectResponse:
    """It opens nothing from now on."""
    keyring.revoke(key_id)
    return RedirectResponse("../", HTTPStatus.SEE_OTHER)


def _page(
    store: Store,
    frame: Frame,
    *,
    before: str | None = None,
    fields: Mapping[str, str] = BLANK,
    complaints: Complaints = NONE,
    made: CreatedKey | None = None,
    first: bool = False,
) -> HTMLResponse:
    found = api.list_keys(store, PAGE, before)
    page = render(
        "keys.html",
        frame,
        admitted=True,
        keys=found.keys,
        older=found.next,
        fields=fields,
        complaints=complaints,
        scopes=SCOPES,
        made=made,
        first=first,
    )
    return html(page, complaints.status)
