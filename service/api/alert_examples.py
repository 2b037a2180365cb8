"""Examples of what is told of notices, and of webhooks, for the OpenAPI description."""

from __future__ import annotations

from typing import Any

_AT, _ID = "2026-11-30T02:15:00Z", "692ba6f4a1b2"

_NEW = {"url": "https://ci.example/hooks/shardproof", "kind": "generic", "kinds": ["regression", "new-failure"]}
_WEBHOOK = {
    "id": _ID,
    "host": "ci.example",
    "kind": "generic",
    "kinds": ["regression", "new-failure"],
    "created_at": _AT,
    "created_by": "692ba6f40a1b",
}
_DELIVERY = {
    "id": 7,
    "webhook_id": _ID,
    "state": "waiting",
    "attempts": 1,
    "created_at": _AT,
    "due_at": "2026-11-30T02:15:10Z",
    "ended_at": None,
    "status": 502,
    "detail": "answered 502",
}
_FEED = (
    "<?xml version='1.0' encoding='utf-8'?>\n"
    '<feed xmlns="http://www.w3.org/2005/Atom"><title>Shardproof</title>'
    "<id>tag:shardproof.example,2026-01-01:/feed</id><updated>2026-11-30T02:19:00+00:00</updated></feed>"
)

BODIES: dict[str, Any] = {"create_webhook": _NEW}
ANSWERS: dict[str, Any] = {
    "create_webhook": {**_WEBHOOK, "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo="},
    "list_webhooks": {"webhooks": [_WEBHOOK], "next": None},
    "get_webhook": _WEBHOOK,
    "delete_webhook": _WEBHOOK,
    "try_webhook": {**_DELIVERY, "attempts": 0, "status": None, "detail": None},
    "list_deliveries": {"deliveries": [_DELIVERY], "next": None},
    "read_feed": _FEED,
    "get_comment": "### Shardproof: nightly\n\n✓ 4 of 4 cells ok: 4 pass.\n",
}
