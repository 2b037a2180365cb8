"""Schedules by their pages: the same rules as the API's, said beside the field."""

from __future__ import annotations

from typing import Any

from api.client import Client, StoringController, make_client
from api.keyed import make_key
from api.test_problems import assert_problem

from dashboard.page import Page
from dashboard.test_login import OWN, session
from service.domain.keys import Scope
from service.store import Store

MATRIX = "name: nightly\nengine:\n  model: tiny:llama\n"
TIMES = {"cron": "30 2 * * mon-fri", "timezone": "Europe/Berlin", "missed": "once"}
WRITTEN = {"name": "nightly", **TIMES, "matrix": MATRIX}
HOSTILE = "<script>alert('x')</script>"


def add(client: Client, headers: dict[str, str] | None = None, **fields: str) -> Any:
    return client.post("/schedules/", data=WRITTEN | fields, headers=OWN | (headers or {}))


def values(page: Page, form: str) -> dict[str, str]:
    """What the fields of the page hold that are sent with a form, by name; ``form``: how its action ends."""
    assert any(str(item.get("action")).endswith(form) for item in page.named("form"))
    return {str(item["name"]): str(item.get("value") or "") for item in page.named("input") if item.get("name")}


def test_a_schedule_is_added_and_its_page_shows_what_comes(client: Client) -> None:
    response = add(client)
    assert (response.status_code, response.headers["Location"]) == (303, "nightly")
    stored = client.get("/v1/schedules/nightly").json()
    assert {key: stored[key] for key in TIMES} == TIMES
    assert stored["matrix"] == {"name": "nightly", "engine": {"model": "tiny:llama"}}
    page = Page(client.get("/schedules/nightly").text)
    assert len(page.named("time")) == 2 + 5
    assert page.named("time")[2]["datetime"] == stored["next_at"].replace("+00:00", "Z")
    assert "model: tiny:llama" in page.text
    assert "nightly 30 2 * * mon-fri Europe/Berlin once" in Page(client.get("/schedules/").text).text


WRONG = [
    ("cron", "30 2 * *", "has 4 fields and not 5"),
    ("cron", "", "has 0 fields and not 5"),
    ("timezone", "Europe/Atlantis", "is no time zone"),
    ("name", "a b", "String should match pattern"),
    ("missed", "perhaps", "Input should be"),
    ("matrix", "name: x\n  engine: [", "line 2"),
    ("matrix", "", "the file is empty"),
    ("matrix", "name: x\nengine: {model: tiny:llama, trust_remote_code: true}\n", "line 2"),
]


def test_what_is_wrong_stands_beside_its_field(client: Client) -> None:
    for field, text, said in WRONG:
        response = add(client, **{field: text})
        assert response.status_code == 422, field
        page = Page(response.text)
        tag = {"missed": "select", "matrix": "textarea"}.get(field, "input")
        (wrong,) = [item for item in page.named(tag) if item.get("aria-invalid")]
        assert wrong["name"] == field
        assert str(wrong["aria-describedby"]).split()[0] in page.attributes("id")
        assert said in page.text
        # What was right need not be written again.
        assert {"nightly", *TIMES.values()} - {text, WRITTEN[field]} <= set(page.attributes("value"))
    assert client.get("/v1/schedules").json()["schedules"] == []


def test_a_name_that_is_taken_is_said_at_the_name(client: Client) -> None:
    add(client)
    response = add(client)
    assert response.status_code == 409
    assert "there is a schedule 'nightly' already" in Page(response.text).text


def test_a_schedule_is_changed_and_a_change_in_between_is_not_overwritten(client: Client) -> None:
    add(client)
    sent = {"version": "1", "cron": "0 4 * * *", "timezone": "UTC", "missed": "skip", "matrix": MATRIX}
    assert values(Page(client.get("/schedules/nightly").text), "schedules/nightly")["version"] == "1"
    first = client.post("/schedules/nightly", data=sent, headers=OWN)
    assert (first.status_code, first.headers["Location"]) == (303, "nightly")
    assert client.get("/v1/schedules/nightly").json()["cron"] == "0 4 * * *"
    late = client.post("/schedules/nightly", data=sent | {"cron": "0 5 * * *"}, headers=OWN)
    assert late.status_code == 412
    assert "was changed in between" in Page(late.text).text
    assert client.get("/v1/schedules/nightly").json()["cron"] == "0 4 * * *"
    unsaid = client.post("/schedules/nightly", data={**sent, "version": "x"}, headers=OWN)
    assert unsaid.status_code == 412


def test_another_matrix_is_audited_before_it_is_taken(client: Client) -> None:
    add(client)
    unknown = f"{MATRIX}  tensor_paralel_size: 2\n"
    sent = {"version": "1", **TIMES, "matrix": unknown}
    response = client.post("/schedules/nightly", data=sent, headers=OWN)
    assert response.status_code == 422
    assert "line 4" in Page(response.text).text
    assert "tensor_parallel_size" in Page(response.text).text
    right = sent | {"matrix": unknown.replace("paralel", "parallel")}
    assert client.post("/schedules/nightly", data=right, headers=OWN).status_code == 303
    assert client.get("/v1/schedules/nightly").json()["matrix"]["engine"]["tensor_parallel_size"] == 2


def test_it_is_suspended_resumed_run_and_deleted(client: Client) -> None:
    add(client)
    for step, (action, suspended) in enumerate((("suspend", True), ("resume", False)), start=1):
        response = client.post(f"/schedules/nightly/{action}", data={"version": str(step)}, headers=OWN)
        assert (response.status_code, response.headers["Location"]) == (303, "../nightly")
        assert client.get("/v1/schedules/nightly").json()["suspended"] is suspended
    response = client.post("/schedules/nightly/fires", headers=OWN)
    assert (response.status_code, response.headers["Location"]) == (303, "../nightly")
    (fire,) = client.get("/v1/schedules/nightly/fires").json()["fires"]
    page = Page(client.get("/schedules/nightly").text)
    assert f"../sweeps/{fire['sweep_id']}" in page.attributes("href")
    assert client.post("/schedules/nightly/delete", data={"version": "1"}, headers=OWN).status_code == 412
    response = client.post("/schedules/nightly/delete", data={"version": "3"}, headers=OWN)
    assert (response.status_code, response.headers["Location"]) == (303, "../")
    assert client.get("/v1/schedules/nightly").status_code == 404


def test_a_sweep_that_a_schedule_cannot_submit_says_why_on_its_page(store: Store) -> None:
    controller = StoringController(store)
    client = make_client(store, controller)
    add(client, matrix="name: explode\nengine: {model: tiny:llama}\n")
    client.post("/schedules/nightly/fires", headers=OWN)
    (fire,) = client.get("/v1/schedules/nightly/fires").json()["fires"]
    assert fire["sweep_id"] is None
    assert str(fire["detail"]) in Page(client.get("/schedules/nightly").text).text


def test_who_may_only_look_is_offered_nothing_to_change(client: Client, store: Store) -> None:
    add(client)
    headers = session(client, make_key(store, Scope.READ))
    for path in ("/schedules/", "/schedules/nightly"):
        page = Page(client.get(path, headers=headers).text)
        assert {str(form["action"]).rpartition("/")[2] for form in page.named("form")} == {"logout"}
    assert_problem(add(client, headers, name="other"), 403, "scope-missing")


def test_forms_bring_the_token_of_the_session(client: Client, store: Store) -> None:
    headers = session(client, make_key(store, Scope.SUBMIT))
    assert_problem(add(client, headers), 403, "csrf")
    (token,) = {values(Page(client.get("/schedules/", headers=headers).text), "schedules/#add")["csrf"]}
    assert add(client, headers, csrf=token).status_code == 303
    assert_problem(add(client, headers | {"Origin": "http://evil.example"}, csrf=token), 403, "cross-site")


def test_hostile_text_is_text(client: Client) -> None:
    page = Page(add(client, name=HOSTILE, cron=HOSTILE, timezone=HOSTILE, matrix=f"name: {HOSTILE}: [").text)
    assert [script.get("src") for script in page.named("script")] == ["../static/times.js"]
    add(client, matrix=f'name: "{HOSTILE}"\nengine: {{model: tiny:llama}}\n')
    page = Page(client.get("/schedules/nightly").text)
    assert HOSTILE in page.text
    assert [script.get("src") for script in page.named("script")] == ["../static/times.js"]


def test_a_schedule_that_is_not_there(client: Client) -> None:
    assert client.get("/schedules/none").status_code == 404
    assert client.post("/schedules/none/suspend", data={"version": "1"}, headers=OWN).status_code == 404
