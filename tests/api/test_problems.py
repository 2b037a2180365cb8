from __future__ import annotations

from typing import Any

import httpx
import pytest

from api.client import Client, make_client
from service.store import Store

JSON = {"Content-Type": "application/json"}
YAML = {"Content-Type": "application/yaml"}


def assert_problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status
    assert response.headers["Content-Type"] == "application/problem+json"
    problem: dict[str, Any] = response.json()
    assert (problem["status"], problem["code"]) == (status, code)
    assert problem["type"] == f"urn:shardproof:problem:{code}"
    assert problem["title"]
    assert problem["detail"]
    assert problem["instance"] == response.request.url.path
    return problem


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/nowhere", "not-found"),
        ("/static/nowhere.js", "not-found"),
        ("/v1/sweeps/nope", "unknown-sweep"),
        ("/v1/sweeps/nope/report", "unknown-sweep"),
        ("/v1/sweeps/nope/events", "unknown-sweep"),
        ("/sweeps/nope", "unknown-sweep"),
        ("/sweeps/nope/table", "unknown-sweep"),
    ],
)
def test_what_is_not_there(client: Client, path: str, code: str) -> None:
    assert_problem(client.get(path), 404, code)


def test_a_method_that_is_not_there(client: Client) -> None:
    response = client.request("DELETE", "/v1/sweeps/x")
    assert_problem(response, 405, "method-not-allowed")
    assert "GET" in response.headers["Allow"]


@pytest.mark.parametrize(
    ("path", "wrong"),
    [
        ("/v1/sweeps?limit=0", "query.limit"),
        ("/v1/sweeps?limit=many", "query.limit"),
        ("/v1/sweeps/x/events?after=-1", "query.after"),
        (f"/v1/sweeps/x/events?after={2**63}", "query.after"),
    ],
)
def test_parameters_that_are_not_valid(client: Client, path: str, wrong: str) -> None:
    problem = assert_problem(client.get(path), 422, "invalid-request")
    assert [item["path"] for item in problem["errors"]] == [wrong]


def test_a_matrix_that_cannot_be_used_says_where(client: Client) -> None:
    response = client.post("/v1/sweeps", content=b"\n  \nengine: {}\n", headers=YAML)
    problem = assert_problem(response, 422, "invalid-matrix")
    assert problem["errors"] == [
        {
            "code": "missing-key",
            "detail": "there is no name",
            "hint": "Add name:",
            "path": "engine",
            "line": 3,
            "column": 1,
        }
    ]
    assert "1 problem;" in problem["detail"]


def test_a_matrix_from_json_has_no_lines(client: Client) -> None:
    problem = assert_problem(client.post("/v1/sweeps", json={"engine": {}}), 422, "invalid-matrix")
    assert problem["errors"][0].keys() == {"code", "detail", "hint", "path"}


@pytest.mark.parametrize("content", [b"[]", b"3", b'{"a": NaN}', b'{"a": 1e999}', b'{"\\ud800": 1}'])
def test_json_that_is_no_matrix(client: Client, content: bytes) -> None:
    assert_problem(client.post("/v1/sweeps", content=content, headers=JSON), 422, "invalid-matrix")


@pytest.mark.parametrize("content", [b"", b"{", b"[" * 200_000, b'{"a": ' + b"9" * 5000 + b"}"])
def test_json_that_is_none(client: Client, content: bytes) -> None:
    assert_problem(client.post("/v1/sweeps", content=content, headers=JSON), 400, "malformed-json")


@pytest.mark.parametrize("content", [b"", b"a: [", b"[" * 200_000, b"- &a [*a]", b"a: !!python/object:os.system x"])
def test_yaml_that_is_none(client: Client, content: bytes) -> None:
    assert_problem(client.post("/v1/sweeps", content=content, headers=YAML), 422, "invalid-matrix")


def test_text_that_is_not_utf8(client: Client) -> None:
    problem = assert_problem(client.post("/v1/sweeps", content=b"na\xffme", headers=YAML), 400, "not-utf-8")
    assert "byte 2" in problem["detail"]


@pytest.mark.parametrize("headers", [{}, {"Content-Type": "text/html"}])
def test_a_media_type_that_is_not_read(client: Client, headers: dict[str, str]) -> None:
    problem = assert_problem(
        client.post("/v1/sweeps", content=b"name: x", headers=headers), 415, "unsupported-media-type"
    )
    assert "application/yaml" in problem["detail"]


def test_a_body_that_is_too_large(store: Store) -> None:
    client = make_client(store, body_limit_bytes=100)
    problem = assert_problem(client.post("/v1/sweeps", content=b" " * 101, headers=YAML), 413, "body-too-large")
    assert "SHARDPROOF_BODY_LIMIT_BYTES" in problem["detail"]


def test_an_error_of_our_own_tells_nothing(client: Client) -> None:
    response = client.post("/v1/sweeps", json={"name": "explode"})
    assert_problem(response, 500, "internal-error")
    assert "secret" not in response.text


def test_openapi_describes_problems(client: Client) -> None:
    description = client.get("/openapi.json").json()
    schemas = description["components"]["schemas"]
    assert {"Problem", "ErrorItem"} <= schemas.keys()
    for path, operations in description["paths"].items():
        for operation in operations.values():
            content = operation["responses"]["default"]["content"]
            assert content == {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}, path
    submit = description["paths"]["/v1/sweeps"]["post"]
    assert submit["requestBody"]["content"].keys() == {"application/json", "application/yaml"}
    assert "HTTPValidationError" not in schemas
