"""Complete and healthy evidence in JSON form, and a case around it, to be spoiled one thing at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from service.domain.case import Case
from service.domain.verdict import Verdict
from workers.protocol import (
    INVARIANTS,
    ArmReport,
    Check,
    Evidence,
    Failure,
    Outcome,
    Patch,
    PatchMode,
    PatchState,
    Role,
    Shape,
)

Edit = Callable[[dict[str, Any]], None]
"""Changes evidence in its JSON form, in place."""

LAYERS, HIDDEN, TOKENS, RANKS = 2, 64, 29, 2
SITES = 2 * LAYERS + 1
CHECKS = (Check.AUDIT, Check.COMPILE, Check.RESIDUAL, Check.OUTPUTS)
SP = "exercised.sequence_parallelism"


def shape(**fields: Any) -> Shape:
    healthy: dict[str, Any] = {
        "tensor_parallel_size": RANKS,
        "pipeline_parallel_size": 1,
        "layers": LAYERS,
        "hidden_size": HIDDEN,
        "dtype": "float32",
        "sequence_parallelism": True,
        "full_graph": True,
        "compiled": True,
    }
    return Shape(**(healthy | fields))


def compile_times(saved: int, loaded: int, compiled: int) -> dict[str, Any]:
    # Binary fractions: the phases and the rest make exactly the whole.
    phases = [{"name": name, "s": 2.0} for name in ("import", "dynamo", "inductor_compile", "requests")]
    phases.append({"name": "exit", "s": 1.875})
    ranks = range(RANKS)
    return {
        "total_s": 10.0,
        "ranks": [{"rank": rank, "total_s": 10.0, "phases": phases, "unaccounted_s": 0.125} for rank in ranks],
        "artifacts": {
            "saved": saved * RANKS,
            "loaded": loaded * RANKS,
            "ranks": [{"rank": rank, "saved": saved, "loaded": loaded, "compiled": compiled} for rank in ranks],
        },
    }


def residual(subject: Role, against: Role) -> dict[str, Any]:
    scattered, bitwise = subject is Role.PROBE, against is Role.REPLICATED
    return {
        "subject": subject,
        "against": against,
        "sites": SITES,
        "steps": 7,
        "ranks": RANKS,
        "tokens": TOKENS,
        "elements": TOKENS * SITES * HIDDEN * (1 if scattered else RANKS),
        "scattered": scattered,
        "missing": [],
        "bitwise_equal": bitwise,
        "bitwise_required": bitwise,
        "worst_score": 0.0 if bitwise else 0.9,
        "replicas_equal": None if scattered else True,
        "first_divergence": None,
    }


def unscattered(against: Role) -> dict[str, Any]:
    copies = residual(Role.REPLICATED, against)
    return copies | {"subject": Role.PROBE}


def again() -> dict[str, Any]:
    """The replicated arm against itself, run twice: bit equality is owed."""
    return residual(Role.REPLICATED, Role.REPLICATED) | {"bitwise_required": True, "replicas_equal": None}


def invariant(name: str, held: bool | None = True, arm: Role = Role.PROBE) -> dict[str, Any]:
    return {"name": name, "held": held, "checked": 7, "detail": "seven compared", "arm": arm}


def output(against: Role, subject: Role = Role.PROBE) -> dict[str, Any]:
    return {
        "subject": subject,
        "against": against,
        "klass": "identical",
        "problem": None,
        "compared_tokens": 32,
        "worst_logprob_difference": 0.0,
        "first_difference": None,
    }


def evidence(checks: tuple[Check, ...] = CHECKS, sp: bool = True) -> dict[str, Any]:
    """What a healthy run with ``checks`` finds, in JSON form."""
    timed, compared = Check.COMPILE in checks, Check.OUTPUTS in checks
    against = (Role.REPLICATED, Role.REFERENCE) if sp else (Role.REFERENCE,)
    control = [residual(Role.REPLICATED, Role.REFERENCE)] if compared else []
    residuals = [residual(Role.PROBE, Role.REPLICATED), *control, again()] if sp else [unscattered(Role.REFERENCE)]
    answers = [output(role) for role in against] if compared else []
    if sp and compared:
        answers.append(output(Role.REPLICATED, Role.REPLICATED))
    roles = [*([Role.COLD, Role.WARM] if timed else []), Role.PROBE]
    return {
        "policy": {},
        "environment": None,
        "patches": dict.fromkeys(Patch, PatchState.NATIVE),
        "arms": [arm(role).model_dump(mode="json") for role in roles],
        "compile": {
            "cold": compile_times(1, 0, 1) if timed else None,
            "warm": compile_times(0, 1, 0) if timed else None,
        },
        "exercised": {
            "sequence_parallelism": {"expected": SITES, "matched": SITES, "per_rank": [SITES] * RANKS} if sp else None
        },
        "fallback": None,
        "residual": residuals if Check.RESIDUAL in checks else [],
        "outputs": answers,
        "guards": [{"name": "sp-pass", "held": True, "detail": "asserts"}],
        "invariants": [invariant(name) for name in INVARIANTS] if Check.RESIDUAL in checks else [],
    }


def arm(role: Role, outcome: Outcome = Outcome.OK, failure: Failure | None = None) -> ArmReport:
    return ArmReport(role=role, key="key", outcome=outcome, wall_s=1.0, folder="/arm", failure=failure)


def case(*edits: Edit, checks: tuple[Check, ...] = CHECKS, sp: bool = True, **fields: Any) -> Case:
    found = evidence(checks, sp)
    for edit in edits:
        edit(found)
    healthy: dict[str, Any] = {
        "checks": checks,
        "expect": (Verdict.PASS,),
        "patches": dict.fromkeys(Patch, PatchMode.ON),
        "shape": shape(sequence_parallelism=sp),
        "changes": [],
        "evidence": Evidence.model_validate(found),
    }
    return Case(**(healthy | fields))


def put(path: str, value: Any) -> Edit:
    """Set what is at the dotted ``path``."""

    def edit(found: dict[str, Any]) -> None:
        *parents, last = [int(key) if key.isdigit() else key for key in path.split(".")]
        target: Any = found
        for key in parents:
            target = target[key]
        target[last] = value

    return edit


SCENARIOS: dict[str, tuple[tuple[Check, ...], bool]] = {
    "all checks, SP on": (CHECKS, True),
    "all checks, SP off": (CHECKS, False),
    "compile alone, SP on": ((Check.COMPILE,), True),
    "residual alone, SP on": ((Check.RESIDUAL,), True),
    "residual alone, SP off": ((Check.RESIDUAL,), False),
    "outputs alone, SP on": ((Check.OUTPUTS,), True),
}
