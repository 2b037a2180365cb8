"""Whatever piece of evidence is taken out of what the checks ask for, the rest never passes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.domain.judge import judge
from service.domain.residual_findings import ALWAYS_CHECKABLE, CHECKABLE_UNDER_SP
from service.domain.verdict import Verdict
from workers.protocol import INVARIANTS

from .healthy import SCENARIOS, SP, case, evidence

REDUNDANT = (
    r"^(policy|environment|patches|arms|fallback|guards)\b",  # asked for by no check
    r"\.matched$",  # the smallest of per_rank
    r"\.artifacts\.(saved|loaded)$",  # sums over the ranks
    r"\.ranks\.\d+\.unaccounted_s$",  # a rest as small as it should be is within the clock's tolerance
    r"\.ranks\.\d+\.total_s$",  # the arm's outer wall time once more
    r"residual\.\d\.worst_score$",  # as far as bit equality is owed, see ``asked``
    r"invariants\.\d\.(checked|detail|arm)$",  # how much was compared, and what of
    r"invariants\.\d\.held$",  # as far as a healthy run can do without, see ``asked``
    r"residual\.\d\.bitwise_equal$",  # as far as it is not owed, see ``pieces``
    r"\.worst_logprob_difference$",  # the class says it
    r"\.(rank|subject|against|name|problem|first_divergence|first_difference)$",  # names, and what is never there
    r"\.(scattered|bitwise_required)$",  # what was to be compared, not what came of it
)


def pieces(value: Any, path: str = "") -> Iterator[str]:
    """The paths of all that can be taken out of evidence: items of lists, and values that say something."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from pieces(item, f"{path}.{key}".strip("."))
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield f"{path}.{place}"
            yield from pieces(item, f"{path}.{place}")
    elif value or (value == 0.0 and isinstance(value, float)):
        yield path


def asked(scenario: str) -> list[str]:
    checks, sp = SCENARIOS[scenario]
    found = evidence(checks, sp)
    owed = [f"residual.{place}.bitwise_equal" for place, item in enumerate(found["residual"]) if item["bitwise_equal"]]
    scored = [f"residual.{n}.worst_score" for n, item in enumerate(found["residual"]) if not item["bitwise_required"]]
    owed += [
        f"invariants.{n}.held" for n, name in enumerate(INVARIANTS) if name in _checkable(sp) and found["invariants"]
    ]
    optional = ["compile.cold", "compile.warm", SP]
    whole = [path for path in optional if path.split(".")[1] in found[path.split(".")[0]]]
    there = [path for path in whole if found[path.split(".")[0]][path.split(".")[1]] is not None]
    paths = [path for path in pieces(found) if not any(re.search(pattern, path) for pattern in REDUNDANT)]
    return sorted({*paths, *owed, *scored, *there})


def _checkable(sp: bool) -> tuple[str, ...]:
    return (*ALWAYS_CHECKABLE, *(CHECKABLE_UNDER_SP if sp else ()))


def take_out(found: dict[str, Any], path: str) -> None:
    """Take an item out of its list; set a number to none or, where there must be one, to zero."""
    *parents, last = [int(key) if key.isdigit() else key for key in path.split(".")]
    target: Any = found
    for key in parents:
        if target is None or (isinstance(key, int) and key >= len(target)):
            return
        target = target[key]
    if isinstance(target, list) and isinstance(last, int):
        del target[last : last + 1]
    elif target is not None:
        target[last] = None if _may_be_none(str(last)) else 0


def _may_be_none(name: str) -> bool:
    return name not in {"total_s", "unaccounted_s", "s", "sites", "steps", "ranks", "tokens", "elements", "saved",
                        "loaded", "compiled", "compared_tokens"}  # fmt: skip


ALL_PIECES = [(scenario, path) for scenario in SCENARIOS for path in asked(scenario)]


def without(scenario: str, paths: list[str]) -> Verdict:
    checks, sp = SCENARIOS[scenario]
    # From the end, so that what is left keeps its place.
    edits = [lambda found, path=path: take_out(found, path) for path in sorted(paths, reverse=True)]
    return judge(case(*edits, checks=checks, sp=sp)).verdict


def test_the_pieces_are_all_there() -> None:
    counted = {scenario: len(asked(scenario)) for scenario in SCENARIOS}
    assert min(counted.values()) >= 5, counted
    assert counted["all checks, SP on"] >= 60, counted


@pytest.mark.parametrize(("scenario", "path"), ALL_PIECES, ids=lambda value: str(value))
def test_taking_out_one_piece_of_evidence_never_passes(scenario: str, path: str) -> None:
    assert without(scenario, []) is Verdict.PASS
    assert without(scenario, [path]) is not Verdict.PASS


@settings(deadline=None, max_examples=150)
@given(st.data(), st.sampled_from(list(SCENARIOS)))
def test_taking_out_any_pieces_of_evidence_never_passes(data: st.DataObject, scenario: str) -> None:
    taken = data.draw(st.lists(st.sampled_from(asked(scenario)), min_size=1, max_size=6, unique=True))
    assert without(scenario, taken) is not Verdict.PASS
