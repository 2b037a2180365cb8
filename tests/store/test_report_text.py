"""The report as text says what the report says, whether a part of it was kept or not."""

from __future__ import annotations

import hashlib
import json

import pytest
from sqlalchemy import update

from service.report import stored_report
from service.report_evidence import reported
from service.report_text import FORMAT, keep_part, stored_report_text
from service.store import Store, repositories
from service.store.models import RunPartRow
from service.store.plain import dump_json
from workers.protocol import Evidence, Failure, Outcome, Role, Traces

from .samples import SWEEP, add_sweep, arm_report, audited, divergence, evidence, finish, residual

STACKS = Failure(phase="dynamo", rank=1, message="it hung", log_tail=['"stacks": "'], stacks="cold/stacks.txt")
TRACES = Traces(logs=["cold/rank_0.log"], perfetto=None, tlparse=None)

KINDS = {
    "healthy": evidence(),
    "no environment": evidence(environment=None),
    "not a number": evidence(residual=[residual(first_divergence=divergence(float("inf")), worst_score=float("nan"))]),
    "names stacks": evidence(arms=[arm_report(Role.COLD, Outcome.TIMED_OUT, STACKS)]),
    "names traces": evidence(arms=[arm_report(Role.COLD).model_copy(update={"traces": TRACES})]),
    "quotes": evidence(arms=[arm_report(Role.COLD, Outcome.CRASHED, STACKS.model_copy(update={"stacks": None}))]),
}


def fill(store: Store, found: Evidence | None) -> None:
    """Two cells that ran, and one that waits."""
    cells = add_sweep(store, cells=3)
    for number, cell_id in enumerate(cells[:2]):
        with store.transaction() as session:
            repositories.record_audit(session, SWEEP, cell_id, audited(cell_id), "print")
        finish(store, cell_id, found, f"run-{number}")


def keep(store: Store, found: Evidence) -> None:
    with store.transaction() as session:
        for number in range(2):
            keep_part(session, f"run-{number}", found)


def both(store: Store) -> tuple[str, str]:
    """The report, and the text; each as text, so that the order of keys counts too."""
    with store.reading() as session:
        return json.dumps(stored_report(session, SWEEP)), stored_report_text(session, SWEEP)


@pytest.mark.parametrize("removed", [False, True], ids=["files there", "files removed"])
@pytest.mark.parametrize("kept", [False, True], ids=["made anew", "kept"])
@pytest.mark.parametrize("kind", KINDS)
def test_it_says_the_same(store: Store, kind: str, kept: bool, removed: bool) -> None:
    fill(store, KINDS[kind])
    if kept:
        keep(store, KINDS[kind])
    if removed:
        with store.transaction() as session:
            repositories.note_artifacts_removed(session, SWEEP, 1_796_100_000.0)
    report, text = both(store)
    assert text == report


def test_without_evidence_there_is_nothing_to_keep(store: Store) -> None:
    fill(store, None)
    report, text = both(store)
    assert text == report


def spoil(store: Store, **values: str) -> None:
    with store.transaction() as session:
        session.execute(update(RunPartRow).values(**values))


def test_what_is_kept_is_what_is_shown(store: Store) -> None:
    """Else the tests above would prove nothing."""
    fill(store, evidence())
    keep(store, evidence())
    spoil(store, text='{"arms": "kept"}')
    _, text = both(store)
    assert [cell.get("arms") for cell in json.loads(text)["cells"]] == ["kept", "kept", []]


def test_what_an_earlier_version_kept_is_made_anew(store: Store) -> None:
    fill(store, evidence())
    keep(store, evidence())
    spoil(store, text='{"arms": "kept"}', form="an older one")
    report, text = both(store)
    assert text == report


def test_another_text_has_another_version() -> None:
    """What is kept in databases is taken as it is: if this fails, raise ``FORMAT`` and write the new digest here."""
    texts = "".join(dump_json(reported(found, kept=True)) for found in KINDS.values())
    assert (FORMAT, hashlib.sha256(texts.encode()).hexdigest()[:12]) == ("2", "1bb495cd499d")
