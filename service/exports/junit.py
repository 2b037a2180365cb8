"""JUnit XML: a cell is a test case. What is not ok never passes, and neither does what has not ended.

An unexpected verdict is a ``failure``; where nothing was found out about the engine (it crashed, ran out of time, has
not ended) it is an ``error``. A cell that is skipped, as was expected of it, is ``skipped``.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from junitparser import Error, Failure, JUnitXml, Properties, Property, Skipped, TestCase, TestSuite

from service.domain.verdict import Verdict

Json = Mapping[str, Any]

UNFINISHED = "unfinished"
_WITHOUT_ANSWER = (Verdict.CRASHED, Verdict.TIMED_OUT, Verdict.CANCELLED)

_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that no XML document may have; engines colour their logs with some."""


def junit(report: Json) -> bytes:
    """The JUnit file of a report, UTF-8. Times are in seconds."""
    sweep = report["sweep"]
    suite = TestSuite(_text(sweep["name"]))
    suite.timestamp = sweep["created_at"]
    suite.add_property("sweep", sweep["id"])
    suite.add_testcases([_case(cell, sweep) for cell in report["cells"]])
    file = JUnitXml("shardproof")
    file.add_testsuite(suite)
    file.update_statistics()  # type: ignore[no-untyped-call]
    content = io.BytesIO()
    file.write(content)
    return content.getvalue()


def _case(cell: Json, sweep: Json) -> TestCase:
    case = TestCase(_text(cell["name"]), f"shardproof.{_text(sweep['name'])}", _seconds(cell))
    case.append(_properties(cell))  # type: ignore[no-untyped-call]
    if cell["ok"] is None:
        case.result = _result(Error, f"has not ended: {cell['state']}", UNFINISHED, cell)
    elif not cell["ok"]:
        kind = Error if cell["verdict"] in _WITHOUT_ANSWER else Failure
        case.result = _result(kind, _headline(cell), cell["verdict"], cell)
    elif cell["verdict"] == Verdict.SKIPPED:
        case.result = Skipped("skipped, as expected")
    else:
        case.system_out = _text("\n".join(cell["reasons"]))
    return case


def _result(kind: type[Error | Failure], message: str, of: str, cell: Json) -> Error | Failure:
    result = kind(_text(message), of)
    result.text = _text(
        "\n".join(
            [
                f"verdict {cell['verdict'] or 'none yet'}, expected {' or '.join(cell['expect'])}",
                *cell["reasons"],
                *(problem["message"] for problem in cell["problems"]),
                f"again: {cell['reproduce']}",
            ]
        )
    )
    return result


def _headline(cell: Json) -> str:
    """What CI shows: the first finding in words."""
    findings = [reason for reason in cell["reasons"] if not reason.startswith("note:")]
    return findings[0] if findings else f"{cell['verdict']}, expected {' or '.join(cell['expect'])}"


def _properties(cell: Json) -> Properties:
    place = cell["environment"]
    found = {"verdict": cell["verdict"], "cell": cell["id"], "vllm": place["vllm"], "torch": place["torch"]}
    properties = Properties()  # type: ignore[no-untyped-call]
    for name, value in found.items():
        if value is not None:
            properties.add_property(Property(name, _text(value)))
    return properties


def _seconds(cell: Json) -> float:
    """Between stamps of the wall clock, which may have been set back."""
    if cell["started_at"] is None or cell["ended_at"] is None:
        return 0.0
    begin, end = (datetime.fromisoformat(cell[key]) for key in ("started_at", "ended_at"))
    return max((end - begin).total_seconds(), 0.0)


def _text(value: str) -> str:
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", value)
