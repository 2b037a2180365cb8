"""``python -m workers.engine describe | diagnose | audit | run``: everything that needs vLLM happens in this process.

Answers go to the file named by ``--reply``: vLLM writes to standard output as it likes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from workers.protocol import ArmSpec, AuditRequest


def main(command: list[str] | None = None) -> None:
    """``command``: in place of this process's own arguments."""
    parser = argparse.ArgumentParser(prog="python -m workers.engine", description=__doc__)
    parser.add_argument("command", choices=("describe", "diagnose", "audit", "run"))
    parser.add_argument("--request", type=Path, help="file with the request, JSON")
    parser.add_argument("--reply", type=Path, help="file for the answer, JSON")
    arguments = parser.parse_args(command)
    if arguments.command == "run":
        from workers.engine.arm import run
        from workers.watchdog import signals

        signals.register()
        run(ArmSpec.model_validate_json(arguments.request.read_bytes()))
        return
    if arguments.command == "describe":
        from workers.probes.describe import describe

        answer = describe().model_dump_json()
    elif arguments.command == "diagnose":
        from workers.probes.describe import diagnose

        answer = diagnose().model_dump_json()
    else:
        from workers.probes.audit import audit

        answer = audit(AuditRequest.model_validate_json(arguments.request.read_bytes())).model_dump_json()
    arguments.reply.write_text(answer)


if __name__ == "__main__":
    main()
