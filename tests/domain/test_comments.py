from __future__ import annotations

from typing import Any

import pytest

from service.domain.comments import MOST_ROWS, comment, text

from .test_alerts import SLOW

LINK = "https://ci.example/sweeps/s1"


def report(cells: list[dict[str, Any]], ended: bool = True, name: str = "nightly") -> dict[str, Any]:
    found = [cell["verdict"] for cell in cells if cell["verdict"]]
    return {
        "sweep": {"name": name, "ended_at": "2026-11-30T02:19:00+00:00" if ended else None},
        "summary": {
            "cells": len(cells),
            "ok": sum(cell["ok"] is True for cell in cells),
            "by_verdict": {verdict: found.count(verdict) for verdict in sorted(set(found))},
        },
        "cells": cells,
    }


def cell(verdict: str | None = "pass", reason: str = "all checks held", **fields: Any) -> dict[str, Any]:
    ok = None if verdict is None else verdict == "pass"
    return {"id": "c0", "name": "tp2", "verdict": verdict, "ok": ok, "reasons": [reason], **fields}


def test_it_says_how_it_came_out_and_what_is_wrong() -> None:
    wrong = cell("fail-residual", "fail-residual: rank 1 holds the tokens of rank 0", id="a/b")
    said = comment(report([cell(), wrong]), [SLOW], LINK)
    assert said.startswith(f"### Shardproof: [nightly]({LINK})\n\n✗ 1 of 2 cells ok: 1 fail-residual, 1 pass.\n")
    assert f"| [tp2]({LINK}/cells/a%2Fb) | fail\\-residual | fail\\-residual: rank 1 holds" in said
    assert f"- [▲ regression: the warm start of tp2 is slow]({SLOW.link})" in said
    assert "  - warm\\_s 8.0 s → 12.4 s \\(× 1.55\\)" in said


def test_one_that_is_well_is_short() -> None:
    assert comment(report([cell()]), [], None) == "### Shardproof: nightly\n\n✓ 1 of 1 cells ok: 1 pass.\n"


def test_one_that_has_not_ended_says_so() -> None:
    said = comment(report([cell(None)], ended=False), [], None)
    assert "… 0 of 1 cells ok. It has not ended yet." in said
    assert "|" not in said, "what has not ended is not wrong"


def test_what_somebody_wrote_is_text() -> None:
    hostile = "a | b\n<img src=x> [x](y) `c` @everyone *d* #1"
    said = comment(report([cell("crashed", hostile, name=hostile)], name=hostile), [], None)
    assert "<img" not in said
    assert "@everyone" not in said
    (row,) = [line for line in said.splitlines() if line.startswith("| a")]
    assert row.replace("\\|", "").count("|") == 4, "it makes no columns"
    assert "\\[x\\]\\(y\\)" in row


@pytest.mark.parametrize("count", [MOST_ROWS, MOST_ROWS + 2])
def test_it_stays_within_what_a_comment_may_have(count: int) -> None:
    long = "x|" * 5000
    said = comment(report([cell("crashed", long, name=long) for _ in range(count)]), [SLOW] * count, LINK)
    assert len(said) < 65_536
    assert ("and 2 more." in said) == (count > MOST_ROWS)


def test_text_is_cut_where_it_is_long() -> None:
    assert text("x" * 400) == "x" * 299 + "…"
