"""Webhooks are told: once, signed, again when it did not work, by one controller, and across restarts."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
from datetime import datetime, timedelta
from typing import Any

import pytest
from store.samples import SWEEP

from service.alerts.making import make_webhook
from service.alerts.passes import LEASE, Alerting, alerting
from service.domain.addresses import BadAddress
from service.domain.alerts import TOLD
from service.domain.notices import NoticeKind
from service.domain.webhooks import WAITS, DeliveryState, WebhookKind
from service.settings import Settings
from service.store import Store
from service.store.alert_records import Delivery, Webhook
from service.store.repositories import alerts

from .receiver import Receiver
from .told import AT, notice, tell


class Clock:
    """Stands still until it is put on."""

    def __init__(self) -> None:
        self.now = AT

    def __call__(self) -> datetime:
        return self.now


SETTINGS = Settings(public_url="https://ci.example/sp", alerts_to_private_addresses=True)


def webhook(store: Store, receiver: Receiver, kind: WebhookKind = WebhookKind.GENERIC, **fields: Any) -> Webhook:
    return make_webhook(store, SETTINGS, receiver.url, kind, fields.get("kinds", TOLD), "test")


def sender(store: Store, clock: Clock, leads: bool = True, settings: Settings = SETTINGS) -> Alerting:
    return Alerting(store, settings, lambda: leads, clock)


def sent(store: Store, of: Webhook) -> list[Delivery]:
    with store.reading() as session:
        return alerts.list_deliveries(session, of.id, 100)


def test_a_receiver_is_told_all_there_is_to_know(store: Store, receiver: Receiver) -> None:
    hook = webhook(store, receiver)
    (number,) = tell(store, notice())
    assert sender(store, Clock()).run_pass() == 1
    (got,) = receiver.got
    message = json.loads(got.body)
    link = f"https://ci.example/sp/sweeps/{SWEEP}"
    assert (message["schema"], message["sweep"], message["link"], message["more"]) == (
        "shardproof.alert/1",
        SWEEP,
        link,
        0,
    )
    (alert,) = message["alerts"]
    assert (alert["id"], alert["kind"], alert["figure"]) == (number, "regression", "warm_s")
    assert (alert["before"], alert["after"], alert["ratio"]) == (8.0, 12.4, 1.55)
    assert alert["since"] == "20261129-021500-00beef"
    assert (alert["versions"]["before"]["vllm"], alert["versions"]["after"]["vllm"]) == ("0.30.0", "0.31.0")
    assert alert["link"] == f"{link}/cells/c0"
    (delivery,) = sent(store, hook)
    assert (delivery.state, delivery.attempts, delivery.status) == (DeliveryState.DELIVERED, 1, 200)


def test_a_message_is_signed_over_id_time_and_body(store: Store, receiver: Receiver) -> None:
    hook = webhook(store, receiver)
    tell(store, notice())
    clock = Clock()
    sender(store, clock).run_pass()
    (got,) = receiver.got
    moment = got.headers["webhook-timestamp"]
    assert int(moment) == int(clock.now.timestamp())
    key = base64.b64decode(hook.secret.removeprefix("whsec_"))

    def signed(message_id: str, body: bytes) -> str:
        digest = hmac.new(key, f"{message_id}.{moment}.".encode() + body, hashlib.sha256).digest()
        return f"v1,{base64.b64encode(digest).decode()}"

    assert got.headers["webhook-signature"] == signed(got.headers["webhook-id"], got.body)
    assert got.headers["webhook-signature"] != signed(got.headers["webhook-id"], got.body + b" ")
    assert got.headers["webhook-signature"] != signed("msg_0", got.body)


def test_slack_is_told_in_its_own_form(store: Store, receiver: Receiver) -> None:
    webhook(store, receiver, WebhookKind.SLACK)
    tell(store, notice(what="<!channel> & <https://evil.example|here> is slow"))
    sender(store, Clock()).run_pass()
    message = json.loads(receiver.got[0].body)
    assert message.keys() == {"text"}
    assert "<!channel>" not in message["text"]
    assert "&lt;!channel&gt; &amp; &lt;https://evil.example¦here&gt;" in message["text"]
    assert f"<https://ci.example/sp/sweeps/{SWEEP}/cells/c0|" in message["text"]
    for fact in ("warm_s 8.0 s → 12.4 s (× 1.55)", "since sweep 20261129-021500-00beef", "vllm 0.30.0 → 0.31.0"):
        assert f"• {fact}" in message["text"]


def test_nothing_comes_twice_and_what_was_before_does_not_come(store: Store, receiver: Receiver) -> None:
    tell(store, notice(what="before there was a webhook"))
    webhook(store, receiver)
    passes = sender(store, Clock())
    assert passes.run_pass() == 0
    tell(store, notice(what="one"))
    assert [passes.run_pass() for _ in range(3)] == [1, 0, 0]
    assert sender(store, Clock()).run_pass() == 0, "nor by a controller that was started anew"
    assert [item["what"] for got in receiver.got for item in json.loads(got.body)["alerts"]] == ["one"]


def test_what_is_new_of_one_sweep_comes_in_one_message(store: Store, receiver: Receiver) -> None:
    webhook(store, receiver)
    tell(store, *(notice(cell_id=f"c{place}") for place in range(25)), notice(sweep_id="another"))
    assert sender(store, Clock()).run_pass() == 2
    messages = {message["sweep"]: message for message in (json.loads(got.body) for got in receiver.got)}
    assert [item["cell"] for item in messages[SWEEP]["alerts"]] == [f"c{place}" for place in range(20)]
    assert (messages[SWEEP]["more"], messages["another"]["more"]) == (5, 0)


def test_each_is_told_of_what_it_asked_for(store: Store, receiver: Receiver) -> None:
    webhook(store, receiver)
    webhook(store, receiver, kinds=[NoticeKind.SUSPECTED])
    tell(store, notice(kind=NoticeKind.SUSPECTED, what="perhaps"), notice(kind=NoticeKind.HANG, what="hangs"))
    assert sender(store, Clock()).run_pass() == 2
    told = sorted(item["what"] for got in receiver.got for item in json.loads(got.body)["alerts"])
    assert told == ["hangs", "perhaps"]


def test_what_did_not_arrive_is_sent_again_with_the_same_id(store: Store, receiver: Receiver) -> None:
    hook = webhook(store, receiver)
    receiver.answers = [500, 302, 200]
    tell(store, notice())
    clock = Clock()
    passes = sender(store, clock)
    assert passes.run_pass() == 1
    assert passes.run_pass() == 0, "not at once"
    (waits,) = sent(store, hook)
    assert (waits.state, waits.status, waits.due_at) == (DeliveryState.WAITING, 500, clock.now + WAITS[0])
    clock.now += WAITS[0]
    assert sender(store, clock).run_pass() == 1, "also by a controller that was started anew"
    clock.now += WAITS[1]
    assert passes.run_pass() == 1
    assert len({got.headers["webhook-id"] for got in receiver.got}) == 1
    assert len({got.headers["webhook-signature"] for got in receiver.got}) == 3, "each with its own time"
    assert sent(store, hook)[0].state is DeliveryState.DELIVERED


def test_a_receiver_that_never_answers_well_is_given_up(store: Store, receiver: Receiver) -> None:
    hook = webhook(store, receiver)
    receiver.answers = [503]
    tell(store, notice())
    clock = Clock()
    passes = sender(store, clock)
    for _ in range(len(WAITS) + 3):
        passes.run_pass()
        clock.now += WAITS[-1]
    (given_up,) = sent(store, hook)
    assert (given_up.state, given_up.attempts) == (DeliveryState.FAILED, len(WAITS) + 1)
    assert len(receiver.got) == len(WAITS) + 1


def test_who_wants_nothing_any_more_is_left_alone(store: Store, receiver: Receiver) -> None:
    hook = webhook(store, receiver)
    receiver.answers = [410]
    tell(store, notice())
    clock = Clock()
    sender(store, clock).run_pass()
    assert sent(store, hook)[0].state is DeliveryState.FAILED


def test_an_attempt_that_died_with_its_controller_is_made_again(store: Store, receiver: Receiver) -> None:
    hook = webhook(store, receiver)
    tell(store, notice())
    clock = Clock()
    dying = sender(store, clock)
    dying._gather()
    (message,) = dying._taken()
    other = sender(store, clock)
    assert other.run_pass() == 0, "it has a lease"
    clock.now += LEASE
    assert other.run_pass() == 1
    with store.transaction() as session:
        late = alerts.conclude_attempt(session, message.delivery, DeliveryState.FAILED, clock.now, None, 500, "late")
    assert not late, "who comes late changes nothing"
    assert (sent(store, hook)[0].state, sent(store, hook)[0].attempts) == (DeliveryState.DELIVERED, 2)


def test_who_does_not_lead_sends_nothing(store: Store, receiver: Receiver) -> None:
    webhook(store, receiver)
    tell(store, notice())
    assert sender(store, Clock(), leads=False).run_pass() == 0
    assert receiver.got == []


def test_nobody_follows_to_where_a_receiver_leads(store: Store, receiver: Receiver) -> None:
    hook = webhook(store, receiver)
    receiver.answers, receiver.location = [302], receiver.url.replace("/hook", "/inside")
    tell(store, notice())
    sender(store, Clock()).run_pass()
    assert [got.path for got in receiver.got] == ["/hook"]
    assert sent(store, hook)[0].detail == "answered 302"


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "[::1]", "0.0.0.0", "10.1.2.3", "169.254.169.254"])
def test_private_addresses_are_not_asked_unless_that_is_allowed(store: Store, receiver: Receiver, name: str) -> None:
    strict = Settings()
    url = receiver.url.replace("127.0.0.1", name)
    hook = make_webhook(store, SETTINGS, url, WebhookKind.GENERIC, TOLD, "test")
    tell(store, notice())
    sender(store, Clock(), settings=strict).run_pass()
    (refused,) = sent(store, hook)
    assert (refused.state, refused.status) == (DeliveryState.WAITING, None)
    assert "no address that everybody can reach" in str(refused.detail)
    assert receiver.got == []
    if name != "localhost":
        with pytest.raises(BadAddress):
            make_webhook(store, strict, url, WebhookKind.GENERIC, TOLD, "test")


def test_a_name_that_is_allowed_reaches_its_receiver(store: Store, receiver: Receiver) -> None:
    """The control of the one before: by name, with the name in the Host header."""
    url = receiver.url.replace("127.0.0.1", "localhost")
    make_webhook(store, SETTINGS, url, WebhookKind.GENERIC, TOLD, "test")
    tell(store, notice())
    sender(store, Clock()).run_pass()
    (got,) = receiver.got
    assert got.headers["host"] == url.removeprefix("http://").removesuffix("/hook")


def test_nobody_there_is_a_reason_in_words(store: Store, receiver: Receiver) -> None:
    hook = make_webhook(store, SETTINGS, "http://127.0.0.1:9/hook", WebhookKind.GENERIC, TOLD, "test")
    tell(store, notice())
    sender(store, Clock()).run_pass()
    assert "ConnectError" in str(sent(store, hook)[0].detail)


def test_what_was_sent_long_ago_is_forgotten(store: Store, receiver: Receiver) -> None:
    hook = webhook(store, receiver)
    tell(store, notice())
    clock = Clock()
    passes = sender(store, clock)
    passes.run_pass()
    clock.now += timedelta(days=89)
    passes.run_pass()
    assert len(sent(store, hook)) == 1
    clock.now += timedelta(days=2)
    passes.run_pass()
    assert sent(store, hook) == []


def test_it_goes_by_itself_and_ends(store: Store, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.alerts.passes.PASS_EVERY_S", 0.01)
    webhook(store, receiver)
    clock = Clock()
    broken = iter([True])

    def leads() -> bool:
        if next(broken, False):
            raise RuntimeError("the database is away")
        return True

    with alerting(Alerting(store, SETTINGS, leads, clock)):
        tell(store, notice())
        for _ in range(1000):
            if receiver.got:
                break
            threading.Event().wait(0.01)
    assert receiver.got, "also after a pass that failed"
