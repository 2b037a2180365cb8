"""Fill a database with what people and controllers leave beside sweeps: keys, audit, schedules, webhooks."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Connection

from service.domain.keys import Scope
from service.domain.notices import NoticeKind
from service.domain.schedule import Cause, Missed
from service.domain.webhooks import DeliveryState, WebhookKind
from service.reads.rows import Row, insert, stamp
from service.reads.shape import Shape
from service.store.access_models import AuditRow, KeyRow
from service.store.alert_models import DeliveryRow, WebhookRow
from service.store.plain import dump_json
from service.store.schedule_models import FireRow, ScheduleRow
from service.store.schedule_records import FireState

SCHEDULES = tuple(f"nightly-{number:03d}" for number in range(100))
FIRES, DELIVERIES, KEYS = 400, 200, 300
WEBHOOKS = tuple(f"{number:012x}" for number in range(200))
MATRIX = dump_json({"name": "nightly", "engine": {"model": "tiny:llama"}})


def load_upkeep(connection: Connection, shape: Shape) -> None:
    """An entry of the audit trail for each sweep of ``shape``, years of schedules, and what webhooks were told."""
    insert(connection, KeyRow, [_key(number) for number in range(KEYS)])
    insert(connection, AuditRow, [_entry(sweep.number) for sweep in shape.sweeps()])
    insert(connection, ScheduleRow, [_schedule(name) for name in SCHEDULES])
    insert(connection, FireRow, list(_fires()))
    insert(connection, WebhookRow, [_webhook(webhook_id) for webhook_id in WEBHOOKS])
    insert(connection, DeliveryRow, list(_deliveries()))


def _key(number: int) -> Row:
    # Revoked: as long as no key is valid, who asks from this machine needs none.
    return {
        "id": f"{number:012x}",
        "name": f"ci {number}",
        "scope": Scope.READ,
        "digest": f"{number:064x}",
        "created_at": stamp(number),
        "created_by": "admin",
        "revoked_at": stamp(number, 1),
    }


def _entry(hour: int) -> Row:
    return {
        "at": stamp(hour),
        "key_id": f"{hour % KEYS:012x}",
        "actor": f"ci {hour % KEYS}",
        "action": "POST",
        "target": "/v1/sweeps",
        "status": 201,
        "client": "127.0.0.1",
    }


def _schedule(name: str) -> Row:
    return {
        "name": name,
        "cron": "0 2 * * *",
        "timezone": "Europe/Berlin",
        "missed": Missed.ONCE,
        "suspended": True,
        "matrix": MATRIX,
        "version": 1,
        "created_at": stamp(0),
        "updated_at": stamp(0),
        "served_until": stamp(0),
    }


def _fires() -> Iterator[Row]:
    for night in range(FIRES):
        for name in SCHEDULES:
            yield {
                "schedule": name,
                "due_at": stamp(24 * night),
                "cause": Cause.DUE,
                "state": FireState.SUBMITTED,
                "owner": "host:1:1.00",
                "claimed_at": stamp(24 * night),
                "lease_until": stamp(24 * night, 1),
                "attempts": 1,
                "ended_at": stamp(24 * night, 1),
                "sweep_id": f"{name}-{night}",
            }


def _webhook(webhook_id: str) -> Row:
    return {
        "id": webhook_id,
        "url": "https://alerts.example/shardproof",
        "kind": WebhookKind.GENERIC,
        "kinds": dump_json([NoticeKind.REGRESSION]),
        "secret": "no secret: nothing is sent",
        "created_at": stamp(0),
        "created_by": "admin",
        "seen": 0,
    }


def _deliveries() -> Iterator[Row]:
    for number in range(DELIVERIES):
        for webhook_id in WEBHOOKS:
            yield {
                "webhook_id": webhook_id,
                "payload": MATRIX,
                "state": DeliveryState.DELIVERED,
                "attempts": 1,
                "created_at": stamp(number),
                "due_at": stamp(number),
                "ended_at": stamp(number, 1),
                "status": 200,
            }
