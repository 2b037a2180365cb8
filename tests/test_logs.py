"""What ``serve`` logs, read back line by line."""

from __future__ import annotations

import io
import json
import logging
import threading
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from store.samples import SWEEP, add_sweep, advance, arm_report, run_spec

from service.domain.lifecycle import State
from service.domain.verdict import Verdict
from service.logs import about, configure
from service.narration import narrate
from service.settings import LogFormat, LogLevel
from service.store import Store, open_store, repositories
from service.store.records import NewEvent
from workers.protocol import Failure, Outcome, Role

logger = logging.getLogger("service.test")


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """What is logged, as JSON from debug on. Afterwards loggers are as they were."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    for handler in handlers:
        root.removeHandler(handler)  # pytest's, which basicConfig would close
    configure(LogFormat.JSON, LogLevel.DEBUG, stream)
    yield stream
    root.handlers[:], root.level = handlers, level
    root.setLevel(level)


@pytest.fixture
def store(tmp_path: Any) -> Iterator[Store]:
    store = open_store(f"sqlite:///{tmp_path / 'shardproof.db'}")
    yield store
    store.close()


def lines(log: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.getvalue().splitlines()]


def own(log: io.StringIO) -> list[dict[str, Any]]:
    return [line for line in lines(log) if line["logger"] == "service.narration"]


def test_a_line_says_when_how_grave_who_and_what(log: io.StringIO) -> None:
    logger.warning("no %s", "answer", extra={"sweep": "s", "rank": 1, "_of_a_library": 7})
    (line,) = lines(log)
    assert datetime.fromisoformat(line.pop("timestamp")).tzinfo is not None
    said = {"event": "no answer", "level": "warning", "logger": "service.test", "sweep": "s", "rank": 1}
    # Where vLLM is imported, as in no controller, it stamps every record with a word of its own.
    assert {name: value for name, value in line.items() if not name.startswith("vllm")} == said


def test_what_a_block_is_about_stands_in_its_lines_and_in_no_other(log: io.StringIO) -> None:
    with about(sweep="s", run="r", rank=None):
        with about(rank=0):
            logger.info("inside")
        other = threading.Thread(target=lambda: logger.info("another thread"))
        other.start()
        other.join(10)
    logger.info("after")
    assert [{key: line.get(key) for key in ("sweep", "run", "rank")} for line in lines(log)] == [
        {"sweep": "s", "run": "r", "rank": 0},
        {"sweep": None, "run": None, "rank": None},
        {"sweep": None, "run": None, "rank": None},
    ]


def test_a_traceback_stays_in_its_line(log: io.StringIO) -> None:
    try:
        raise RuntimeError("first\nsecond")
    except RuntimeError:
        logger.exception("it failed")
    (line,) = lines(log)
    assert "RuntimeError: first\nsecond" in line["exception"]


def test_text_from_outside_makes_no_line_of_its_own(log: io.StringIO) -> None:
    logger.info("submitted", extra={"name_of_it": '"}\n{"event": "forged", "level": "info", "logger": "x"'})
    assert [line["event"] for line in lines(log)] == ["submitted"]


def test_what_is_below_the_level_and_libraries_steps_are_left_out(log: io.StringIO) -> None:
    configure(LogFormat.JSON, LogLevel.WARNING, log)
    logger.info("small")
    configure(LogFormat.JSON, LogLevel.DEBUG, log)
    logging.getLogger("httpx").info("HTTP Request")
    logger.debug("seen")
    assert [line["event"] for line in lines(log)] == ["seen"]


def test_for_people_it_is_text(log: io.StringIO) -> None:
    configure(LogFormat.TEXT, LogLevel.INFO, log)
    with about(sweep="s"):
        logger.warning("no answer", extra={"rank": 1})
    text = log.getvalue()
    assert "no answer" in text
    assert "sweep=s" in text
    assert "rank=1" in text
    assert "\x1b" not in text


def test_what_happens_to_a_sweep_is_told_with_sweep_run_and_rank(log: io.StringIO, store: Store) -> None:
    add_sweep(store)
    store.observe(narrate)
    died = arm_report(Role.COLD).model_copy(
        update={
            "outcome": Outcome.CRASHED,
            "failure": Failure(phase="dynamo", rank=1, message="out of memory", log_tail=[]),
        }
    )
    advance(store, "c0", State.QUEUED, State.LEASED, State.RUNNING)
    with store.transaction() as session:
        repositories.create_run(session, SWEEP, "c0", run_spec("run-1", "c0"), State.RUNNING)
        repositories.add_events(
            session,
            [
                NewEvent(SWEEP, 1.0, "arm-started", "c0", "run-1", Role.COLD),
                NewEvent(SWEEP, 2.0, "phase", "c0", "run-1", Role.COLD, 1, {"name": "dynamo"}),
                NewEvent(SWEEP, 3.0, "arm-finished", "c0", "run-1", Role.COLD, None, died.model_dump(mode="json")),
            ],
        )
    with store.transaction() as session:
        repositories.finish_run(session, "run-1", State.FAILED, None, "the cold arm died")
        repositories.conclude_cell(session, SWEEP, "c0", Verdict.CRASHED, False, [], State.FAILED)
    told = own(log)
    assert [line["event"] for line in told] == [
        "arm-started",
        "phase dynamo",
        "arm finished: out of memory",
        "run ended: the cold arm died",
        "cell cell c0 ended",
    ]
    assert {line["sweep"] for line in told} == {SWEEP}
    assert {line.get("run") for line in told} == {"run-1", None}
    assert [line.get("rank") for line in told] == [None, 1, 1, None, None]
    assert [line["level"] for line in told] == ["info", "debug", "warning", "warning", "info"]
    assert told[-1]["verdict"] == "crashed"


def test_what_is_rolled_back_is_not_told(log: io.StringIO, store: Store) -> None:
    add_sweep(store)
    store.observe(narrate)

    def half_done() -> None:
        with store.transaction() as session:
            repositories.conclude_cell(session, SWEEP, "c0", Verdict.CRASHED, False, [], State.CRASHED)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        half_done()
    assert own(log) == []
