"""How ``serve`` logs: for people, or a JSON object a line for programs. Either way with what a message is about.

    with about(sweep=sweep_id, run=run_id):
        logger.warning("no answer")      # has sweep and run, and so has all that is logged inside, in this thread

Single messages take it as ``extra``. Loggers are the standard library's; structlog only writes them down.
"""

from __future__ import annotations

import logging
import sys
from contextlib import AbstractContextManager
from typing import TextIO

import structlog
from structlog.contextvars import bound_contextvars, merge_contextvars
from structlog.stdlib import ExtraAdder, ProcessorFormatter, add_log_level, add_logger_name
from structlog.typing import EventDict, Processor, WrappedLogger

from service.settings import LogFormat, LogLevel

NOISY = ("httpx", "httpcore", "alembic")
"""Libraries whose every step is of no interest to an operator."""


def about(**what: str | int | None) -> AbstractContextManager[None]:
    """Everything that is logged inside the block, in this thread, is about this."""
    return bound_contextvars(**{key: value for key, value in what.items() if value is not None})


def configure(form: LogFormat, level: LogLevel, stream: TextIO = sys.stderr) -> None:
    """Let all loggers write to ``stream`` from now on, in this form."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(ProcessorFormatter(processors=_ends_in(form, stream), foreign_pre_chain=_BEGINS_WITH))
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    for name in NOISY:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))


_BEGINS_WITH: list[Processor] = [
    merge_contextvars,
    ExtraAdder(),
    add_log_level,
    add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]


def _drop_private(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Ray stamps every record for itself, as soon as it is imported."""
    return {key: value for key, value in event.items() if not key.startswith("_")}


def _ends_in(form: LogFormat, stream: TextIO) -> list[Processor]:
    if form is LogFormat.JSON:
        error = structlog.processors.format_exc_info
        return [
            ProcessorFormatter.remove_processors_meta,
            _drop_private,
            error,
            structlog.processors.JSONRenderer(default=str),
        ]
    console = structlog.dev.ConsoleRenderer(
        colors=stream.isatty(), exception_formatter=structlog.dev.plain_traceback, pad_event_to=0
    )
    return [ProcessorFormatter.remove_processors_meta, _drop_private, console]
