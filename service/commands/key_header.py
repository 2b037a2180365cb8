"""The key that commands send to a served controller."""

from __future__ import annotations

import os

VARIABLE = "SHARDPROOF_KEY"
"""No option of the command line: other users of a machine can read those."""


def authorization() -> dict[str, str]:
    """The header with the key in ``SHARDPROOF_KEY``; none where it is not set."""
    key = os.environ.get(VARIABLE, "").strip()
    return {"Authorization": f"Bearer {key}"} if key else {}
