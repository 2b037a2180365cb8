"""How alerts are handed to other services: signed as Standard Webhooks has it, and again when it did not work."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from datetime import timedelta
from enum import StrEnum

SECRET_PREFIX = "whsec_"
GONE = 410
"""Who answers so wants nothing any more (RFC 9110)."""

WAITS = tuple(timedelta(seconds=seconds) for seconds in (10, 60, 300, 1800, 7200, 21600, 43200))
"""Between one attempt and the next: eight in all, over a day."""


class WebhookKind(StrEnum):
    """``generic``: our own JSON. ``slack``: what Slack's incoming webhooks take, and services like it."""

    GENERIC = "generic"
    SLACK = "slack"


class DeliveryState(StrEnum):
    """``waiting``: to be sent, or sent again. ``failed``: given up."""

    WAITING = "waiting"
    DELIVERED = "delivered"
    FAILED = "failed"


def after_attempt(attempts: int, status: int | None) -> tuple[DeliveryState, timedelta | None]:
    """What becomes of a delivery after so many ``attempts``, and how long to wait for the next one.

    Args:
        status: of the answer; ``None`` where there was none.
    """
    if status is not None and 200 <= status < 300:
        return DeliveryState.DELIVERED, None
    if status == GONE or attempts > len(WAITS):
        return DeliveryState.FAILED, None
    return DeliveryState.WAITING, WAITS[attempts - 1]


def secret_of(random: bytes) -> str:
    """The secret of a webhook as its receiver is told it."""
    return SECRET_PREFIX + base64.b64encode(random).decode()


def signature(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """HMAC-SHA256 over id, time (Unix seconds) and body: a message can be neither changed nor sent again much later.

    Raises:
        ValueError: if ``secret`` is none that ``secret_of`` made.
    """
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except binascii.Error as error:
        raise ValueError("this is no secret of a webhook") from error
    signed = hmac.new(key, f"{message_id}.{timestamp}.".encode() + body, hashlib.sha256)
    return f"v1,{base64.b64encode(signed.digest()).decode()}"


def headers(secret: str, message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """What a message brings besides its body."""
    return {
        "Content-Type": "application/json",
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": signature(secret, message_id, timestamp, body),
    }
