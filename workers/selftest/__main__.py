"""``python -m workers.selftest``: put known faults into a running engine and count what the checker finds.

Two engines are started one after the other: the replicated one, for what is right, and one under SP, in which every
fault of the catalogue is switched on for one batch plan. The checker is the one that judges cells. It is given two
folders and never the fault's name.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from workers.arms import Arm
from workers.protocol import ArmSpec, BatchPlan, Outcome, Patch, PatchMode, Policy, Residual, Role, Settings, Trial
from workers.residual.compare import Question, compare
from workers.residual.taps import load, site_name
from workers.selftest.catalogue import (
    HEALTHY,
    HEALTHY_QUICK,
    LAYERS,
    RANKS,
    SITES,
    Entry,
    catalogue,
    fault_plan,
    healthy_plans,
)

FAULT_PLAN = "fault-plan"

BASE: Settings = {"model": f"tiny:llama?layers={LAYERS}", "dtype": "float32", "tensor_parallel_size": RANKS}
PASSES = "compilation_config.pass_config"
WITH_SP: Settings = BASE | {f"{PASSES}.enable_sp": True, f"{PASSES}.sp_min_token_num": 1}
WITHOUT_SP: Settings = BASE | {f"{PASSES}.enable_sp": False}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m workers.selftest", description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where the recordings go; removed at the end")
    parser.add_argument("--models", type=Path, required=True, help="folder of tiny models")
    parser.add_argument("--reply", type=Path, required=True, help="file for the result, JSON")
    parser.add_argument("--quick", action="store_true", help="every kind of fault once, few healthy runs")
    arguments = parser.parse_args()
    try:
        arguments.reply.write_text(json.dumps(run(arguments.folder, arguments.models, arguments.quick)))
    finally:
        shutil.rmtree(arguments.folder, ignore_errors=True)


def run(folder: Path, models: Path, quick: bool) -> dict[str, Any]:
    """Start both engines, then judge what they recorded."""
    entries = catalogue(quick)
    healthy = {f"healthy-{n}": plan for n, plan in enumerate(healthy_plans(HEALTHY_QUICK if quick else HEALTHY))}
    right = [Trial(name=name, batch=plan) for name, plan in (healthy | {FAULT_PLAN: fault_plan()}).items()]
    tried = [Trial(name=entry.name, batch=fault_plan(), fault=entry.fault) for entry in entries]
    _record(folder / "replicated", models, Role.REPLICATED, WITHOUT_SP, right)
    _record(folder / "sp", models, Role.PROBE, WITH_SP, [*right[:-1], *tried])
    rows = [_row(entry, _judge(folder, entry.name, FAULT_PLAN)) for entry in entries]
    alarms = [name for name in healthy if _is_fault(_judge(folder, name, name))]
    return {
        "faults": len(rows),
        "found": sum(row["found"] for row in rows),
        "placed": sum(row["placed"] for row in rows),
        "healthy": len(healthy),
        "false_alarms": len(alarms),
        "rows": rows,
    }


def _record(folder: Path, models: Path, role: Role, engine: Settings, trials: list[Trial]) -> None:
    spec = ArmSpec(
        role=role,
        key=role,
        engine=engine,
        patches=dict.fromkeys(Patch, PatchMode.ON),
        env={},
        batch=BatchPlan(waves=[[2]], max_tokens=1),
        taps=True,
        folder=str(folder),
        cache_root=str(folder / "cache"),
        models_dir=str(models),
        timeout_s=1800.0,
        trials=trials,
    )
    with Arm(spec, RANKS, sys.executable) as arm:
        for event in arm.follow():
            if event["kind"] == "phase-begin":
                print(
                    f"{role} {event['name']} {event.get('rank') if event.get('rank') is not None else ''}", flush=True
                )
    report = arm.report()
    if report.outcome is not Outcome.OK:
        raise SystemExit(f"the {role} engine of the self-test ended as {report.outcome}: {report.failure}")


def _judge(folder: Path, recorded: str, plan: str) -> Residual:
    question = Question(
        subject=Role.PROBE,
        against=Role.REPLICATED,
        scattered=True,
        bitwise=True,
        sites=SITES,
        noise_factor=Policy().noise_factor,
    )
    return compare(load(folder / "sp" / recorded, RANKS), load(folder / "replicated" / plan, 1), question)


def _is_fault(residual: Residual) -> bool:
    return residual.first_divergence is not None or bool(residual.missing) or residual.elements == 0


def _row(entry: Entry, residual: Residual) -> dict[str, Any]:
    """What was put in, and what was seen."""
    seen = residual.first_divergence
    placed = seen is not None and seen.site == site_name(entry.site) and seen.rank in entry.ranks
    return {
        "kind": entry.fault.kind,
        "site": site_name(entry.site),
        "ranks": sorted(entry.ranks),
        "found": _is_fault(residual),
        "placed": placed,
        "seen": seen.model_dump(mode="json") if seen else None,
    }


if __name__ == "__main__":
    main()
