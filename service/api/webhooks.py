"""Webhooks: who is told of what happens. Made, listed, tried and deleted by who has a key with the scope ``admin``."""

from __future__ import annotations

from datetime import UTC, datetime
from http import HTTPStatus
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Query, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field

from service.alerts.links import Links
from service.alerts.making import make_webhook
from service.alerts.passes import FORMS
from service.alerts.trial import trial
from service.api.dependencies import SettingsDependency, StoreDependency
from service.api.principal import ADMIN_ONLY, PrincipalDependency
from service.api.problems import RESPONSES
from service.domain.addresses import BadAddress
from service.domain.alerts import TOLD
from service.domain.notices import NoticeKind
from service.domain.webhooks import WebhookKind
from service.store.alert_records import Delivery
from service.store.alert_records import Webhook as StoredWebhook
from service.store.repositories import alerts

router = APIRouter(prefix="/v1/webhooks", tags=["webhooks"], responses=RESPONSES, dependencies=[ADMIN_ONLY])


class NewWebhook(BaseModel):
    """Somebody who is to be told. ``kinds``: of what; left open, of all but what is only suspected."""

    model_config = ConfigDict(extra="forbid")

    url: Annotated[str, Field(max_length=2000, examples=["https://ci.example/hooks/shardproof"])]
    kind: WebhookKind = WebhookKind.GENERIC
    kinds: Annotated[list[NoticeKind], Field(min_length=1, max_length=len(NoticeKind))] = list(TOLD)


class Webhook(BaseModel):
    """``host``: where it leads; the whole address may open something, and is not shown again."""

    id: str
    host: str
    kind: WebhookKind
    kinds: list[NoticeKind]
    created_at: datetime
    created_by: str


class CreatedWebhook(Webhook):
    """``secret``: what messages are signed with. It is shown this once."""

    secret: str


class WebhookPage(BaseModel):
    """``next`` is the value of ``before`` for the page of older webhooks, absent on the last one."""

    webhooks: list[Webhook]
    next: str | None


class DeliveryPage(BaseModel):
    """``next`` is the value of ``before`` for the page of older messages, absent on the last one."""

    deliveries: list[Delivery]
    next: int | None


@router.post("", status_code=HTTPStatus.CREATED)
def create_webhook(
    new: NewWebhook,
    response: Response,
    store: StoreDependency,
    settings: SettingsDependency,
    principal: PrincipalDependency,
) -> CreatedWebhook:
    """Have somebody told of what happens from now on."""
    who = principal.key_id or principal.name
    try:
        webhook = make_webhook(store, settings, new.url, new.kind, new.kinds, who)
    except BadAddress as error:
        item = {"type": "bad-address", "loc": ("body", "url"), "msg": str(error), "input": None}
        raise RequestValidationError([item]) from error
    response.headers["Location"] = f"/v1/webhooks/{webhook.id}"
    response.headers["Cache-Control"] = "no-store"
    return CreatedWebhook(**_shown(webhook).model_dump(), secret=webhook.secret)


@router.get("")
def list_webhooks(
    store: StoreDependency,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    before: Annotated[str | None, Query(description="Only older ones: `next` of a page")] = None,
) -> WebhookPage:
    """Webhooks, newest first."""
    with store.reading() as session:
        found = alerts.list_webhooks(session, limit + 1, before)
    page = found[:limit]
    return WebhookPage(webhooks=[_shown(item) for item in page], next=page[-1].id if len(found) > limit else None)


@router.get("/{webhook_id}")
def get_webhook(webhook_id: str, store: StoreDependency) -> Webhook:
    """One webhook."""
    with store.reading() as session:
        return _shown(alerts.get_webhook(session, webhook_id))


@router.delete("/{webhook_id}")
def delete_webhook(webhook_id: str, store: StoreDependency) -> Webhook:
    """Tell it no more, and forget what was sent to it; what it was."""
    with store.transaction() as session:
        return _shown(alerts.delete_webhook(session, webhook_id))


@router.post("/{webhook_id}/test", status_code=HTTPStatus.CREATED)
def try_webhook(webhook_id: str, store: StoreDependency, settings: SettingsDependency) -> Delivery:
    """Have a message sent that says it is a trial. What came of it is in the list of its deliveries, within seconds."""
    now = datetime.now(UTC)
    with store.transaction() as session:
        webhook = alerts.get_webhook(session, webhook_id)
        payload = FORMS[webhook.kind]("trial", [trial(now)], Links(settings.public_url).base)
        return alerts.add_delivery(session, webhook_id, payload, now)


@router.get("/{webhook_id}/deliveries")
def list_deliveries(
    webhook_id: str,
    store: StoreDependency,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    before: Annotated[int | None, Query(ge=1, le=2**63 - 1, description="Only older ones: `next` of a page")] = None,
) -> DeliveryPage:
    """What was sent to a webhook, newest first, and what came of it."""
    with store.reading() as session:
        found = alerts.list_deliveries(session, webhook_id, limit + 1, before)
    page = found[:limit]
    return DeliveryPage(deliveries=page, next=page[-1].id if len(found) > limit else None)


def _shown(webhook: StoredWebhook) -> Webhook:
    return Webhook(
        id=webhook.id,
        host=urlsplit(webhook.url).hostname or "",
        kind=webhook.kind,
        kinds=[NoticeKind(kind) for kind in webhook.kinds],
        created_at=webhook.created_at,
        created_by=webhook.created_by,
    )
