"""``Idempotency-Key``: who sends a submission again, because he did not hear of the first, gets the same sweep."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Annotated

from fastapi import Depends, Header, Request

from service.api.dependencies import BodyDependency, StoreDependency
from service.api.principal import PrincipalDependency
from service.api.problems import ProblemError
from service.domain.errors import MatrixError
from service.store import Store
from service.store.repositories import access
from service.sweep_ids import new_sweep_id

REMEMBERED = timedelta(days=7)


@dataclass(frozen=True)
class Once:
    """A request that makes a sweep. ``key``: its ``Idempotency-Key``, if it has one; ``digest``: of all it says."""

    store: Store
    owner: str
    key: str | None
    digest: str

    def sweep(self, make: Callable[[str | None], str]) -> str:
        """The id of the sweep that ``make`` stores under the id it is given, or that an earlier such request made.

        Of two requests at once both may plan; the id, chosen before, can be stored only once.

        Raises:
            ProblemError: when the key stands for another request.
        """
        if self.key is None:
            return make(None)
        found = self._reserve(self.key, new_sweep_id())
        if found.stored:
            return found.sweep_id
        try:
            return make(found.sweep_id)
        except MatrixError:
            with self.store.transaction() as session:
                access.release(session, self.owner, self.key)
            raise
        except Exception:
            with self.store.reading() as session:
                if access.sweep_exists(session, found.sweep_id):
                    return found.sweep_id
            raise

    def _reserve(self, key: str, sweep_id: str) -> access.Submission:
        now = datetime.now(UTC)
        with self.store.transaction() as session:
            access.forget_submissions(session, now - REMEMBERED)
            found = access.reserve(session, self.owner, key, self.digest, sweep_id, now)
        if found.digest != self.digest:
            detail = "this Idempotency-Key was sent with another request before; take a new one for each submission"
            raise ProblemError(HTTPStatus.CONFLICT, "idempotency-key-reused", detail)
        return found


def _once(
    request: Request,
    body: BodyDependency,
    store: StoreDependency,
    principal: PrincipalDependency,
    idempotency_key: Annotated[
        str | None,
        Header(
            min_length=1,
            max_length=200,
            pattern=r"^[\x21-\x7e]+$",
            description="Any text of your own, new for each submission. Sent again with the same request within a "
            "week, it leads to the same sweep",
        ),
    ] = None,
) -> Once:
    said = (request.url.path, request.url.query, request.headers.get("content-type", ""))
    digest = hashlib.sha256("\n".join(said).encode("utf-8", "surrogatepass") + b"\n" + body).hexdigest()
    return Once(store, principal.key_id or "", idempotency_key, digest)


OnceDependency = Annotated[Once, Depends(_once)]
