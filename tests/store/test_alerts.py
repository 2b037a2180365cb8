"""Webhooks and messages in the database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from alerts.told import notice, tell

from service.domain.webhooks import DeliveryState, WebhookKind
from service.store import Store
from service.store.alert_records import Webhook
from service.store.records import UnknownRecord
from service.store.repositories import alerts

NOW = datetime(2026, 11, 30, 3, tzinfo=UTC)
LEASE = timedelta(minutes=1)


def add(store: Store, webhook_id: str = "a") -> Webhook:
    webhook = Webhook(webhook_id, "https://x.example", WebhookKind.SLACK, ("hang",), "whsec_AAAA", NOW, "test")
    with store.transaction() as session:
        alerts.add_webhook(session, webhook)
    return webhook


def queue(store: Store, webhook_id: str = "a", at: datetime = NOW) -> int:
    with store.transaction() as session:
        return alerts.add_delivery(session, webhook_id, {"text": "é\n"}, at).id


def test_a_webhook_comes_back_as_it_was_written(store: Store) -> None:
    webhook = add(store)
    add(store, "b")
    with store.reading() as session:
        assert alerts.get_webhook(session, "a") == webhook
        assert [item.id for item in alerts.list_webhooks(session, 10)] == ["b", "a"]
        assert [item.id for item in alerts.list_webhooks(session, 10, "b")] == ["a"]
        with pytest.raises(UnknownRecord):
            alerts.get_webhook(session, "c")
    assert "AAAA" not in repr(webhook)
    assert "x.example" not in repr(webhook)


def test_it_is_behind_until_it_has_seen_what_is_new(store: Store) -> None:
    (old,) = tell(store, notice())
    add(store)
    with store.reading() as session:
        assert alerts.behind(session) == {}
    (new,) = tell(store, notice())
    with store.reading() as session:
        assert alerts.behind(session) == {"a": old}
    for expected in (True, False):
        with store.transaction() as session:
            assert alerts.has_seen(session, "a", old, new) is expected, "of two who try it one fails"
    with store.reading() as session:
        assert alerts.behind(session) == {}


def test_a_message_is_taken_by_one_and_concluded_by_whom_it_belongs_to(store: Store) -> None:
    webhook = add(store)
    number = queue(store)
    with store.transaction() as session:
        assert alerts.due_deliveries(session, NOW - LEASE, 10) == []
        assert alerts.due_deliveries(session, NOW, 10) == [number]
        first = alerts.take_delivery(session, number, NOW, LEASE)
    assert first is not None
    assert (first.payload, first.webhook, first.delivery.attempts) == ({"text": "é\n"}, webhook, 1)
    with store.transaction() as session:
        assert alerts.take_delivery(session, number, NOW, LEASE) is None
        second = alerts.take_delivery(session, number, NOW + LEASE, LEASE)
    assert second is not None
    with store.transaction() as session:
        ends = (DeliveryState.DELIVERED, NOW + LEASE, None, 200, None)
        assert not alerts.conclude_attempt(session, first.delivery, *ends)
        assert alerts.conclude_attempt(session, second.delivery, *ends)
        assert not alerts.conclude_attempt(session, second.delivery, *ends)
        assert alerts.take_delivery(session, number, NOW + 9 * LEASE, LEASE) is None
    with store.reading() as session:
        (found,) = alerts.list_deliveries(session, "a", 10)
    assert (found.state, found.attempts, found.status, found.ended_at) == ("delivered", 2, 200, NOW + LEASE)


def test_the_longest_overdue_comes_first(store: Store) -> None:
    add(store)
    late, later = queue(store, at=NOW), queue(store, at=NOW - LEASE)
    with store.reading() as session:
        assert alerts.due_deliveries(session, NOW, 10) == [later, late]
        assert alerts.due_deliveries(session, NOW, 1) == [later]


def test_a_webhook_takes_its_messages_along(store: Store) -> None:
    add(store)
    add(store, "b")
    queue(store)
    kept = queue(store, "b")
    with store.transaction() as session:
        alerts.delete_webhook(session, "a")
    with store.reading() as session:
        assert alerts.due_deliveries(session, NOW, 10) == [kept]
        with pytest.raises(UnknownRecord):
            alerts.list_deliveries(session, "a", 10)


def test_what_waits_is_not_forgotten(store: Store) -> None:
    add(store)
    waits, done = queue(store), queue(store)
    with store.transaction() as session:
        taken = alerts.take_delivery(session, done, NOW, LEASE)
        assert taken is not None
        alerts.conclude_attempt(session, taken.delivery, DeliveryState.FAILED, NOW, None, None, "gone")
        alerts.forget_deliveries(session, NOW + 9 * LEASE)
    with store.reading() as session:
        assert [item.id for item in alerts.list_deliveries(session, "a", 10)] == [waits]
