"""Every code of a problem document, with its status and when it comes; and which operations can answer with it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any


@dataclass(frozen=True)
class Failure:
    """``detail``: an example of what is said."""

    status: HTTPStatus
    when: str
    detail: str


FAILURES = {
    "unknown-sweep": Failure(HTTPStatus.NOT_FOUND, "there is no such sweep", "there is no sweep 'nope'"),
    "unknown-cell": Failure(HTTPStatus.NOT_FOUND, "the sweep has no such cell", "there is no cell 'nope'"),
    "unknown-run": Failure(HTTPStatus.NOT_FOUND, "there is no such run", "there is no run 'nope'"),
    "unknown-artifact": Failure(
        HTTPStatus.NOT_FOUND, "the run left no such file", "there is no artifact 'cold/none.log'"
    ),
    "artifacts-removed": Failure(
        HTTPStatus.GONE, "the files of the sweep were removed", "the files of this sweep were removed at 2026-11-30"
    ),
    "artifacts-away": Failure(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "the place that files are kept at, `SHARDPROOF_ARTIFACTS_URL`, does not answer",
        "cold/engine.log cannot be read at s3://bucket: the endpoint does not answer",
    ),
    "wrong-state": Failure(
        HTTPStatus.CONFLICT,
        "what is asked is not possible in the state that the sweep or cell is in",
        "cell 'sp' is finished and cannot become cancelled; from here it may become: nothing, it has ended",
    ),
    "invalid-request": Failure(
        HTTPStatus.UNPROCESSABLE_ENTITY,
        "a parameter or a field has a wrong type or value, or is not known",
        "the request has parameters that are not valid: query.limit",
    ),
    "invalid-cursor": Failure(
        HTTPStatus.UNPROCESSABLE_ENTITY,
        "`after` is no cursor of this list",
        "this is no cursor of the list of cells; pass `next` of a page of that list, unchanged, or none to begin",
    ),
    "invalid-matrix": Failure(
        HTTPStatus.UNPROCESSABLE_ENTITY,
        "the matrix cannot be used; `errors` says what and where",
        "the matrix has 1 problem; nothing was started",
    ),
    "malformed-json": Failure(HTTPStatus.BAD_REQUEST, "the body is not JSON", "the body is not JSON: line 1 column 2"),
    "not-utf-8": Failure(
        HTTPStatus.BAD_REQUEST, "the body is not UTF-8", "the body is not UTF-8 text (byte 2); send it as UTF-8"
    ),
    "unsupported-media-type": Failure(
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        "a matrix is sent as JSON or YAML",
        "a matrix is sent as application/json or application/yaml, not as text/html; set the Content-Type header",
    ),
    "body-too-large": Failure(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        "the body is larger than `SHARDPROOF_BODY_LIMIT_BYTES`",
        "the body is larger than 1048576 bytes; send a smaller matrix or raise SHARDPROOF_BODY_LIMIT_BYTES",
    ),
    "key-needed": Failure(
        HTTPStatus.UNAUTHORIZED,
        "there are keys, and the request has none that opens anything",
        "this needs an API key: send it as Authorization: Bearer KEY, or log in at /login",
    ),
    "scope-missing": Failure(
        HTTPStatus.FORBIDDEN,
        "the key may not do this",
        "this needs a key with the scope submit; nightly CI has read",
    ),
    "cross-site": Failure(
        HTTPStatus.FORBIDDEN,
        "a page from elsewhere made a browser send this, without a key in its header",
        "a page of http://other.example cannot change anything here; send an API key with the request",
    ),
    "csrf": Failure(
        HTTPStatus.FORBIDDEN,
        "a session changes something without the token of its pages",
        "this session's form token is missing or old (csrf, or the header X-CSRF-Token); reload the page",
    ),
    "foreign-host": Failure(
        HTTPStatus.FORBIDDEN,
        "there are no keys, and the request is addressed to a name in a domain",
        "without keys this answers on loopback only, not as other.example; make a key with `shardproof keys create`",
    ),
    "rate-limited": Failure(
        HTTPStatus.TOO_MANY_REQUESTS,
        "the key makes more than `SHARDPROOF_RATE_LIMIT_PER_MINUTE` requests; `Retry-After` says when to go on",
        "too many requests; wait 0.1 s",
    ),
    "malformed-request": Failure(
        HTTPStatus.BAD_REQUEST,
        "the body cannot be read, or an address holds U+0000",
        "path and parameters cannot hold the character U+0000",
    ),
    "idempotency-key-reused": Failure(
        HTTPStatus.CONFLICT,
        "the `Idempotency-Key` was sent with another request",
        "this Idempotency-Key was sent with another request before; take a new one for each submission",
    ),
    "if-match-needed": Failure(
        HTTPStatus.PRECONDITION_REQUIRED,
        "there is no `If-Match`",
        "read this first, and send its ETag as If-Match, so that nobody else's change is overwritten",
    ),
    "changed-since": Failure(
        HTTPStatus.PRECONDITION_FAILED,
        "somebody changed it since it was read",
        "somebody changed this since you read it; read it again, and send its ETag as If-Match",
    ),
    "unknown-schedule": Failure(HTTPStatus.NOT_FOUND, "there is no such schedule", "there is no schedule 'nightly'"),
    "name-taken": Failure(
        HTTPStatus.CONFLICT,
        "there is a schedule of this name",
        "there is a schedule 'nightly' already; change that one, or take another name",
    ),
    "unknown-series": Failure(HTTPStatus.NOT_FOUND, "there is no such series", "there is no series 'nope'"),
    "unknown-point": Failure(HTTPStatus.NOT_FOUND, "the series has no such point", "there is no point '17'"),
    "no-baseline": Failure(
        HTTPStatus.CONFLICT,
        "what is accepted is no point of a figure that is judged",
        "rank_spread_s is not judged, so it has no baseline; those that are: cold_s, warm_s",
    ),
    "not-ready": Failure(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "no sweep can start at present",
        "Ray is not there yet; sweeps that are submitted wait for it",
    ),
    "unknown-webhook": Failure(HTTPStatus.NOT_FOUND, "there is no such webhook", "there is no webhook 'nope'"),
    "unknown-key": Failure(HTTPStatus.NOT_FOUND, "there is no such key", "there is no key 'nope'"),
    "too-many-streams": Failure(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "so many streams of events are open already",
        "64 streams are open; close one, or read the list of events page by page",
    ),
    "no-cluster": Failure(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "the controller is not connected to a Ray cluster",
        "this controller is not connected to a Ray cluster; its log says why, try again in a moment",
    ),
    "not-found": Failure(HTTPStatus.NOT_FOUND, "there is nothing at this address", "there is nothing at /v2"),
    "method-not-allowed": Failure(
        HTTPStatus.METHOD_NOT_ALLOWED,
        "the address does not take this method; `Allow` says which",
        "DELETE cannot be used on /v1/sweeps; see the Allow header",
    ),
    "http-error": Failure(HTTPStatus.BAD_REQUEST, "the request is not HTTP as it should be", "Bad Request"),
    "internal-error": Failure(
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "a fault of the controller; its log has the traceback",
        "an error inside the controller; its log has the traceback",
    ),
}

OF_A_PARAMETER = {
    "sweep_id": ("unknown-sweep",),
    "cell_id": ("unknown-cell",),
    "run_id": ("unknown-run",),
    "key_id": ("unknown-key",),
    "webhook_id": ("unknown-webhook",),
    "series_id": ("unknown-series",),
    "name": ("unknown-schedule",),
    "path": ("unknown-artifact", "artifacts-removed"),
    "arm": ("unknown-artifact", "artifacts-removed"),
}
_MATRIX = ("invalid-matrix", "malformed-json", "not-utf-8", "unsupported-media-type", "body-too-large")

_OF_ALL = ("key-needed", "scope-missing", "rate-limited", "malformed-request", "body-too-large")

OF_AN_OPERATION = {
    "submit_sweep": (*_MATRIX, "idempotency-key-reused"),
    "preview_sweep": _MATRIX,
    "create_key": ("invalid-request",),
    "create_webhook": ("invalid-request",),
    "change_key": ("invalid-request", "if-match-needed", "changed-since"),
    "create_schedule": (*_MATRIX, "name-taken", "invalid-request"),
    "change_schedule": (*_MATRIX, "if-match-needed", "changed-since", "invalid-request"),
    "delete_schedule": ("if-match-needed", "changed-since"),
    "check_readiness": ("not-ready",),
    "clone_sweep": ("invalid-matrix",),
    "cancel_sweep": ("wrong-state",),
    "cancel_cell": ("wrong-state",),
    "rerun_cells": ("wrong-state", "unknown-cell", "invalid-request"),
    "rerun_cell": ("wrong-state",),
    "stream_sweep": ("too-many-streams",),
    "stream_run": ("too-many-streams",),
    "accept_baseline": ("unknown-point", "no-baseline", "invalid-request"),
    "mute_series": ("invalid-request",),
    "pin_series": ("invalid-request",),
    "list_nodes": ("no-cluster",),
    "list_artifacts": ("artifacts-away",),
    "list_logs": ("artifacts-away",),
    "download_artifact": ("artifacts-away",),
    "read_log": ("artifacts-away",),
}
"""Besides what follows from an operation's parameters."""


def codes_of(operation: dict[str, Any]) -> list[str]:
    """The codes that an operation of an OpenAPI description can answer with, those of its own first."""
    parameters = operation.get("parameters", [])
    codes = [*OF_AN_OPERATION.get(operation["operationId"], ())]
    for parameter in parameters:
        codes += OF_A_PARAMETER.get(parameter["name"], ())
    if any(parameter["in"] != "path" or "enum" in str(parameter["schema"]) for parameter in parameters):
        codes.append("invalid-request")
    if any(parameter["name"] == "after" and "integer" not in str(parameter["schema"]) for parameter in parameters):
        codes.append("invalid-cursor")
    return list(dict.fromkeys([*codes, *_OF_ALL, "internal-error"]))


def by_status(codes: Iterable[str]) -> dict[HTTPStatus, list[str]]:
    found: dict[HTTPStatus, list[str]] = {}
    for code in codes:
        found.setdefault(FAILURES[code].status, []).append(code)
    return found
