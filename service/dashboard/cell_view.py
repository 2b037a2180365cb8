"""One cell of a report as its page shows it. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service.dashboard.advice import ADVICE
from service.dashboard.badges import Badge, verdict_badge
from service.dashboard.formats import NOTHING, amount, seconds, value
from service.dashboard.lines import CellLine
from service.dashboard.residual_map import ResidualMap, residual_maps
from service.dashboard.waterfall import Waterfall, waterfalls
from service.domain.verdict import Verdict

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Reason:
    """``badge``: ``None`` of a note, which is no finding."""

    badge: Badge | None
    text: str


@dataclass(frozen=True)
class Setting:
    """``kind``: ``downgraded`` where it was written and is not what runs, ``adapted`` where nothing was written."""

    key: str
    requested: str
    effective: str
    kind: str
    reason: str
    where: str


@dataclass(frozen=True)
class Common:
    """Settings that stand elsewhere, as every cell has them: those the engine adapted, and effective ones."""

    adapted: Sequence[Setting] = ()
    effective: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class CellView:
    """``cell``: as in the report. ``why``: the sentence that matters most; ``reasons``: the others.

    ``adapted`` and ``effective`` are without those in ``common``.
    """

    line: CellLine
    cell: Json
    why: Reason
    advice: str
    reasons: Sequence[Reason]
    settings: Sequence[Setting]
    adapted: Sequence[Setting]
    effective: Sequence[tuple[str, str]]
    waterfalls: Sequence[Waterfall]
    starts: Sequence[Sequence[str]]
    resources: Sequence[Sequence[str]]
    maps: Sequence[ResidualMap]
    broken: Sequence[Json]
    common: Common = Common()


def cell_view(line: CellLine, cell: Json) -> CellView:
    """The page of a cell; ``line``: what lists show of it."""
    reasons = [reason(text) for text in cell["reasons"]]
    verdict = None if cell["verdict"] is None else Verdict(cell["verdict"])
    changes = {change["key"]: change for change in cell["changes"]}
    effective = cell["effective"] or {}
    runs = {**effective, **{f"patches.{name}": state for name, state in cell["environment"]["patches"].items()}}
    return CellView(
        line=line,
        cell=cell,
        why=reasons[0] if reasons else Reason(None, _without_reason(line, cell)),
        advice=ADVICE[verdict] if verdict is not None and reasons else "",
        reasons=reasons[1:],
        settings=[_setting(key, item, runs, changes.get(key)) for key, item in cell["requested"].items()],
        adapted=[_setting(key, None, effective, item) for key, item in changes.items() if not item["written"]],
        effective=[(key, value(item)) for key, item in sorted(effective.items())],
        waterfalls=waterfalls(cell["compile"]),
        starts=[_start(start) for start in cell.get("starts", [])],
        resources=_resources(cell["compile"]),
        maps=residual_maps(cell["residual"]),
        broken=[item for item in cell["invariants"] if item["held"] is False],
    )


def reason(text: str) -> Reason:
    """``fail-residual: …`` with its verdict as a badge."""
    verdict, colon, rest = text.partition(": ")
    if colon and verdict in list(Verdict):
        return Reason(verdict_badge(verdict), rest)
    return Reason(None, text)


def _without_reason(line: CellLine, cell: Json) -> str:
    if cell["failure"]:
        return str(cell["failure"])
    if cell["verdict"] is None:
        return f"It has no verdict yet: it is {line.state}."
    return ADVICE[Verdict(cell["verdict"])]


def _setting(key: str, requested: Any, effective: Json, change: Json | None) -> Setting:
    if change is None:
        return Setting(key, value(requested), value(effective[key]) if key in effective else NOTHING, "", "", "")
    return Setting(
        key=key,
        requested=value(change["requested"]) if change["written"] else NOTHING,
        effective=value(change["effective"]),
        kind="downgraded" if change["written"] else "adapted",
        reason=change["reason"] or "",
        where=change["where"] or "",
    )


def _start(start: Json) -> list[str]:
    outputs, artifacts = start["outputs"], start["artifacts"]
    changed = [factor["name"] for item in start["cache_keys"] for factor in item["changed"]]
    return [
        f"{start['role']} {start['repeat']}",
        seconds(start["total_s"]),
        str(artifacts["saved"]),
        str(artifacts["loaded"]),
        NOTHING if outputs is None else str(outputs["class"] or outputs["problem"]),
        ", ".join(dict.fromkeys(changed)) or start["cache_problem"] or NOTHING,
    ]


def _resources(times: Mapping[str, Json | None]) -> list[list[str]]:
    return [
        [
            arm,
            str(rank["rank"]),
            amount(rank["peak_rss_bytes"]),
            amount(rank["device_peak_bytes"]),
            amount(rank["artifact_bytes"]),
            *(NOTHING if rank[key] is None else str(rank[key]) for key in ("pieces", "subgraphs", "unique_subgraphs")),
        ]
        for arm, start in times.items()
        if start is not None
        for rank in start.get("resources", [])
    ]
