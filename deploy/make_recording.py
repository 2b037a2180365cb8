"""Make a recording for the null engine of a run that Shardproof made: ``make_recording.py ARTIFACTS REPORT FOLDER``.

``ARTIFACTS`` is the folder of the sweep's artifacts, ``REPORT`` its report, ``FOLDER`` where the recording goes.
Recorded are the timed arms of the first cell whose compile times were taken: of these the report holds everything that
the processes told. The audit is asked of the engine environment once more. See ``workers.recording`` for the format.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from service.dispatch import questions
from service.domain.cell import Cell
from service.domain.verdict import Verdict
from service.settings import Settings
from workers.cache_keys import COMPILED, KEPT
from workers.null_engine import EVENT, SPAN, SUFFIX
from workers.probes.spans import ProcessSpans, read_all
from workers.protocol import ArmSpec, Check
from workers.recording import AUDIT

Json = dict[str, Any]
Line = tuple[float, str, Any]

ARMS = ("cold", "warm")
SAME_S = 1e-5
"""Two spans of one name whose lengths differ by less are one: the report has the same numbers, less their origin."""


def main(artifacts: Path, report: Path, folder: Path) -> None:
    cell = next(cell for cell in json.loads(report.read_text())["cells"] if (cell["compile"] or {}).get("warm"))
    (run,) = (artifacts / "cells" / cell["id"]).iterdir()
    folder.mkdir(parents=True, exist_ok=True)
    for role in ARMS:
        write(folder / f"{role}{SUFFIX}", arm(run / role, cell["compile"][role]))
    spec = ArmSpec.model_validate_json((run / ARMS[0] / "spec.json").read_bytes())
    write(folder / AUDIT, audited(spec))
    print(f"{folder}: {sum(path.stat().st_size for path in folder.iterdir())} bytes")


def write(path: Path, content: Json) -> None:
    """Without the time of day, so that the same content is the same file."""
    path.write_bytes(gzip.compress(json.dumps(content, separators=(",", ":")).encode(), mtime=0))


def audited(spec: ArmSpec) -> Json:
    """What the engine environment answers today to the settings of the recorded arm."""
    settings = Settings()
    requested = {**spec.engine, **{f"patches.{patch}": str(mode) for patch, mode in spec.patches.items()}}
    cell = Cell("recorded", "recorded", requested, (Verdict.PASS,), (Check.AUDIT, Check.COMPILE), ())
    reply = questions.audit(settings, [cell])
    (answer,) = reply.cells
    patches = {str(patch): str(mode) for patch, mode in spec.patches.items()}
    # What ranks are given before they import is of that machine, and nothing is preloaded for the null engine.
    catalogue = questions.catalogue(settings).model_copy(update={"for_ranks": {}})
    return {
        "catalogue": catalogue.model_dump(mode="json"),
        "cells": [{"engine": spec.engine, "patches": patches, "answer": answer.model_dump(mode="json")}],
    }


def arm(folder: Path, times: Json) -> Json:
    """``times``: of this arm, from the report."""
    spans = read_all(folder)
    result = json.loads((folder / "result.json").read_text())
    return {
        "seconds": times["total_s"],
        "processes": [process(told, spans[told["pid"]], times) for told in times["processes"] if told["pid"] in spans],
        "result": result,
        "cache": dict(cached(folder / KEPT)),
    }


def cached(kept: Path) -> Iterator[tuple[str, str]]:
    """The keys of what was compiled, where vLLM had them in the cache root."""
    for path in sorted(kept.rglob("*.json")):
        yield f"{COMPILED}/{path.relative_to(kept)}", path.read_text()


def process(told: Json, own: ProcessSpans, times: Json) -> Json:
    origin = origin_of(told, own)
    lines = [*events(told, times), *span_lines(own, origin)]
    return {"rank": told["rank"], "lines": sorted(lines, key=lambda line: line[0])}


def origin_of(told: Json, own: ProcessSpans) -> float:
    """When the arm was started, on the clock of the spans: the report counts from then."""
    for shown in told["spans"]:
        for span in own.spans:
            length = None if span.end is None or shown["end"] is None else span.end - span.begin
            if length is None or span.name != shown["name"] or span.depth != shown["depth"]:
                continue
            if abs(length - (shown["end"] - shown["begin"])) < SAME_S:
                return float(span.begin - shown["begin"])
    raise SystemExit(f"no span of process {told['pid']} is in the report as well")


def events(told: Json, times: Json) -> Iterator[Line]:
    rank = told["rank"]
    begins = [phase["begin"] for phase in told["phases"]]
    if rank is not None:
        yield min(begins), EVENT, {"kind": "rank", "rank": rank, "started": told["started"]}
    elif times["first_token_s"] is not None:
        yield times["first_token_s"], EVENT, {"kind": "first-token"}
    for phase in told["phases"]:
        for kind, at in (("phase-begin", phase["begin"]), ("phase-end", phase["end"])):
            yield at, EVENT, {"kind": kind, "name": phase["name"], "rank": rank}


def span_lines(own: ProcessSpans, origin: float) -> Iterable[Line]:
    for span in own.spans:
        yield span.begin - origin, SPAN, ["B", span.thread, span.name, *([span.arguments] if span.arguments else [])]
        if span.end is not None:
            yield span.end - origin, SPAN, ["E", span.thread, span.name]


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
