"""The verdict: a pure function of what was asked, what was resolved and what was found.

Every rule yields findings. The gravest finding is the verdict, and all of them are its reasons. What is only worth
knowing is a note: it has no verdict and changes none. The evidence is stored, so that a verdict can be reached again
later, under another policy, without a new run.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from service.domain import findings, residual_findings
from service.domain.accuracy import accuracy
from service.domain.case import Case, Judgement, Reason
from service.domain.verdict import Verdict
from workers.protocol import Policy

RULES = (
    findings.lost,
    findings.arms,
    residual_findings.residual,
    residual_findings.invariants,
    findings.outputs,
    findings.outputs_again,
    accuracy,
    findings.guards,
    findings.compile_times,
    findings.exercised,
    findings.patches,
    findings.downgraded,
    findings.duplicate,
    findings.noted,
)


def judge(case: Case) -> Judgement:
    """Reach the verdict of ``case``."""
    return conclude([reason for rule in RULES for reason in rule(case)], case.expect)


def conclude(reasons: Sequence[Reason], expect: Collection[Verdict]) -> Judgement:
    """The gravest of ``reasons`` is the verdict. By itself for a cell that never could be run."""
    found = [reason.finding for reason in reasons if reason.finding is not None]
    verdict = min(found, key=lambda verdict: verdict.gravity, default=Verdict.PASS)
    ordered = sorted(reasons, key=lambda reason: reason.finding.gravity if reason.finding else len(Verdict))
    return Judgement(verdict, verdict in expect, tuple(ordered))


def judge_again(case: Case, policy: Policy) -> Judgement:
    """Judge what was found before by another ``policy``, without a new run.

    The scores are stored in units of the noise floor of their run, so another ``noise_factor`` can be applied to them;
    another model of the floor, or another number of perturbed runs, takes a new comparison.
    """
    if case.evidence is None:
        return judge(case)
    return judge(replace(case, evidence=case.evidence.model_copy(update={"policy": policy})))
