from __future__ import annotations

import json
import re
from typing import Any

import pytest
from rich.console import Console
from store.samples import SWEEP, add_sweep, arm_report, evidence, finish, times

from dashboard.page import Page
from dashboard.test_sweep_page import hold_against
from service.console import print_report
from service.dashboard import render_static
from service.dashboard.cell_view import CellView, cell_view
from service.dashboard.common import apart
from service.dashboard.lines import glance_of, lines_of
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


def differing(store: Store, *own: dict[str, Any]) -> dict[str, Any]:
    """A report of a cell for each of ``own``, with these effective settings beside the ones that all have."""
    add_sweep(store, cells=len(own))
    report = report_of(store)
    return with_settings(report, *own)


def with_settings(report: dict[str, Any], *own: dict[str, Any]) -> dict[str, Any]:
    change = {"requested": None, "effective": [], "written": False, "reason": "SP needs it", "where": "vllm.py:800"}
    for cell, more in zip(report["cells"], own, strict=True):
        cell["effective"] = {"dtype": "float32", "seed": 0, **more}
        cell["changes"] = [{"key": key, **change} for key in ("splitting_ops", *more)]
    return report


def part(html: str, anchor: str) -> str:
    """The text of the section with this anchor, up to the next cell."""
    found = html.partition(f'id="{anchor}">')[2].partition('<details class="panel')[0]
    return " ".join(re.sub(r"<[^>]*>", " ", found).split())


def test_settings_that_every_cell_has_stand_in_the_file_once(store: Store) -> None:
    report = differing(store, {"max_num_seqs": 7}, {"max_num_seqs": 8}, {"max_num_seqs": 9, "extra": 1})
    html = render_static(report)
    assert [html.count(f"<code>{key}</code>") for key in ("dtype", "seed")] == [1, 1]
    assert "dtype" in part(html, "common-effective")
    assert "splitting_ops" in part(html, "common-adapted")
    for place, seqs in enumerate((7, 8, 9), start=1):
        cell = part(html, f"cell-{place}")
        assert f"All {4 if place == 3 else 3} effective settings 2 of them every cell has" in cell
        assert f"max_num_seqs {seqs}" in cell
        assert "dtype" not in cell
    # What two of three cells have alike, they have in common with nobody.
    html = render_static(with_settings(report, {"max_num_seqs": 7}, {"max_num_seqs": 7}, {"max_num_seqs": 9}))
    assert "max_num_seqs 7" in part(html, "cell-1")


def test_links_to_what_is_common_lead_there(store: Store) -> None:
    html = render_static(differing(store, {"a": 1}, {"a": 2}))
    page = Page(html)
    anchors = {link for link in page.attributes("href") if link.startswith("#common")}
    assert anchors == {"#common-effective", "#common-adapted"}
    assert {anchor.removeprefix("#") for anchor in anchors} <= set(page.attributes("id"))


def test_a_cell_by_itself_and_one_that_was_not_resolved_have_nothing_in_common(store: Store) -> None:
    report = differing(store, {"a": 1}, {"a": 2}, {"a": 3})
    report["cells"][1].update(effective=None, changes=[])
    html = render_static(report)
    assert "every cell has" not in part(html, "cell-2")
    assert "2 of them every cell has" in part(html, "cell-3")
    report["cells"][2].update(effective=None, changes=[])
    html = render_static(report)
    assert "common" not in html.partition("<main")[2]
    assert "dtype" in part(html, "cell-1")


def views_of(report: dict[str, Any]) -> list[CellView]:
    lines = lines_of([glance_of(cell, SWEEP) for cell in report["cells"]], {}, lambda glance: glance.id)
    return [cell_view(line, cell) for line, cell in zip(lines, report["cells"], strict=True)]


@pytest.mark.parametrize("own", [({"a": 1}, {"a": 2}), ({}, {}), ({"a": 1}, {"b": 1}, {"a": 1, "b": 2}), ({"a": 1},)])
def test_no_setting_is_lost_or_doubled(store: Store, own: tuple[dict[str, Any], ...]) -> None:
    whole = views_of(differing(store, *own))
    common, views = apart(whole)
    for before, after in zip(whole, views, strict=True):
        assert sorted([*after.effective, *common.effective]) == sorted(before.effective)
        assert {*after.adapted, *common.adapted} == {*before.adapted}
        assert len(after.adapted) + len(common.adapted) == len(before.adapted)


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
