from __future__ import annotations

import secrets
from datetime import UTC, datetime, timedelta
from itertools import product

import pytest

from service.domain.keys import ApiKey, Scope, compose, digest, id_of, lifetime, matches

NOW = datetime(2026, 11, 30, 2, 15, tzinfo=UTC)


def key(expires_at: datetime | None = None, revoked_at: datetime | None = None) -> ApiKey:
    return ApiKey("0123456789ab", "CI", Scope.READ, NOW, "somebody", expires_at, None, revoked_at)


def test_each_scope_may_do_what_those_before_it_may() -> None:
    order = [Scope.READ, Scope.SUBMIT, Scope.ADMIN]
    for has, needed in product(order, order):
        assert has.allows(needed) == (order.index(has) >= order.index(needed))


def test_a_key_leads_to_its_id_and_nothing_else_does() -> None:
    text = compose("0123456789ab", secrets.token_urlsafe(32))
    assert id_of(text) == "0123456789ab"
    for wrong in ("", "sp_", text[:-1], text + "x", text.upper(), f" {text}", text + "\n", text.replace("sp", "pk")):
        assert id_of(wrong) is None


def test_only_the_very_key_matches_what_is_stored() -> None:
    text = compose("0123456789ab", secrets.token_urlsafe(32))
    stored = digest(text)
    assert text not in stored
    assert matches(text, stored)
    assert not matches(text[:-1] + ("A" if text[-1] != "A" else "B"), stored)
    assert not matches("", stored)
    assert not matches(stored, stored)


def test_a_key_is_usable_until_it_expires_or_is_revoked() -> None:
    assert key().usable(NOW)
    assert key(expires_at=NOW + timedelta(seconds=1)).usable(NOW)
    assert not key(expires_at=NOW).usable(NOW)
    assert not key(revoked_at=NOW).usable(NOW)
    assert key().prefix == "sp_0123456789ab"


def test_lifetimes_are_hours_days_weeks_or_never() -> None:
    assert lifetime("12h") == timedelta(hours=12)
    assert lifetime("90d") == timedelta(days=90)
    assert lifetime("8w") == timedelta(weeks=8)
    assert lifetime("never") is None


@pytest.mark.parametrize("text", ["", "90", "d", "0d", "-1d", "1.5d", "9m", "3651d", "999999w", "90d ", "٩d"])
def test_what_is_no_lifetime_says_what_to_write(text: str) -> None:
    with pytest.raises(ValueError, match="90d"):
        lifetime(text)
