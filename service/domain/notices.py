"""What people should hear of, in words."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from service.domain.figures import Figure, shown
from service.domain.regression import Judged
from service.domain.wording import listing

_LONGEST = 1000


class NoticeKind(StrEnum):
    """``suspected`` may still be chance. ``hang``: a failure that came of an engine that did not end in time."""

    REGRESSION = "regression"
    SUSPECTED = "suspected"
    IMPROVEMENT = "improvement"
    NEW_FAILURE = "new-failure"
    RECOVERED = "recovered"
    HANG = "hang"


def change_words(figure: Figure, before: float, after: float) -> str:
    """``cold start 23.4 s, baseline 20.1 s (+16 %)``."""
    part = f" ({after / before - 1:+.0%})".replace("%", " %") if before > 0 else ""
    return f"{figure.words} {shown(after, figure.unit)}, baseline {shown(before, figure.unit)}{part}"


def basis_words(figure: Figure, judged: Judged) -> str:
    """What it was held against: ``median of 30 nights; one night lies within 18.9 s to 21.3 s``."""
    if judged.lower is None or judged.upper is None:
        return f"{judged.missing} nights are missing"
    bounds = f"{shown(judged.lower, figure.unit)} to {shown(judged.upper, figure.unit)}"
    return f"median of {judged.points} nights; one night lies within {bounds}"


def versions_words(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """``vllm 0.30.0 → 0.31.0``; that they are the same, or not known, where it is so."""
    if not before or not after:
        return "the versions before are not known"
    known = [name for name in before if name in after]
    changed = [f"{name} {before[name]} → {after[name]}" for name in known if before[name] != after[name]]
    return listing(changed) if changed else "with the same versions"


def shortened(text: str) -> str:
    """A sentence that is sent about: what an engine wrote last may be very long, and stands with its cell."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def since_words(sweep_id: str, at: float) -> str:
    return f"since sweep {sweep_id} of {datetime.fromtimestamp(at, UTC):%Y-%m-%d}"
