"""Words with a sign, so that the colour is not needed to read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from service.domain.verdict import Verdict


@dataclass(frozen=True)
class Badge:
    """``tone``: good, bad, warn or calm."""

    sign: str
    text: str
    tone: str


def verdict_badge(verdict: str | None) -> Badge:
    match verdict:
        case None:
            return Badge("…", "not yet", "calm")
        case Verdict.PASS:
            return Badge("✓", verdict, "good")
        case Verdict.DUPLICATE:
            return Badge("=", verdict, "calm")
        case Verdict.CANCELLED | Verdict.SKIPPED:
            return Badge("○", verdict, "calm")
        case Verdict.DOWNGRADED | Verdict.REGRESSION | Verdict.UNSUPPORTED:
            return Badge("▲", verdict, "warn")
        case _:
            return Badge("✗", verdict, "bad")


def ok_badge(ok: bool | None) -> Badge:
    """Whether the verdict was expected."""
    if ok is None:
        return Badge("…", "not yet", "calm")
    return Badge("✓", "ok", "good") if ok else Badge("✗", "unexpected", "bad")


def held_badge(guard: Mapping[str, Any]) -> Badge:
    """Whether a guard or an invariant held."""
    if guard["held"] is None:
        return Badge("?", "not checked", "calm")
    return Badge("✓", "held", "good") if guard["held"] else Badge("✗", "broken", "bad")
