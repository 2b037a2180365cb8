"""What a run that asks for traces keeps of each arm: PyTorch's own trace, tlparse's report of it, and one for Perfetto.

Nothing here makes an arm fail. What could not be made is told in a note.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from workers import environment
from workers.perfetto import chrome_trace
from workers.probes import spans
from workers.probes.timeline import RawEvent
from workers.protocol import Traces
from workers.trace_log import TraceLog, examine

PERFETTO, TLPARSE = "perfetto.json", "tlparse"
TLPARSE_S = 120.0
"""So many seconds tlparse may take: it is written for logs of a thousand times the size in that time."""


def make(folder: Path, events: Sequence[RawEvent], begin: float, end: float) -> Traces:
    """Make the reports of an arm that has ended, however it did, into its folder.

    Args:
        events, begin, end: see ``workers.probes.timeline.rank_times``.
    """
    logs = [examine(path) for path in sorted((folder / environment.TRACE_FOLDER).glob("*.log"))]
    no_trace = _perfetto(folder, events, begin, end)
    no_report = _tlparse(logs, folder / TLPARSE) if logs else "PyTorch wrote no structured trace: nothing was compiled"
    return Traces(
        logs=[str(log.path.relative_to(folder)) for log in logs],
        perfetto=None if no_trace else PERFETTO,
        tlparse=None if no_report else f"{TLPARSE}/index.html",
        notes=[*_cut(logs), *(problem for problem in (no_trace, no_report) if problem)],
    )


def _perfetto(folder: Path, events: Sequence[RawEvent], begin: float, end: float) -> str | None:
    """Why there is no trace, in words; ``None`` when there is."""
    try:
        trace = chrome_trace(events, spans.read_all(folder), begin, end)
        (folder / PERFETTO).write_text(json.dumps(trace))
    except OSError as error:
        return f"the trace for Perfetto could not be written: {error}"
    return None


def _cut(logs: Sequence[TraceLog]) -> Iterator[str]:
    for log in logs:
        if log.cut is not None:
            rank = re.search(r"rank_(\d+)", log.path.name)
            whose = f"rank {rank[1]}" if rank else log.path.name
            yield f"the structured trace of {whose} was cut: {log.cut}; what is before is in the reports"


def _tlparse(logs: Sequence[TraceLog], out: Path) -> str | None:
    """Why there is no report, in words; ``None`` when there is."""
    program = Path(sys.executable).with_name("tlparse")
    found = str(program) if program.exists() else shutil.which("tlparse")
    if found is None:
        return "tlparse is not installed, so there is no report of the structured trace"
    try:
        with tempfile.TemporaryDirectory(prefix="shardproof-tlparse-") as scratch:
            for log in logs:
                _whole_part(log, Path(scratch) / log.path.name)
            command = [found, "--all-ranks-html", "--no-browser", "--overwrite", "-o", str(out), scratch]
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=TLPARSE_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"tlparse made no report: {error}"
    if done.returncode != 0 or not (out / "index.html").exists():
        last = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[-1]
        return f"tlparse made no report (exit status {done.returncode}): {last[:300]}"
    return None


def _whole_part(log: TraceLog, into: Path) -> None:
    if log.whole == log.size:
        into.symlink_to(log.path.absolute())
        return
    with log.path.open("rb") as source:
        into.write_bytes(source.read(log.whole))
