"""``python -m workers.bench NAME --models FOLDER --reply FILE``: measure, and write what was found as JSON."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from workers.bench import NAMES
from workers.bench.residual import measure
from workers.probes.describe import environment


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m workers.bench", description=__doc__)
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("--reply", type=Path, required=True, help="file for the answer, JSON")
    parser.add_argument("--models", type=Path, required=True, help="folder of tiny models")
    parser.add_argument("--quick", action="store_true", help="only what takes no engine")
    arguments = parser.parse_args()
    measured = measure(arguments.models, arguments.quick)
    answer = {
        "name": arguments.name,
        "figure": measured.figure,
        "unit": measured.unit,
        "goal": measured.goal,
        "rows": measured.rows,
        "environment": environment().model_dump() | {"threads": measured.threads},
    }
    arguments.reply.write_text(json.dumps(answer))


if __name__ == "__main__":
    main()
