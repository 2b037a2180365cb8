"""Examples of what is sent and answered about series, see ``service.api.examples``."""

from __future__ import annotations

from typing import Any

_SWEEP = "20261130-021500-ab12cd"
_CELL = "c4d1f0a2b3e8"
_END = "2026-11-30T02:19:00Z"
_SERIES = {
    "id": "5a0c3f1e9b7d2468",
    "name": "sp-full-graph",
    "settings": {"model": "tiny:llama", "tensor_parallel_size": 2},
    "environment": "newest",
    "device": "NVIDIA H200",
    "devices": 8,
    "cores": 64,
    "pinned": True,
    "created_at": "2026-09-01T02:19:00Z",
    "last_at": _END,
    "last_verdict": "regression",
    "last_ok": False,
}
_VERSIONS = {"vllm": "0.31.0", "torch": "2.11.0", "ray": "2.56.0", "python": "3.11.2"}
_POINT = {
    "figure": "cold_s",
    "value": 23.4,
    "lowest": 23.1,
    "highest": 23.9,
    "repeats": 3,
    "id": 4711,
    "series_id": _SERIES["id"],
    "at": _END,
    "baseline": 20.1,
    "sweep_id": _SWEEP,
    "cell_id": _CELL,
    "run_id": f"{_SWEEP}-{_CELL}-9f8e7d",
    "versions": _VERSIONS,
}
_STANDING = {
    "series_id": _SERIES["id"],
    "figure": "cold_s",
    "state": "regression",
    "point_id": 4711,
    "at": _END,
    "value": 23.4,
    "baseline": 20.1,
    "lower": 18.2,
    "upper": 22.1,
    "noise": 0.03,
    "ratio": 1.164,
    "points": 60,
    "missing": 0,
    "from_at": "2026-09-01T02:19:00Z",
    "since_point_id": 4688,
    "since_at": "2026-11-29T02:19:00Z",
    "since_sweep_id": "20261129-021500-12ef34",
}
_ACCEPTED = {
    "id": 3,
    "series_id": _SERIES["id"],
    "figure": "cold_s",
    "point_id": 4688,
    "from_at": "2026-11-29T02:19:00Z",
    "value": 23.3,
    "reason": "the new compiler is worth it",
    "author": "nightly CI",
    "at": _END,
}
_MUTE = {
    "id": 2,
    "series_id": _SERIES["id"],
    "until": "2026-12-07T00:00:00Z",
    "reason": "known, fixed in the next vLLM",
    "author": "nightly CI",
    "at": _END,
}
_STATE = {
    "series": _SERIES,
    "figures": {
        "cold_s": {
            "standing": _STANDING,
            "accepted": None,
            "changes": [{"point_id": 4688, "at": "2026-11-29T02:19:00Z", "before": 20.1, "after": 23.4}],
        }
    },
    "mutes": [_MUTE],
    "muted_until": None,
}
_NOTICE = {
    "at": _END,
    "kind": "regression",
    "series_id": _SERIES["id"],
    "figure": "cold_s",
    "sweep_id": _SWEEP,
    "cell_id": _CELL,
    "what": "sp-full-graph: cold start 23.4 s, baseline 20.1 s (+16 %), vllm 0.30.0 → 0.31.0",
    "before": 20.1,
    "after": 23.4,
    "ratio": 1.164,
    "since_sweep_id": "20261129-021500-12ef34",
    "versions_before": {**_VERSIONS, "vllm": "0.30.0"},
    "versions_after": _VERSIONS,
    "id": 42,
}

BODIES: dict[str, Any] = {
    "accept_baseline": {"figure": "cold_s", "point": 4688, "reason": "the new compiler is worth it"},
    "mute_series": {"until": "2026-12-07T00:00:00Z", "reason": "known, fixed in the next vLLM"},
    "pin_series": {"pinned": True},
}

ANSWERS: dict[str, Any] = {
    "list_series": {"series": [_SERIES], "next": None},
    "get_series": _STATE,
    "list_points": {"points": [_POINT], "next": None},
    "export_points": f"id,at,figure,value\r\n4711,{_END},cold_s,23.4\r\n",
    "list_notices": {"notices": [_NOTICE], "next": None},
    "accept_baseline": _ACCEPTED,
    "mute_series": _MUTE,
    "pin_series": _SERIES,
}
