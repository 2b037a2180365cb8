"""``shardproof selftest``: known faults against the checker, in the engine environment."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from service.dispatch.questions import EngineEnvironmentError, questions_cache
from service.settings import Settings
from workers import environment

PLACED_GOAL = 0.95
"""Part of the faults that have to be found at the right site and rank."""


def selftest(settings: Settings, quick: bool) -> dict[str, Any]:
    """Run it; its progress goes to standard output.

    Returns:
        ``faults``, ``found``, ``placed``, ``healthy``, ``false_alarms`` and ``rows``, one for each fault.

    Raises:
        EngineEnvironmentError: when an engine of the self-test did not come through.
    """
    with tempfile.TemporaryDirectory() as folder:
        reply = Path(folder) / "reply.json"
        command = [str(settings.python), "-m", "workers.selftest", "--reply", str(reply)]
        command += ["--folder", str(settings.home / "selftest"), "--models", str(settings.models_dir)]
        done = subprocess.run(
            [*command, "--quick"] if quick else command,
            env=environment.for_question(str(questions_cache(settings))),
            check=False,
        )
        if done.returncode or not reply.exists():
            raise EngineEnvironmentError("the self-test could not be carried out, see above")
        return dict(json.loads(reply.read_text()))


def succeeded(result: dict[str, Any]) -> bool:
    """Every fault found, nearly all at the right place, and no healthy run called wrong."""
    found_all = result["found"] == result["faults"] > 0
    placed = result["placed"] >= PLACED_GOAL * result["faults"]
    return bool(found_all and placed and result["healthy"] > 0 and result["false_alarms"] == 0)
