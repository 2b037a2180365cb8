from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from service.domain.alerts import MOST, TOLD, Alert, amount, between, facts, generic, headline, slack
from service.domain.notices import NoticeKind

SLOW = Alert(
    id=7,
    at=datetime(2026, 11, 30, 2, 19, tzinfo=UTC),
    kind=NoticeKind.REGRESSION,
    what="the warm start of\ntp2 is slow",
    sweep_id="s1",
    cell_id="c0",
    figure="warm_s",
    before=8.0,
    after=12.4,
    ratio=1.55,
    since="s0",
    versions_before={"vllm": "0.30.0", "torch": "2.11.0"},
    versions_after={"vllm": "0.31.0", "torch": "2.11.0"},
    link="https://ci.example/sweeps/s1/cells/c0",
)


def test_it_says_what_how_much_since_when_and_between_which_versions() -> None:
    assert headline(SLOW) == "▲ regression: the warm start of tp2 is slow"
    assert facts(SLOW) == ["warm_s 8.0 s → 12.4 s (× 1.55)", "since sweep s0", "vllm 0.30.0 → 0.31.0"]


@pytest.mark.parametrize("kind", list(NoticeKind))
def test_every_kind_has_a_sign(kind: NoticeKind) -> None:
    assert headline(replace(SLOW, kind=kind)).split()[1] == f"{kind}:"


def test_one_slow_night_wakes_nobody() -> None:
    assert set(NoticeKind) - set(TOLD) == {NoticeKind.SUSPECTED}


def test_what_is_not_known_is_not_said() -> None:
    bare = Alert(1, SLOW.at, NoticeKind.HANG, "it hangs", "s1", "c0")
    assert facts(bare) == []
    assert facts(replace(bare, figure="warm_s", before=8.0)) == []


def test_memory_is_in_mebibytes() -> None:
    grown = replace(SLOW, figure="peak_rss_bytes", before=2.0**30, after=1.5 * 2**30, ratio=None)
    assert amount(grown) == "peak_rss_bytes 1024 MiB → 1536 MiB"


def test_versions_that_did_not_change_are_named_as_such() -> None:
    assert between(replace(SLOW, versions_before=SLOW.versions_after)) == (
        "with the same versions: vllm 0.31.0, torch 2.11.0"
    )
    assert between(replace(SLOW, versions_before={})) == "vllm 0.31.0, torch 2.11.0"
    assert between(replace(SLOW, versions_before={}, versions_after={})) is None
    gone = replace(SLOW, versions_after={"vllm": "0.30.0", "torch": None})
    assert between(gone) == "torch 2.11.0 → ?"


def test_a_program_gets_all_of_it_and_no_more_than_it_can_read() -> None:
    message = generic("s1", [SLOW] * (MOST + 3), "https://ci.example/sweeps/s1")
    assert (len(message["alerts"]), message["more"]) == (MOST, 3)
    assert json.loads(json.dumps(message)) == message
    assert "and 3 more in sweep s1" in slack("s1", [SLOW] * (MOST + 3), None)["text"]


def test_without_an_address_there_are_no_links() -> None:
    text = slack("s1", [replace(SLOW, link=None)], None)["text"]
    assert text.startswith("*▲ regression: the warm start of tp2 is slow*")
    assert "<" not in text
