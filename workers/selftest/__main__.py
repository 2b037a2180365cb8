"""``python -m workers.selftest``: put known faults into running engines and count what the checker finds.

One engine says what is right (SP off), one under SP carries most faults, switched on one after the other, each for one
batch plan. Pipeline stages and a graph cut in pieces take engines of their own. The checker is the one that judges
cells. It is given folders and never the fault's name.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

from workers.protocol import Outcome
from workers.residual.taps import site_name
from workers.selftest import escapes
from workers.selftest.catalogue import (
    FAULT_PLAN,
    REPLICATED,
    RESIDUAL,
    RIGHT_GRAPHS,
    SP,
    UNGUARDED,
    Entry,
    Healthy,
    Span,
    catalogue,
    healthy,
)
from workers.selftest.engines import Engine, engines, record, trials
from workers.selftest.judge import Finding, Noise, Recording, judge, noise_of

ENDED = "engine-ended"
"""What finds a fault with which the engine does not come through."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m workers.selftest", description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where the recordings go")
    parser.add_argument("--models", type=Path, required=True, help="folder of tiny models")
    parser.add_argument("--reply", type=Path, required=True, help="file for the result, JSON")
    parser.add_argument("--quick", action="store_true", help="every kind of fault once, few healthy runs")
    parser.add_argument("--keep", action="store_true", help="leave the recordings there; else they are removed")
    parser.add_argument("--recorded", action="store_true", help="start no engine: judge recordings that were kept")
    parser.add_argument("--escapes", type=Path, help="file for the table of what escapes without each check, Markdown")
    arguments = parser.parse_args()
    test = SelfTest(arguments.folder, arguments.quick)
    try:
        if not arguments.recorded:
            test.record(arguments.models)
        result = test.judge()
        arguments.reply.write_text(json.dumps(result))
        if arguments.escapes:
            arguments.escapes.write_text(escapes.table(result["rows"]))
    finally:
        if not arguments.keep and not arguments.recorded:
            shutil.rmtree(arguments.folder, ignore_errors=True)


class SelfTest:
    """The faults and the healthy runs of one self-test, whose recordings lie in ``folder``."""

    def __init__(self, folder: Path, quick: bool) -> None:
        self.folder = folder
        self.entries = catalogue(quick)
        self.healthy, self.plans = healthy(quick)
        self.engines = engines(self.entries)

    # --- recording ----------------------------------------------------------------------------------------------------

    def record(self, models: Path) -> None:
        """Start every engine, one after the other.

        Raises:
            SystemExit: when one did not come through that should.
        """
        for engine in self.engines.values():
            todo = trials(engine, self.entries, self.healthy, self.plans)
            outcome = record(engine, self.entries, todo, self.folder, models)
            if outcome is not Outcome.OK and engine.name != UNGUARDED:
                raise SystemExit(f"the {engine.name} engine of the self-test ended as {outcome}, see above")
            if outcome is Outcome.OK:
                self._complete(engine)

    def _complete(self, engine: Engine) -> None:
        """Give each recording what the ranks told, with the graphs of its own compile ranges alone."""
        told = json.loads((self.folder / engine.name / "result.json").read_text())["ranks"]
        graphs = {entry.name: entry.graphs for entry in self.entries if entry.engine == engine.name}
        for path in (self.folder / engine.name).glob("*/result.json"):
            spans = graphs.get(path.parent.name, RIGHT_GRAPHS) if engine.name == SP else ()
            result = json.loads(path.read_text())
            ranks = [_with_graphs(rank, spans) for rank in result.get("ranks", told)]
            path.write_text(json.dumps(result | {"ranks": ranks}))

    # --- judging ------------------------------------------------------------------------------------------------------

    def judge(self) -> dict[str, Any]:
        """``faults``, ``found``, ``placed``, ``healthy``, ``false_alarms`` and ``rows``, one for each fault."""
        rows = [self._row(entry) for entry in self.entries]
        alarms = [alarm for run in self.healthy if (alarm := self._alarm(run)) is not None]
        return {
            "faults": len(rows),
            "found": sum(row["found"] for row in rows),
            "placed": sum(row["placed"] for row in rows),
            "healthy": len(self.healthy),
            "false_alarms": len(alarms),
            "rows": rows,
            "alarms": alarms,
        }

    def _recording(self, engine: str, name: str) -> Recording:
        return Recording(self.engines[engine], self.folder / engine / name)

    def _finding(self, entry: Entry) -> Finding:
        if entry.engine == REPLICATED:
            return judge(self._recording(SP, FAULT_PLAN), self._recording(REPLICATED, entry.name))
        if not (self.folder / entry.engine / entry.name / "result.json").exists():
            return Finding(frozenset({ENDED}), None)
        subject, control = self._recording(entry.engine, entry.name), self._recording(REPLICATED, entry.plan)
        return judge(subject, control, left_out=entry.left_out)

    def _row(self, entry: Entry) -> dict[str, Any]:
        """What was put in, and what was seen."""
        finding = self._finding(entry)
        return {
            "engine": entry.engine,
            "kind": entry.fault.kind,
            "site": None if entry.site is None else site_name(entry.site),
            "ranks": sorted(entry.ranks),
            "check": entry.check,
            "found": bool(finding.by),
            "placed": is_placed(entry, finding),
            "found_by": sorted(finding.by),
            "without": finding.without,
            "seen": finding.seen.model_dump(mode="json") if finding.seen else None,
            "details": list(finding.details),
        }

    def _alarm(self, run: Healthy) -> dict[str, Any] | None:
        findings = [self._healthy(run, noise) for noise in self._floors(run)]
        by = sorted({check for finding in findings for check in finding.by})
        details = [detail for finding in findings for detail in finding.details]
        return {"run": run.name, "by": by, "details": details} if by else None

    def _healthy(self, run: Healthy, noise: Noise) -> Finding:
        return judge(self._recording(run.engine, run.name), self._recording(REPLICATED, run.plan), noise)

    def _floors(self, run: Healthy) -> list[Noise]:
        """Bit equality, or where rounding was put in the measured noise floor, and the modelled one."""
        if run.noise is None:
            return [None]
        return [noise_of(self.engines[REPLICATED], self.folder), ()]


def _with_graphs(rank: dict[str, Any], spans: tuple[Span, ...]) -> dict[str, Any]:
    """``rank`` with the graphs whose compile range holds one of ``spans``; with all, if none is named."""

    def wanted(graph: dict[str, Any]) -> bool:
        first, last = graph["compile_range"]
        return not spans or any(first <= span[0] and span[1] <= last for span in spans)

    return rank | {"census": [graph for graph in rank["census"] if wanted(graph)]}


def is_placed(entry: Entry, finding: Finding) -> bool:
    """Found by the check that it is for; by the comparison, at its site and on its rank."""
    if finding.by == {ENDED}:
        return True
    if entry.check not in finding.by:
        return False
    if entry.check != RESIDUAL or entry.site is None:
        return True
    return finding.seen is not None and finding.seen.site == site_name(entry.site) and finding.seen.rank in entry.ranks


if __name__ == "__main__":
    main()
