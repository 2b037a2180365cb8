"""What is told of a notice: what happened, how much, since when, between which versions, and where to look. Pure texts.

The same facts go to programs as JSON, to a chat, into a comment on a pull request, and into a feed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from service.domain.notices import NoticeKind

SCHEMA = "shardproof.alert/1"
MOST = 20
"""Notices that one message tells in full; of the others it says how many there are."""

MEBIBYTE = 2.0**20
TOLD = tuple(kind for kind in NoticeKind if kind is not NoticeKind.SUSPECTED)
"""What is told unless somebody asks for more: of one slow night nobody has to be woken."""

SIGNS = {
    NoticeKind.REGRESSION: "▲",
    NoticeKind.NEW_FAILURE: "✗",
    NoticeKind.HANG: "✗",
    NoticeKind.IMPROVEMENT: "▼",
    NoticeKind.RECOVERED: "✓",
    NoticeKind.SUSPECTED: "?",
}


@dataclass(frozen=True)
class Alert:
    """One notice. ``what``: the sentence. ``before``, ``after``: of ``figure``, whose name ends with its unit.

    ``since``: the sweep in which it was first so. ``versions``: name → version, ``None`` where it was not known.
    ``link``: where to look, absolute; ``None`` where nobody said under which address this controller is reached.
    """

    id: int
    at: datetime
    kind: NoticeKind
    what: str
    sweep_id: str
    cell_id: str
    figure: str | None = None
    before: float | None = None
    after: float | None = None
    ratio: float | None = None
    since: str | None = None
    versions_before: Mapping[str, Any] | None = None
    versions_after: Mapping[str, Any] | None = None
    link: str | None = None


def headline(alert: Alert) -> str:
    """``▲ regression: …`` on one line."""
    return f"{SIGNS[alert.kind]} {alert.kind}: {_line(alert.what)}"


def facts(alert: Alert) -> list[str]:
    """How much, since when, and between which versions: what is known of it, a line each."""
    since = None if alert.since is None else f"since sweep {alert.since}"
    return [fact for fact in (amount(alert), since, between(alert)) if fact is not None]


def amount(alert: Alert) -> str | None:
    """``warm_s 8.0 s → 12.4 s (× 1.55)``."""
    if alert.figure is None or alert.before is None or alert.after is None:
        return None
    ratio = "" if alert.ratio is None else f" (× {alert.ratio:.2f})"
    return f"{alert.figure} {_shown(alert.figure, alert.before)} → {_shown(alert.figure, alert.after)}{ratio}"


def between(alert: Alert) -> str | None:
    """What of the versions changed; where nothing did, which they are."""
    before, after = alert.versions_before or {}, alert.versions_after or {}
    changed = [
        f"{name} {before.get(name) or '?'} → {after.get(name) or '?'}"
        for name in dict.fromkeys((*before, *after))
        if before and after and before.get(name) != after.get(name)
    ]
    if changed:
        return ", ".join(changed)
    known = [f"{name} {version}" for name, version in (after or before).items() if version]
    return f"with the same versions: {', '.join(known)}" if before and known else ", ".join(known) or None


def generic(sweep_id: str, alerts: Sequence[Alert], link: str | None) -> dict[str, Any]:
    """The message to a program: new notices of one sweep. ``more``: how many are not in it."""
    return {
        "schema": SCHEMA,
        "sweep": sweep_id,
        "link": link,
        "alerts": [plain(alert) for alert in alerts[:MOST]],
        "more": max(0, len(alerts) - MOST),
    }


def plain(alert: Alert) -> dict[str, Any]:
    """One notice as JSON. Keys are stable; what is not known is ``null``."""
    return {
        "id": alert.id,
        "at": alert.at.isoformat(),
        "kind": str(alert.kind),
        "what": alert.what,
        "figure": alert.figure,
        "before": alert.before,
        "after": alert.after,
        "ratio": alert.ratio,
        "since": alert.since,
        "versions": {"before": _versions(alert.versions_before), "after": _versions(alert.versions_after)},
        "sweep": alert.sweep_id,
        "cell": alert.cell_id,
        "link": alert.link,
    }


def slack(sweep_id: str, alerts: Sequence[Alert], link: str | None) -> dict[str, Any]:
    """The same for a chat, in Slack's own marks."""
    lines = []
    for alert in alerts[:MOST]:
        lines.append(f"*{_slack(headline(alert))}*" if alert.link is None else _linked(headline(alert), alert.link))
        lines += [f"• {_slack(fact)}" for fact in facts(alert)]
    if len(alerts) > MOST:
        lines.append(f"and {len(alerts) - MOST} more in sweep {_slack(sweep_id)}")
    if link is not None:
        lines.append(_linked(f"Sweep {sweep_id}", link))
    return {"text": "\n".join(lines)}


def _linked(text: str, link: str) -> str:
    return f"<{_slack(link)}|{_slack(text).replace('|', '¦')}>"


def _slack(text: str) -> str:
    """Slack's escapes; what is left can name nobody (``<!channel>``) and be no link."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _versions(versions: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if versions is None else dict(versions)


def _line(text: str) -> str:
    return " ".join(text.split())


def _shown(figure: str, value: float) -> str:
    if figure.endswith("_s"):
        return f"{value:.1f} s"
    if figure.endswith("_bytes"):
        return f"{value / MEBIBYTE:.0f} MiB"
    return f"{value:g}"
