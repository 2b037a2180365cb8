from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from store.samples import SWEEP, add_sweep, arm_report, evidence, finish

from dashboard.page import Page
from service.dashboard import render_static
from service.dashboard.render import STATIC
from service.report import stored_report
from service.store import Store
from workers.protocol import Failure, Outcome, Role

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


def test_styles_and_script_ship_with_the_package() -> None:
    import service.dashboard

    folder = Path(service.dashboard.__file__).parent
    assert folder / "static" == STATIC
    assert {path.suffix for path in STATIC.iterdir()} == {".css", ".js"}
    assert list((folder / "templates").glob("*.html"))


def test_nothing_in_the_script_or_styles_is_fetched_from_elsewhere() -> None:
    for path in STATIC.iterdir():
        text = path.read_text(encoding="utf-8")
        assert "http" not in text.replace("`HTTP", ""), path
        assert "url(" not in text
