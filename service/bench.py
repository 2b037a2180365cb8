"""``shardproof bench``: what Shardproof itself costs, measured in the engine environment."""

from __future__ import annotations

import json
from typing import Any

from service.dispatch import questions
from service.dispatch_bench import NAME as DISPATCH
from service.dispatch_bench import dispatch
from service.regression import NAME as REGRESSION
from service.regression import regression
from service.settings import Settings
from service.startup import NAME as STARTUP
from service.startup import startup
from workers import bench

READS = "reads"
PAGES = "pages"
NAMES = (*bench.NAMES, STARTUP, DISPATCH, READS, REGRESSION, PAGES)
DEEP = bench.DEEP
QUICK = (*bench.NAMES, DISPATCH, READS, REGRESSION, PAGES)
"""Those that have less to measure."""

REPEATED = (STARTUP,)


class UnknownBench(ValueError):
    """There is no benchmark of this name, or it has no such option."""


def run_bench(
    name: str, settings: Settings, quick: bool, deep: bool = False, repeats: int | None = None
) -> dict[str, Any]:
    """Measure; takes some minutes, and less when ``quick``, which leaves out what needs an engine, or most of it.

    ``deep``: also what takes minutes for one figure. ``repeats``: so often, once if it is left open.

    Returns:
        ``name``, ``figure`` in ``unit`` with its ``goal`` (``None``: nothing is owed) and which is ``better``, more or
        less, ``rows``, the ``environment`` and, where the rows need words, ``notes``.

    Raises:
        UnknownBench: when there is nothing of this name to measure, or nothing deep or quick in it.
        EngineEnvironmentError: when the engine environment does not answer.
        NotMeasured: when what was measured is not what it should be.
    """
    if name not in NAMES:
        raise UnknownBench(f"there is no benchmark {name!r}; choose {' or '.join(NAMES)}")
    for option, asked, of in (
        ("--deep", deep, DEEP),
        ("--quick", quick, QUICK),
        ("--repeats", repeats is not None, REPEATED),
    ):
        if asked and name not in of:
            raise UnknownBench(f"{option} is for {' and '.join(of)}; leave it out for {name}")
    if name == STARTUP:
        return startup(settings, repeats or 1)
    if name == DISPATCH:
        return dispatch(settings, quick)
    if name == READS:
        # The whole application, which the other commands start sooner without.
        from service.reads import reads

        return reads(settings, quick)
    if name == REGRESSION:
        return regression(settings.regression_rules, quick)
    if name == PAGES:
        from service.page_bench import pages

        return pages(settings, quick)
    return dict(json.loads(questions.bench(settings, name, quick, deep)))
