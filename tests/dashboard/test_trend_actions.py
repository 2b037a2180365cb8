"""What people say of a series on its page: accepted, muted, pinned; and who may."""

from __future__ import annotations

from api.client import Client
from api.keyed import make_key
from api.test_problems import assert_problem

from dashboard.page import Page
from dashboard.test_login import OWN, session
from dashboard.test_trends import page_of, slower
from service.domain.keys import Scope
from service.store import Store, repositories
from service.store.series_records import SeriesState

__all__ = ["slower"]


def newest_point(store: Store) -> int:
    with store.reading() as session:
        return repositories.series_points.points_of(session, "s1", ["cold_s"])[-1].id


def state_of(store: Store) -> SeriesState:
    with store.reading() as session:
        return repositories.series_state.state_of(session, "s1")


def test_a_baseline_is_accepted_with_a_reason(slower: Client, store: Store) -> None:
    fields = {"point": f"cold_s:{newest_point(store)}", "reason": "the new compiler is worth it"}
    response = slower.post("/trends/s1/baseline", data=fields, headers=OWN)
    assert (response.status_code, response.headers["Location"]) == (303, "../s1")
    page = page_of(slower)
    assert "accepted by local user: the new compiler is worth it" in page.text
    assert "✗ regression" not in page.text


def test_what_is_wrong_stands_beside_its_field(slower: Client, store: Store) -> None:
    point = f"cold_s:{newest_point(store)}"
    wrong = [
        ("baseline", {"point": "", "reason": "why"}, "point"),
        ("baseline", {"point": "cold_s:x", "reason": "why"}, "point"),
        ("baseline", {"point": point, "reason": ""}, "reason"),
        ("baseline", {"point": point, "reason": "x" * 501}, "reason"),
        ("mute", {"until": "2020-01-01", "reason": "why"}, "until"),
        ("mute", {"until": "soon", "reason": "why"}, "until"),
        ("mute", {"until": "2999-01-01", "reason": " "}, "reason"),
    ]
    for action, fields, field in wrong:
        response = slower.post(f"/trends/s1/{action}", data=fields, headers=OWN)
        assert response.status_code == 422, fields
        page = Page(response.text)
        assert page.attributes("id").count(f"{field}-error-1") == 1, fields
        assert fields["reason"].strip() in [*page.attributes("value"), ""]
    state = state_of(store)
    assert state.mutes == ()
    assert state.figures["cold_s"].accepted is None


def test_a_point_of_another_figure_is_no_baseline(slower: Client, store: Store) -> None:
    fields = {"point": f"warm_s:{newest_point(store)}", "reason": "why"}
    response = slower.post("/trends/s1/baseline", data=fields, headers=OWN)
    assert response.status_code == 409
    assert "is none of warm_s" in Page(response.text).text


def test_it_is_muted_until_a_day_and_told_of_again(slower: Client) -> None:
    fields = {"until": "2999-12-31", "reason": "compiler is being changed"}
    assert slower.post("/trends/s1/mute", data=fields, headers=OWN).headers["Location"] == "../s1"
    page = page_of(slower)
    assert "▲ muted until 2999-12-31 23:59:59 UTC" in page.text
    assert "by local user: compiler is being changed" in page.text
    assert slower.post("/trends/s1/unmute", headers=OWN).status_code == 303
    assert "▲ muted" not in page_of(slower).text


def test_it_is_pinned_and_taken_off(slower: Client) -> None:
    for pinned in ("true", "false"):
        assert slower.post("/trends/s1/pin", data={"pinned": pinned}, headers=OWN).status_code == 303
        assert ("★ pinned" in page_of(slower).text) is (pinned == "true")


def test_who_may_only_look_is_offered_nothing(slower: Client, store: Store) -> None:
    headers = session(slower, make_key(store, Scope.READ))
    page = page_of(slower, headers=headers)
    assert {str(form["action"]) for form in page.named("form") if form["method"] == "post"} == {"../logout"}
    assert_problem(slower.post("/trends/s1/pin", headers=headers | OWN), 403, "scope-missing")


def test_forms_bring_the_token_of_the_session(slower: Client, store: Store) -> None:
    headers = session(slower, make_key(store, Scope.SUBMIT)) | OWN
    assert_problem(slower.post("/trends/s1/pin", data={"pinned": "true"}, headers=headers), 403, "csrf")
    fields = page_of(slower, headers=headers).named("input")
    (token,) = {str(item["value"]) for item in fields if item.get("name") == "csrf"}
    fields_sent = {"pinned": "true", "csrf": token}
    assert slower.post("/trends/s1/pin", data=fields_sent, headers=headers).status_code == 303
