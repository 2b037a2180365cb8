"""Forms of pages."""

from __future__ import annotations

from urllib.parse import parse_qsl

from fastapi import Request


async def form(request: Request) -> dict[str, str]:
    """The fields of a form; of several with one name the last."""
    return dict(parse_qsl((await request.body()).decode("utf-8", "replace"), keep_blank_values=True))
