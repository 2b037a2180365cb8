"""Events as they happen, by Server-Sent Events. A reader that was cut off goes on with ``Last-Event-ID``.

Each stream looks into the store every ``POLL_S`` seconds, whoever writes there: the controller that drives a sweep may
be another process. What was sent is what is stored, so nothing is held for readers that are slow or gone.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict
from http import HTTPStatus
from typing import Annotated, Any

import anyio
from anyio import to_thread
from fastapi import APIRouter, Header, Query
from sse_starlette import EventSourceResponse, ServerSentEvent

from service.api.dependencies import StoreDependency
from service.api.problems import RESPONSES, ProblemError
from service.api.schemas import EventPage
from service.store import Store, repositories
from service.store.plain import finite
from service.store.records import EventRecord, SweepState
from service.store.repositories import pages

POLL_S = 0.5
PING_S = 15
BATCH = 500
MOST_STREAMS = 64
"""Open at once in one process; each reads the store twice a second."""

END = "end"
"""The event after the last one. A browser would begin again where a stream just stops."""

LARGEST = 2**63 - 1

router = APIRouter(prefix="/v1", tags=["events"], responses=RESPONSES)

After = Annotated[int, Query(ge=0, le=LARGEST, description="Only events newer than this one: `next` of a page")]
LastEventId = Annotated[
    int | None, Header(ge=0, le=LARGEST, description="Go on behind this event; comes before `after`")
]

_SSE: dict[int | str, dict[str, Any]] = {
    HTTPStatus.OK: {
        "description": "Server-Sent Events: `id` is the number of the event, `event` its kind, `data` the event as in "
        "the list; `end` comes last, when nothing more can follow",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}

Read = Callable[[int], tuple[bool, Sequence[EventRecord]]]
"""From the last event that was seen: whether all has ended, and the events that follow."""


@router.get("/sweeps/{sweep_id}/events/stream", response_class=EventSourceResponse, responses=_SSE)
async def stream_sweep(
    sweep_id: str, store: StoreDependency, after: After = 0, last_event_id: LastEventId = None
) -> EventSourceResponse:
    """What happens in a sweep, as it happens, until it has ended."""

    def read(seen: int) -> tuple[bool, Sequence[EventRecord]]:
        with store.reading() as session:
            # The state comes first: what was stored before the end was said is then among the events.
            ended = repositories.get_sweep(session, sweep_id).state is SweepState.ENDED
            return ended, repositories.events_after(session, sweep_id, seen, BATCH)

    return await _stream(read, after if last_event_id is None else last_event_id)


@router.get("/runs/{run_id}/events")
def list_run_events(
    run_id: str, store: StoreDependency, after: After = 0, limit: Annotated[int, Query(ge=1, le=1000)] = 500
) -> EventPage:
    """What happened in a run, oldest first."""
    with store.reading() as session:
        pages.run_summary(session, run_id)
        events = pages.run_events_after(session, run_id, after, limit)
    return EventPage(events=events, next=events[-1].id if events else after)


@router.get("/runs/{run_id}/events/stream", response_class=EventSourceResponse, responses=_SSE)
async def stream_run(
    run_id: str, store: StoreDependency, after: After = 0, last_event_id: LastEventId = None
) -> EventSourceResponse:
    """What happens in a run, as it happens, until it has ended."""
    return await _stream(_run_reader(store, run_id), after if last_event_id is None else last_event_id)


def _run_reader(store: Store, run_id: str) -> Read:
    def read(seen: int) -> tuple[bool, Sequence[EventRecord]]:
        with store.reading() as session:
            ended = pages.run_summary(session, run_id).state.ended
            return ended, pages.run_events_after(session, run_id, seen, BATCH)

    return read


class _Places:
    """How many streams are open."""

    taken = 0


async def _stream(read: Read, seen: int) -> EventSourceResponse:
    """The stream of what ``read`` finds. What cannot be read at all is a problem document, not a stream."""
    if _Places.taken >= MOST_STREAMS:
        raise ProblemError(
            HTTPStatus.SERVICE_UNAVAILABLE,
            "too-many-streams",
            f"{MOST_STREAMS} streams are open; close one, or read the list of events page by page",
        )
    await to_thread.run_sync(read, seen)
    return EventSourceResponse(_events(read, seen), ping=PING_S)


async def _events(read: Read, seen: int) -> AsyncIterator[ServerSentEvent]:
    _Places.taken += 1
    try:
        ended = False
        while not ended:
            over, events = await to_thread.run_sync(read, seen)
            ended = over and not events
            for event in events:
                seen = event.id
                yield ServerSentEvent(_data(event), event=event.kind, id=str(event.id))
            if not events and not ended:
                await anyio.sleep(POLL_S)
        yield ServerSentEvent("{}", event=END)
    finally:
        _Places.taken -= 1


def _data(event: EventRecord) -> str:
    return json.dumps(finite(asdict(event)), allow_nan=False)
