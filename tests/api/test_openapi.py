"""The description is complete: every operation says what it does, how it fails, and shows what it answers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from store.samples import SWEEP, add_sweep, evidence, finish

from api.client import Client, make_client
from service.api.description import operations
from service.api.examples import ANSWERS, BODIES
from service.api.failures import FAILURES
from service.domain.document import parse
from service.domain.wording import listing
from service.store import Store, open_store

ROOT = Path(__file__).parent.parent.parent


def described() -> dict[str, Any]:
    store = open_store("sqlite://")
    found: dict[str, Any] = make_client(store).app.openapi()
    store.close()
    return found


DESCRIPTION = described()
OPERATIONS = {operation["operationId"]: operation for _, operation in operations(DESCRIPTION)}


def validate(example: object, schema: dict[str, Any]) -> None:
    """Raises ``ValidationError``. The whole description is at hand for what ``schema`` refers to."""
    Draft202012Validator({**schema, "components": DESCRIPTION["components"]}).validate(example)


def contents(responses: dict[str, Any], want: str) -> list[dict[str, Any]]:
    return [
        content
        for status, response in responses.items()
        if status.startswith(want)
        for content in response.get("content", {}).values()
    ]


def test_operations_have_names_of_their_own() -> None:
    assert len(OPERATIONS) == len(list(operations(DESCRIPTION)))
    assert all(name.isidentifier() for name in OPERATIONS)


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_says_what_it_does(name: str) -> None:
    operation = OPERATIONS[name]
    assert operation["summary"]
    assert len(operation["description"]) > 10
    assert operation["tags"]


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_shows_what_it_answers(name: str) -> None:
    shown = contents(OPERATIONS[name]["responses"], "2")
    assert shown
    for content in shown:
        validate(content["example"], content["schema"])


@pytest.mark.parametrize("name", [name for name in OPERATIONS if "requestBody" in OPERATIONS[name]])
def test_an_operation_shows_what_it_takes(name: str) -> None:
    for media_type, content in OPERATIONS[name]["requestBody"]["content"].items():
        example = content["example"]
        validate(parse(example).tree if media_type == "application/yaml" else example, content["schema"])


def test_a_parameter_is_refused_unless_the_description_has_it(client: Client) -> None:
    """Routes tell theirs one by one."""
    for path, item in DESCRIPTION["paths"].items():
        for method, operation in item.items():
            own = [found["name"] for found in operation.get("parameters", []) if found["in"] == "query"]
            answer = client.request(method, re.sub(r"{\w+}", "x", path), params={"nobody": "knows"})
            (problem,) = answer.json()["errors"]
            assert problem["code"] == "unknown-parameter"
            assert problem["detail"].endswith(f"all are {listing(own)}" if own else "this takes none")


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_says_how_it_fails(name: str) -> None:
    shown = contents(OPERATIONS[name]["responses"], "4") + contents(OPERATIONS[name]["responses"], "5")
    assert shown
    for content in shown:
        for code, example in content["examples"].items():
            validate(example["value"], content["schema"])
            assert example["value"]["code"] == code
    for response in OPERATIONS[name]["responses"].values():
        assert response["description"]


@pytest.mark.parametrize("broken", [{"starts": [{"arm": "lukewarm"}]}, {}, [], {"starts": None}])
def test_an_example_of_another_form_would_be_seen(broken: object) -> None:
    (content,) = contents(OPERATIONS["get_phases"]["responses"], "2")
    with pytest.raises(ValidationError):
        validate(broken, content["schema"])


def test_no_example_is_of_an_operation_that_is_not_there() -> None:
    assert set(ANSWERS) - set(OPERATIONS) == set()
    assert set(BODIES) - set(OPERATIONS) == set()


def test_examples_of_plain_documents_have_keys_of_real_ones(store: Store) -> None:
    client = make_client(store)
    add_sweep(store, cells=1)
    finish(store, "c0", evidence())
    report = client.get(f"/v1/sweeps/{SWEEP}/report").json()
    cell = client.get(f"/v1/cells/{SWEEP}/c0").json()
    example = ANSWERS["get_report"]
    assert example.keys() == report.keys()
    assert example["sweep"].keys() <= report["sweep"].keys()
    assert example["summary"].keys() == report["summary"].keys()
    assert example["cells"][0].keys() <= report["cells"][0].keys()
    assert ANSWERS["get_cell"].keys() <= cell.keys()


def answered() -> set[str]:
    """Codes that the source of the API answers with, each behind its status."""
    sources = [path.read_text() for path in (ROOT / "service" / "api").glob("*.py") if path.name != "failures.py"]
    return {code for text in sources for code in re.findall(r'HTTPStatus\.\w+[,:]\s*"([a-z0-9-]+)"', text)}


def test_every_code_that_is_answered_is_described() -> None:
    assert {"too-many-streams", "artifacts-removed", "invalid-cursor", "body-too-large", "not-found"} <= answered()
    assert answered() - set(FAILURES) == set()


def test_every_code_is_documented() -> None:
    text = (ROOT / "docs" / "rest.md").read_text()
    assert {code for code in FAILURES if f"| `{code}` | {int(FAILURES[code].status)} |" not in text} == set()


def test_every_operation_is_documented() -> None:
    text = (ROOT / "docs" / "rest.md").read_text()
    for path, item in DESCRIPTION["paths"].items():
        for method in item:
            assert f"`{method.upper()} {path}`" in text, path


def test_a_description_that_was_asked_for_twice_is_the_same(client: Client) -> None:
    assert client.get("/openapi.json").json() == client.get("/openapi.json").json()
