"""Who did what when, for who has a key with the scope ``admin``."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel

from service.api.dependencies import StoreDependency
from service.api.principal import ADMIN_ONLY
from service.api.problems import RESPONSES
from service.store.repositories import audit
from service.store.repositories.audit import AuditRecord

router = APIRouter(prefix="/v1/audit", tags=["audit"], responses=RESPONSES, dependencies=[ADMIN_ONLY])


class AuditPage(BaseModel):
    """``next`` is the value of ``before`` for the page of older entries, absent on the last one."""

    entries: list[AuditRecord]
    next: int | None


@router.get("")
def list_audit(
    store: StoreDependency,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    before: Annotated[
        int | None, Query(ge=0, le=2**63 - 1, description="Only entries older than this one: `next` of a page")
    ] = None,
    key_id: Annotated[str | None, Query(max_length=100, description="Only what was done with this key")] = None,
) -> AuditPage:
    """What was changed, and what somebody tried to change and might not; newest first."""
    with store.reading() as session:
        found = audit.list_audit(session, limit + 1, before, key_id)
    page = found[:limit]
    return AuditPage(entries=page, next=page[-1].id if len(found) > limit else None)
