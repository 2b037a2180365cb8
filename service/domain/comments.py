"""A sweep in Markdown, as a comment on a pull request: what came out, and what is not as it should be."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from service.domain.alerts import Alert, facts, headline

Json = Mapping[str, Any]

MOST_ROWS = 50
LONGEST = 300
"""Rows, and characters of a finding: GitHub takes comments of 65,536 characters."""

_MARKS = re.compile(r"([\\`*_{}\[\]()#+!|~$-])")


def comment(report: Json, alerts: Sequence[Alert], link: str | None) -> str:
    """The comment on a sweep. ``link``: absolute, to its page."""
    summary, name = report["summary"], text(report["sweep"]["name"])
    title = name if link is None else f"[{name}]({link})"
    lines = [f"### Shardproof: {title}", "", f"{_outcome(summary, report)}", ""]
    wrong = [cell for cell in report["cells"] if cell["ok"] is False]
    if wrong:
        lines += ["| cell | verdict | what was found |", "|---|---|---|"]
        lines += [_row(cell, link) for cell in wrong[:MOST_ROWS]]
        lines += [""] if len(wrong) <= MOST_ROWS else ["", f"and {len(wrong) - MOST_ROWS} more.", ""]
    for alert in alerts[:MOST_ROWS]:
        lines.append(
            f"- {text(headline(alert))}" if alert.link is None else f"- [{text(headline(alert))}]({alert.link})"
        )
        lines += [f"  - {text(fact)}" for fact in facts(alert)]
    if len(alerts) > MOST_ROWS:
        lines.append(f"- and {len(alerts) - MOST_ROWS} more notices")
    return "\n".join(lines).rstrip() + "\n"


def text(written: Any, longest: int = LONGEST) -> str:
    """What somebody wrote, as text: it makes no links, no tables and no HTML, and calls nobody by ``@``."""
    line = " ".join(str(written).split())
    cut = line if len(line) <= longest else f"{line[: longest - 1]}…"
    marked = _MARKS.sub(r"\\\1", cut.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))
    # A space of no width behind it: GitHub calls those who are named also where the sign is escaped.
    return marked.replace("@", "@\u200b")


def _outcome(summary: Json, report: Json) -> str:
    ended = report["sweep"]["ended_at"] is not None
    sign = "…" if not ended else "✓" if summary["ok"] == summary["cells"] else "✗"
    found = ", ".join(f"{count} {verdict}" for verdict, count in summary["by_verdict"].items())
    still = "" if ended else " It has not ended yet."
    return f"{sign} {summary['ok']} of {summary['cells']} cells ok{f': {found}' if found else ''}.{still}"


def _row(cell: Json, link: str | None) -> str:
    name = text(cell["name"])
    shown = name if link is None else f"[{name}]({link}/cells/{quote(cell['id'], safe='')})"
    return f"| {shown} | {text(cell['verdict'])} | {text(cell['reasons'][0] if cell['reasons'] else '—')} |"
