from __future__ import annotations

from datetime import timedelta

import pytest

from service.domain.webhooks import WAITS, DeliveryState, after_attempt, headers, secret_of, signature


def test_the_signature_is_that_of_the_standard() -> None:
    """The example that the libraries of Standard Webhooks test themselves with."""
    secret, message, moment = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330
    body = b'{"test": 2432232314}'
    assert signature(secret, message, moment, body) == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert headers(secret, message, moment, body)["webhook-id"] == message


def test_every_part_is_signed() -> None:
    secret = secret_of(b"0" * 32)
    signed = {
        signature(secret, "msg_1", 1, b"{}"),
        signature(secret, "msg_2", 1, b"{}"),
        signature(secret, "msg_1", 2, b"{}"),
        signature(secret, "msg_1", 1, b"[]"),
        signature(secret_of(b"1" * 32), "msg_1", 1, b"{}"),
    }
    assert len(signed) == 5


def test_what_is_no_secret_signs_nothing() -> None:
    with pytest.raises(ValueError, match="no secret"):
        signature("whsec_*", "msg_1", 1, b"{}")


@pytest.mark.parametrize("status", [200, 204, 299])
def test_what_arrived_is_done(status: int) -> None:
    assert after_attempt(1, status) == (DeliveryState.DELIVERED, None)


@pytest.mark.parametrize("status", [None, 199, 301, 400, 404, 429, 500, 503])
def test_what_did_not_is_sent_again_after_ever_longer(status: int | None) -> None:
    waits = [after_attempt(attempts, status) for attempts in range(1, len(WAITS) + 1)]
    assert waits == [(DeliveryState.WAITING, wait) for wait in WAITS]
    assert list(WAITS) == sorted(set(WAITS))
    assert timedelta(hours=12) < sum(WAITS, timedelta()) < timedelta(days=2)
    assert after_attempt(len(WAITS) + 1, status) == (DeliveryState.FAILED, None)


def test_who_wants_nothing_is_left_alone() -> None:
    assert after_attempt(1, 410) == (DeliveryState.FAILED, None)
