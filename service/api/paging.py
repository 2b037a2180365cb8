"""Parameters that every list has."""

from __future__ import annotations

from typing import Annotated, TypeVar

from fastapi import Query

from service.domain.cursor import LONGEST

Item = TypeVar("Item")

MOST = 100

Limit = Annotated[int, Query(ge=1, le=MOST, description="Items on a page")]
After = Annotated[
    str | None, Query(max_length=LONGEST, description="Go on behind this cursor: `next` of the page before")
]


def cut(found: list[Item], limit: int) -> tuple[list[Item], Item | None]:
    """The page, and its last item if there is more: of ``limit + 1`` items that were asked for."""
    page = found[:limit]
    return page, page[-1] if len(found) > limit else None
