"""Commands to a served controller: what is printed and written, and the exit status that CI sees."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from api import server
from api.client import StoringController
from exports.sample import fill
from store.samples import SWEEP, add_sweep, cell, evidence, finish, sweep

from service import cli
from service.app import create_app
from service.domain.document import Document
from service.domain.lifecycle import State
from service.domain.verdict import Verdict
from service.settings import Settings
from service.store import Store, open_store, repositories

MATRIX = "name: quickstart\nengine:\n  model: tiny:llama\n"


class EndingController(StoringController):
    """Stores a sweep of one cell that ends at once, with the verdict that the matrix names."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.asked: list[tuple[str, str, object]] = []

    def submit(self, document: Document, *, sweep_id: str | None = None, **terms: Any) -> str:
        if "name" not in document.tree:
            return super().submit(document, sweep_id=sweep_id, **terms)
        verdict = Verdict(document.tree["name"])
        with self._store.transaction() as session:
            repositories.create_sweep(session, sweep("sweep-1", name="told"), [cell("c0", "the cell")])
            for state in (State.QUEUED, State.LEASED, State.RUNNING):
                repositories.set_cell_state(session, "sweep-1", "c0", state)
            ok, reasons = verdict is Verdict.PASS, [f"{verdict}: in words"]
            repositories.conclude_cell(session, "sweep-1", "c0", verdict, ok, reasons, State.FINISHED)
            repositories.end_sweep(session, "sweep-1")
        return "sweep-1"

    def cancel(self, sweep_id: str, cell_id: str | None = None) -> None:
        self.asked.append(("cancel", sweep_id, cell_id))

    def rerun(self, sweep_id: str, cells: Sequence[str] | None = None) -> None:
        self.asked.append(("rerun", sweep_id, cells))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith("SHARDPROOF_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SHARDPROOF_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def store(home: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{home / 'shardproof.db'}")
    yield store
    store.close()


@pytest.fixture
def controller(store: Store) -> EndingController:
    return EndingController(store)


@pytest.fixture
def url(home: Path, store: Store, controller: EndingController) -> Iterator[str]:
    with server.serving(create_app(Settings(home=home), store, controller)) as url:
        yield url


def shardproof(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    """The exit status of the command."""
    monkeypatch.setattr("sys.argv", ["shardproof", *map(str, arguments)])
    with pytest.raises(SystemExit) as left:
        cli.main()
    return int(left.value.code or 0)


def matrix(home: Path, name: str) -> Path:
    path = home / "matrix.yaml"
    path.write_text(MATRIX.replace("quickstart", name))
    return path


@pytest.mark.parametrize(("verdict", "status"), [("pass", 0), ("fail-residual", 1), ("crashed", 1)])
def test_ci_submits_waits_and_reads_how_it_went(
    home: Path, url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], verdict: str, status: int
) -> None:
    files = home / "results.xml", home / "report.json"
    left = shardproof(
        monkeypatch, "submit", matrix(home, verdict), "--wait", "--junit", files[0], "--json", files[1], "--url", url
    )
    assert left == status
    printed = capsys.readouterr().out
    assert printed.splitlines()[0] == "sweep-1"
    assert verdict in printed
    suites = ElementTree.parse(files[0]).getroot()
    counted = (suites.get("tests"), suites.get("failures"), suites.get("errors"))
    assert counted == {"pass": ("1", "0", "0"), "fail-residual": ("1", "1", "0"), "crashed": ("1", "0", "1")}[verdict]
    said = [str(found.get("message")) for found in suites.iter() if found.tag in ("failure", "error")]
    assert said == ([] if status == 0 else [f"{verdict}: in words"])
    assert json.loads(files[1].read_text())["sweep"]["id"] == "sweep-1"


def test_without_waiting_only_the_id_is_printed(
    home: Path, url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shardproof(monkeypatch, "submit", matrix(home, "crashed"), "--url", url) == 0
    assert capsys.readouterr().out == "sweep-1\n"


def test_a_matrix_that_cannot_be_used_is_status_2(
    home: Path, url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = home / "matrix.yaml"
    path.write_text("\n\nengine: {}\n")
    junit = home / "results.xml"
    assert shardproof(monkeypatch, "submit", path, "--wait", "--junit", junit, "--url", url) == 2
    said = capsys.readouterr().err
    assert "line 3, column 1 engine: there is no name" in said
    assert "Traceback" not in said
    assert not junit.exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["submit", "none.yaml"], "cannot be read"),
        (["submit", "matrix.yaml", "--junit", "x"], "add --wait"),
        (["rerun", SWEEP, "--junit", "x"], "add --wait"),
        (["export", SWEEP], "nothing to write; add --junit FILE, --csv FILE"),
        (["export", "nope", "--csv", "x"], "there is no sweep 'nope'"),
        (["export", SWEEP, "--csv", "no/such/folder/x"], "cannot be written"),
        (["cancel", SWEEP, "--cell", "nope"], "has no cell 'nope'"),
    ],
)
def test_wrong_input_is_status_2(
    home: Path,
    url: str,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(home)
    monkeypatch.setenv("SHARDPROOF_URL", url)
    matrix(home, "pass")
    add_sweep(store)
    assert shardproof(monkeypatch, *arguments) == 2
    assert said in capsys.readouterr().err.replace("\n", " ")


def test_a_sweep_is_exported_from_here_and_from_a_controller(
    home: Path, url: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store)
    forms = [part for form in ("junit", "csv", "parquet", "html") for part in (f"--{form}", home / form)]
    assert shardproof(monkeypatch, "export", SWEEP, *forms) == 0
    here = {form: (home / form).read_bytes() for form in ("junit", "csv", "parquet", "html")}
    assert shardproof(monkeypatch, "export", SWEEP, *forms, "--url", url) == 0
    assert {form: (home / form).read_bytes() for form in here} == here
    assert b"sp-guard-removed" in here["html"]


def test_a_sweep_and_single_cells_are_cancelled_and_run_again(
    home: Path, url: str, store: Store, controller: EndingController, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_sweep(store)
    at = ("--url", url)
    assert shardproof(monkeypatch, "cancel", SWEEP, *at) == 0
    assert shardproof(monkeypatch, "cancel", SWEEP, "--cell", "cell c1", "--cell", "c0", *at) == 0
    assert shardproof(monkeypatch, "rerun", SWEEP, *at) == 0
    assert shardproof(monkeypatch, "rerun", SWEEP, "--cell", "cell c1", "--cell", "c0", *at) == 0
    assert controller.asked == [
        ("cancel", SWEEP, None),
        ("cancel", SWEEP, "c1"),
        ("cancel", SWEEP, "c0"),
        ("rerun", SWEEP, None),
        ("rerun", SWEEP, ["c1", "c0"]),
    ]


def test_status_asks_a_controller(
    home: Path, url: str, store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    add_sweep(store, cells=1)
    finish(store, "c0", evidence())
    assert shardproof(monkeypatch, "status", SWEEP, "--url", url) == 0
    assert "cell c0" in capsys.readouterr().out
