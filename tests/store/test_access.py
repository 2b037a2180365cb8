from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from service.domain.keys import ApiKey, Scope
from service.store import Store
from service.store.records import UnknownRecord
from service.store.repositories import access, audit
from service.store.repositories.audit import NewAudit
from store.samples import SWEEP, add_sweep

NOW = datetime(2026, 11, 30, 2, 15, tzinfo=UTC)
HOUR = timedelta(hours=1)


def add_key(store: Store, key_id: str = "k1") -> ApiKey:
    key = ApiKey(key_id, "CI", Scope.SUBMIT, NOW, "somebody", NOW + HOUR, None, None)
    with store.transaction() as session:
        access.add_key(session, key, f"digest of {key_id}")
    return key


def test_a_key_comes_back_as_it_was_stored(store: Store) -> None:
    with store.reading() as session:
        assert not access.any_key(session)
    key = add_key(store)
    with store.reading() as session:
        assert access.get_key(session, "k1") == (key, "digest of k1")
        assert access.any_key(session)
        with pytest.raises(UnknownRecord, match="no key 'k2'"):
            access.get_key(session, "k2")


def test_keys_are_listed_newest_first_and_by_pages(store: Store) -> None:
    for number in range(3):
        add_key(store, f"k{number}")
    with store.reading() as session:
        assert [key.id for key in access.list_keys(session, 2)] == ["k2", "k1"]
        assert [key.id for key in access.list_keys(session, 2, "k1")] == ["k0"]


def test_a_key_is_changed_and_its_use_noted(store: Store) -> None:
    add_key(store)
    with store.transaction() as session:
        assert access.lock_key(session, "k1").name == "CI"
        access.change_key(session, "k1", "nightly", None)
        access.note_use(session, "k1", NOW)
    with store.reading() as session:
        key = access.get_key(session, "k1").key
    assert (key.name, key.expires_at, key.last_used_at) == ("nightly", None, NOW)


def test_a_session_is_its_key_s_until_either_ends(store: Store) -> None:
    add_key(store)
    with store.transaction() as session:
        access.add_session(session, "s1", "k1", NOW + HOUR, NOW)
        access.add_session(session, "s2", "k1", NOW + HOUR, NOW)

    def whose(digest: str, now: datetime = NOW) -> str | None:
        with store.reading() as session:
            key = access.key_of_session(session, digest, now)
        return None if key is None else key.id

    assert (whose("s1"), whose("s1", NOW + HOUR), whose("s3")) == ("k1", None, None)
    with store.transaction() as session:
        access.end_session(session, "s1")
    assert (whose("s1"), whose("s2")) == (None, "k1")
    with store.transaction() as session:
        access.revoke_key(session, "k1", NOW)
    assert whose("s2") is None


def test_revoking_again_keeps_the_first_time(store: Store) -> None:
    add_key(store)
    for now in (NOW, NOW + HOUR):
        with store.transaction() as session:
            access.revoke_key(session, "k1", now)
    with store.reading() as session:
        assert access.get_key(session, "k1").key.revoked_at == NOW


def test_a_submission_stands_for_what_came_first(store: Store) -> None:
    def reserve(digest: str, sweep_id: str, owner: str = "k1") -> access.Submission:
        with store.transaction() as session:
            return access.reserve(session, owner, "build-1", digest, sweep_id, NOW)

    assert reserve("a", SWEEP) == ("a", SWEEP, False)
    assert reserve("b", "other") == ("a", SWEEP, False)
    add_sweep(store)
    assert reserve("a", "other") == ("a", SWEEP, True)
    assert reserve("b", "other", "k2") == ("b", "other", False)
    with store.transaction() as session:
        access.release(session, "k1", "build-1")
    assert reserve("b", "other") == ("b", "other", False)
    with store.transaction() as session:
        access.forget_submissions(session, NOW + HOUR)
    assert reserve("c", "third") == ("c", "third", False)


def test_the_trail_is_read_newest_first(store: Store) -> None:
    for number in range(4):
        with store.transaction() as session:
            entry = NewAudit(NOW, f"k{number % 2}", "CI", "POST", f"/{number}", 201, "10.0.0.7")
            audit.add_audit(session, entry)
    with store.reading() as session:
        page = audit.list_audit(session, 2)
        rest = audit.list_audit(session, 10, before=page[-1].id)
        of_one = audit.list_audit(session, 10, key_id="k1")
    assert [entry.target for entry in page + rest] == ["/3", "/2", "/1", "/0"]
    assert [entry.target for entry in of_one] == ["/3", "/1"]
    assert (page[0].at, page[0].status, page[0].client) == (NOW, 201, "10.0.0.7")
