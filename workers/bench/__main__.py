"""``python -m workers.bench NAME --models FOLDER --reply FILE``: measure, and write what was found as JSON."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

from workers.bench import NAMES, Measured, fallback, full_graph, residual
from workers.probes.describe import environment

MEASURES: dict[str, Callable[[argparse.Namespace], Measured]] = {
    "residual": lambda asked: residual.measure(asked.models, asked.quick),
    "fallback": lambda asked: fallback.measure(asked.quick, asked.deep),
    "full-graph": lambda asked: full_graph.measure(asked.models, asked.quick),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m workers.bench", description=__doc__)
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("--reply", type=Path, required=True, help="file for the answer, JSON")
    parser.add_argument("--models", type=Path, required=True, help="folder of tiny models")
    parser.add_argument("--quick", action="store_true", help="less of it, or only what takes no engine")
    parser.add_argument("--deep", action="store_true", help="also what takes minutes for one figure")
    arguments = parser.parse_args()
    measured = MEASURES[arguments.name](arguments)
    answer = {
        "name": arguments.name,
        "figure": measured.figure,
        "unit": measured.unit,
        "goal": measured.goal,
        "better": measured.better,
        "rows": measured.rows,
        "environment": environment().model_dump() | {"threads": measured.threads},
    }
    arguments.reply.write_text(json.dumps(answer))


if __name__ == "__main__":
    main()
