"""Who asks, for handlers: the guard has found it out before."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import Depends, Request

from service.api.problems import ProblemError
from service.domain.keys import Scope
from service.keyring import Keyring, Principal


def principal_of(request: Request) -> Principal:
    principal: Principal = request.state.principal
    return principal


def _keyring(request: Request) -> Keyring:
    keyring: Keyring = request.app.state.keyring
    return keyring


PrincipalDependency = Annotated[Principal, Depends(principal_of)]
KeyringDependency = Annotated[Keyring, Depends(_keyring)]


def check_scope(principal: Principal, needed: Scope) -> None:
    """
    Raises:
        ProblemError: when ``principal`` may not do what needs this scope.
    """
    if not principal.scope.allows(needed):
        detail = f"this needs a key with the scope {needed}; {principal.name} has {principal.scope}"
        raise ProblemError(HTTPStatus.FORBIDDEN, "scope-missing", detail)


def _admin(principal: PrincipalDependency) -> None:
    check_scope(principal, Scope.ADMIN)


ADMIN_ONLY = Depends(_admin)
"""For routes that need more than their method says: ``dependencies=[ADMIN_ONLY]``."""
