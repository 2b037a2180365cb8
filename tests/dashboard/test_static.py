from __future__ import annotations

import json
from typing import Any

from rich.console import Console
from store.samples import SWEEP, add_sweep, arm_report, evidence, finish, times

from dashboard.page import Page
from dashboard.test_sweep_page import hold_against
from service.console import print_report
from service.dashboard import render_static
from service.exports.baselines import with_baselines
from service.report import stored_report
from service.store import Store
from workers.protocol import Compile, Failure, Outcome, Role, TimedStart
from workers.starts import median

HOSTILE = "</style><script>alert(1)</script>"


def report_of(store: Store) -> dict[str, Any]:
    with store.reading() as session:
        # As the command line reads it: from a file.
        report: dict[str, Any] = json.loads(json.dumps(stored_report(session, SWEEP)))
    return report


def test_one_file_needs_nothing_else(store: Store) -> None:
    add_sweep(store, cells=1)
    finish(store, "c0", evidence())
    html = render_static(report_of(store))
    page = Page(html)
    assert page.named("script") == []
    assert [link["href"] for link in page.named("link")] == ["data:,"]
    assert all(link.startswith("#") for link in page.attributes("href") if link != "data:,")
    assert page.attributes("src") == []
    assert "prefers-color-scheme: dark" in html
    assert "20.0 s 6.0 s 5/5" in page.text


def shown(report: dict[str, Any]) -> tuple[str, str]:
    """What the page and the terminal say."""
    console = Console(width=250)
    with console.capture() as capture:
        print_report(report, console)
    return Page(render_static(report)).text, capture.get()


def test_several_starts_are_shown_with_their_spread(store: Store) -> None:
    totals = {Role.COLD: (21.0, 30.0, 19.5), Role.WARM: (6.0,)}
    starts = [
        TimedStart(role=role, repeat=number, times=times(total))
        for role, of in totals.items()
        for number, total in enumerate(of, start=1)
    ]
    cold, warm = (median([times(total) for total in totals[role]]) for role in (Role.COLD, Role.WARM))
    add_sweep(store, cells=1)
    finish(store, "c0", evidence(compile=Compile(cold=cold, warm=warm, starts=starts)))
    report = report_of(store)
    page, terminal = shown(report)
    assert "21.0 s (19.5–30.0, 3 starts) 6.0 s 5/5" in page
    assert "cold, median of 3 starts" in page
    assert "21.0 (19.5–30.0) │ 6.0 " in terminal
    (cell,) = report["cells"]
    assert cell["compile"]["cold"]["repeats"] == [21.0, 30.0, 19.5]
    assert [(start["role"], start["repeat"], start["total_s"]) for start in cell["starts"]] == [
        ("cold", 1, 21.0), ("cold", 2, 30.0), ("cold", 3, 19.5), ("warm", 1, 6.0),
    ]  # fmt: skip
    assert {"artifacts", "outputs", "cache_keys", "cache_problem"} <= cell["starts"][0].keys()


def test_a_single_start_is_shown_without_a_spread(store: Store) -> None:
    add_sweep(store, cells=1)
    finish(store, "c0", evidence())
    for text in shown(report_of(store)):
        assert "starts" not in text
        assert "(" not in text.partition("20.0")[2][:20]


def test_a_sweep_that_was_cut_short_can_be_exported(store: Store) -> None:
    add_sweep(store)
    assert "0 of 2 cells ended" in Page(render_static(report_of(store))).text


def test_a_dead_arm_shows_its_last_words(store: Store) -> None:
    failure = Failure(phase="dynamo", rank=1, message="assert failed", log_tail=["first line", HOSTILE])
    add_sweep(store, cells=1, name=HOSTILE)
    finish(store, "c0", evidence(arms=[arm_report(Role.COLD, Outcome.CRASHED, failure)]))
    page = Page(render_static(report_of(store)))
    assert "cold arm crashed after 12.5 s" in page.text
    assert f"assert failed, in phase dynamo, rank 1. first line {HOSTILE}" in page.text
    assert page.named("script") == []


def test_a_run_that_left_nothing_says_why(store: Store) -> None:
    add_sweep(store, cells=1)
    report = report_of(store)
    report["cells"][0]["failure"] = "the actor died"
    assert "✗ the actor died" in Page(render_static(report)).text


def test_cells_are_shaded_by_what_they_were_held_against(store: Store) -> None:
    add_sweep(store)
    finish(store, "c0", evidence(compile=Compile(cold=times(24.0), warm=None)))
    hold_against(store, "c0", 24.0, 20.0)
    with store.reading() as session:
        html = render_static(with_baselines(session, stored_report(session, SWEEP)))
    assert "slower than its baseline" in Page(html).text
