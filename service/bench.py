"""``shardproof bench``: what Shardproof itself costs, measured in the engine environment."""

from __future__ import annotations

import json
from typing import Any

from service.dispatch import questions
from service.settings import Settings
from workers.bench import DEEP, NAMES


class UnknownBench(ValueError):
    """There is no benchmark of this name."""


def run_bench(name: str, settings: Settings, quick: bool, deep: bool = False) -> dict[str, Any]:
    """Measure; takes some minutes, and less than one when ``quick``, which leaves out what needs an engine.

    ``deep``: also what takes minutes for one figure.

    Returns:
        ``name``, ``figure`` in ``unit`` (more is better) with its ``goal``, ``rows`` and the ``environment``.

    Raises:
        UnknownBench: when there is nothing of this name to measure, or nothing deep in it.
        EngineEnvironmentError: when the engine environment does not answer.
    """
    if name not in NAMES:
        raise UnknownBench(f"there is no benchmark {name!r}; choose {' or '.join(NAMES)}")
    if deep and name not in DEEP:
        raise UnknownBench(f"--deep is for {' and '.join(DEEP)}; leave it out for {name}")
    return dict(json.loads(questions.bench(settings, name, quick, deep)))
