"""Schedules and their fires in the database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy.exc import IntegrityError

from service.domain.cron import InvalidTime
from service.domain.schedule import Cause, Missed
from service.store import Store, repositories
from service.store.records import UnknownRecord
from service.store.schedule_models import FireRow
from service.store.schedule_records import Claim, FireState, NameTaken, ScheduleFields, VersionConflict

MATRIX = {"name": "nightly", "engine": {"model": "tiny:llama"}, "matrix": {"z": [1], "a": [2]}}
NOW = datetime(2026, 10, 24, 12, tzinfo=UTC)
FIRST = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
SECOND = datetime(2026, 10, 26, 1, 30, tzinfo=UTC)


def fields(cron: str = "30 2 * * *", missed: Missed = Missed.SKIP, suspended: bool = False) -> ScheduleFields:
    return ScheduleFields(cron, "Europe/Berlin", missed, suspended, MATRIX)


def add(store: Store, name: str = "nightly", written: ScheduleFields | None = None) -> None:
    with store.transaction() as session:
        repositories.create_schedule(session, name, written or fields(), NOW)


def claim(now: datetime, owner: str = "a") -> Claim:
    return Claim(owner, now + timedelta(minutes=2))


def test_a_schedule_comes_back_as_it_was_written(store: Store) -> None:
    add(store)
    with store.reading() as session:
        found = repositories.get_schedule(session, "nightly")
        listed = repositories.list_schedules(session, 10)
    assert found.fields == fields()
    assert list(found.matrix["matrix"]) == ["z", "a"]
    assert (found.version, found.created_at, found.next_at) == (1, NOW, FIRST)
    assert [(item.name, item.next_at) for item in listed] == [("nightly", FIRST)]
    assert not hasattr(listed[0], "matrix")


def test_names_are_unique_and_listed_in_pages(store: Store) -> None:
    for name in ("c", "a", "b"):
        add(store, name)
    with pytest.raises(NameTaken):
        add(store, "a")
    with store.reading() as session:
        first = repositories.list_schedules(session, 2)
        rest = repositories.list_schedules(session, 2, after=first[-1].name)
    assert [item.name for item in (*first, *rest)] == ["a", "b", "c"]


def test_a_schedule_that_cannot_be_is_not_stored(store: Store) -> None:
    with pytest.raises(InvalidTime):
        add(store, written=fields("61 2 * * *"))
    with store.reading() as session, pytest.raises(UnknownRecord):
        repositories.get_schedule(session, "nightly")


def test_who_has_seen_an_old_version_changes_and_deletes_nothing(store: Store) -> None:
    add(store)
    with store.transaction() as session:
        changed = repositories.change_schedule(session, "nightly", fields("0 3 * * *"), 1, NOW)
    assert changed.version == 2
    with pytest.raises(VersionConflict, match="version 1"), store.transaction() as session:
        repositories.change_schedule(session, "nightly", fields("0 4 * * *"), 1, NOW)
    with pytest.raises(VersionConflict), store.transaction() as session:
        repositories.delete_schedule(session, "nightly", 1)
    with store.reading() as session:
        assert repositories.get_schedule(session, "nightly").cron == "0 3 * * *"
    with store.transaction() as session:
        repositories.delete_schedule(session, "nightly", 2)
    with store.reading() as session:
        assert repositories.list_schedules(session, 1) == []


def test_what_passed_while_it_was_suspended_was_not_missed(store: Store) -> None:
    add(store, written=fields(missed=Missed.ONCE, suspended=True))
    later = SECOND + timedelta(hours=5)
    with store.reading() as session:
        assert repositories.due_schedules(session, later, 10) == []
        assert repositories.next_time(session) is None
    with store.transaction() as session:
        resumed = repositories.change_schedule(session, "nightly", fields(missed=Missed.ONCE), 1, later)
    assert resumed.next_at == SECOND + timedelta(days=1)
    with store.transaction() as session:
        assert repositories.claim_due(session, "nightly", later, claim(later)) is None


def test_another_policy_leaves_what_is_due_due(store: Store) -> None:
    add(store)
    with store.transaction() as session:
        repositories.change_schedule(session, "nightly", fields(missed=Missed.ONCE), 1, FIRST + timedelta(hours=3))
    with store.transaction() as session:
        fire = repositories.claim_due(session, "nightly", FIRST + timedelta(hours=4), claim(FIRST))
    assert fire is not None
    assert (fire.due_at, fire.cause) == (FIRST, Cause.MISSED)


def test_a_time_is_claimed_once_and_the_next_one_waited_for(store: Store) -> None:
    add(store)
    with store.reading() as session:
        assert repositories.due_schedules(session, FIRST - timedelta(seconds=1), 10) == []
        assert repositories.due_schedules(session, FIRST, 10) == ["nightly"]
    with store.transaction() as session:
        fire = repositories.claim_due(session, "nightly", FIRST, claim(FIRST))
    assert fire is not None
    assert (fire.due_at, fire.cause, fire.state) == (FIRST, Cause.DUE, FireState.CLAIMED)
    with store.transaction() as session:
        assert repositories.claim_due(session, "nightly", FIRST, claim(FIRST, "b")) is None
        assert repositories.next_time(session) == SECOND


def test_a_time_that_comes_again_since_the_clock_was_put_back_is_not_served_again(store: Store) -> None:
    add(store)
    with store.transaction() as session:
        repositories.claim_due(session, "nightly", FIRST, claim(FIRST))
    with store.transaction() as session:
        repositories.change_schedule(session, "nightly", fields("30 2 * * *", suspended=True), 1, NOW)
        repositories.change_schedule(session, "nightly", fields("30 2 * * *"), 2, NOW)
        assert repositories.next_time(session) == FIRST
    with store.transaction() as session:
        assert repositories.claim_due(session, "nightly", FIRST, claim(FIRST, "b")) is None
        assert repositories.next_time(session) == SECOND
        assert len(repositories.list_fires(session, "nightly", 10)) == 1


def test_the_database_takes_a_time_once(store: Store) -> None:
    """Whatever a controller thinks it sees."""
    add(store)
    with store.transaction() as session:
        fire = repositories.claim_due(session, "nightly", FIRST, claim(FIRST))
        assert fire is not None
    with store.reading() as session:
        row = session.get_one(FireRow, fire.id)
        columns = {column.key: getattr(row, column.key) for column in FireRow.__table__.columns if column.key != "id"}
    with pytest.raises(IntegrityError), store.transaction() as session:
        session.add(FireRow(**columns))


def test_a_missed_time_is_skipped_by_rule_and_that_is_seen(store: Store) -> None:
    add(store)
    now = SECOND + timedelta(hours=1)
    with store.transaction() as session:
        assert repositories.claim_due(session, "nightly", now, claim(now)) is None
    with store.reading() as session:
        (fire,) = repositories.list_fires(session, "nightly", 10)
        assert repositories.next_time(session) == SECOND + timedelta(days=1)
    assert (fire.due_at, fire.state, fire.cause, fire.ended_at) == (SECOND, FireState.SKIPPED, Cause.MISSED, now)


def test_a_suspended_schedule_fires_when_somebody_asks_and_that_serves_no_time(store: Store) -> None:
    add(store, written=fields(suspended=True))
    for _ in range(2):
        with store.transaction() as session:
            fire = repositories.claim_asked(session, "nightly", NOW, claim(NOW))
        assert (fire.due_at, fire.cause) == (None, Cause.ASKED)
    with store.transaction() as session, pytest.raises(UnknownRecord):
        repositories.claim_asked(session, "nope", NOW, claim(NOW))


def test_a_claim_is_taken_over_once_its_lease_has_run_out(store: Store) -> None:
    add(store)
    with store.transaction() as session:
        fire = repositories.claim_due(session, "nightly", FIRST, claim(FIRST))
    assert fire is not None
    for now, found in ((FIRST + timedelta(minutes=1), []), (FIRST + timedelta(minutes=3), [fire.id])):
        with store.reading() as session:
            assert repositories.abandoned_fires(session, now) == found
    with store.transaction() as session:
        assert repositories.take_over(session, fire.id, FIRST + timedelta(minutes=1), claim(FIRST, "b")) is None
        repositories.renew_fires(session, [fire.id], claim(FIRST + timedelta(minutes=2), "b"))
    late = FIRST + timedelta(minutes=3)
    with store.transaction() as session:
        taken = repositories.take_over(session, fire.id, late, claim(late, "b"))
    assert taken is not None
    assert taken.attempts == 2
    with store.transaction() as session:
        repositories.conclude_fire(session, fire.id, "a", late, "sweep-of-a")
        repositories.conclude_fire(session, fire.id, "b", late, None, "why not")
    with store.reading() as session:
        (ended,) = repositories.list_fires(session, "nightly", 1)
    assert (ended.state, ended.sweep_id, ended.detail) == (FireState.FAILED, None, "why not")


def test_a_lease_that_is_renewed_is_not_taken_over(store: Store) -> None:
    add(store)
    with store.transaction() as session:
        fire = repositories.claim_due(session, "nightly", FIRST, claim(FIRST))
        assert fire is not None
        repositories.renew_fires(session, [fire.id], claim(FIRST + timedelta(minutes=2)))
    with store.reading() as session:
        assert repositories.abandoned_fires(session, FIRST + timedelta(minutes=3)) == []


def test_fires_are_listed_newest_first_in_pages_and_go_with_their_schedule(store: Store) -> None:
    add(store)
    for _ in range(3):
        with store.transaction() as session:
            repositories.claim_asked(session, "nightly", NOW, claim(NOW))
    with store.reading() as session:
        first = repositories.list_fires(session, "nightly", 2)
        rest = repositories.list_fires(session, "nightly", 2, before=first[-1].id)
    ids = [fire.id for fire in (*first, *rest)]
    assert len(ids) == 3
    assert ids == sorted(ids, reverse=True)
    with store.transaction() as session:
        repositories.delete_schedule(session, "nightly", 1)
        assert repositories.list_fires(session, "nightly", 2) == []
