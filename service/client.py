"""A client of the REST API, typed and thin. The command line uses it too.

    with Client("http://127.0.0.1:8910", key) as client:
        sweep = client.submit(Path("matrix.yaml").read_bytes())
        report = client.wait(sweep)

Answers are the plain JSON of ``docs/rest.md``. What failed on its way is tried again where that does no harm: reading
always, submitting under one ``Idempotency-Key``, anything else only where the controller cannot have seen it.

    ClientError                 says what, where and what to do
    ├── Unreachable             nobody answers, also after trying again
    └── RequestRefused          the controller's problem document
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from http import HTTPMethod, HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
from httpx_retries import Retry, RetryTransport
from httpx_sse import ServerSentEvent, SSEError, connect_sse

Json = dict[str, Any]

YAML, JSON = "application/yaml", "application/json"
TIMEOUT_S = 60.0
AUDIT_TIMEOUT_S = 600.0
"""A matrix is audited before it is accepted."""

SILENCE_S = 45.0
"""Streams that say nothing for so long, not even that they are there, are begun again."""

PATIENCE_S = 300.0
"""A controller that is away for so long while a sweep is waited for is given up."""

PAUSE_S = 1.0
END = "end"

TRIES = 3
BACKOFF_S = 0.2
"""Before the second try, at most; twice as long before each that follows."""


class ClientError(Exception):
    """The controller did not do what was asked; the text says why."""


class Unreachable(ClientError):
    """Nobody answers."""


class RequestRefused(ClientError):
    """``code`` is stable, ``problem`` is the whole document (RFC 9457), empty where a stranger answered."""

    def __init__(self, url: str, status: int, problem: Json) -> None:
        items = [_item(item) for item in problem.get("errors") or []]
        said = f"{problem.get('title') or f'status {status}'}: {problem.get('detail', 'no reason given')}"
        super().__init__("\n".join([f"{url}: {said}", *items]))
        self.status = status
        self.problem = problem
        self.code = str(problem.get("code", "http-error"))


class Client:
    """``key``: an API key; none is needed of a controller on loopback that has none. Close it, or use it as a block."""

    def __init__(self, url: str, key: str | None = None, backoff_s: float = BACKOFF_S) -> None:
        self.url = url.rstrip("/")
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        transport = RetryTransport(retry=Retry(total=TRIES, backoff_factor=backoff_s))
        self._http = httpx.Client(base_url=self.url, headers=headers, timeout=TIMEOUT_S, transport=transport)
        self._submitting = Retry(total=TRIES, backoff_factor=backoff_s, allowed_methods=[HTTPMethod.POST])
        self._acting = Retry(
            total=TRIES,
            backoff_factor=backoff_s,
            allowed_methods=[HTTPMethod.POST],
            status_forcelist=[HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE],
            retry_on_exceptions=[httpx.ConnectError, httpx.ConnectTimeout],
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    # --- sweeps ------------------------------------------------------------------------------------------------------

    def submit(
        self,
        matrix: bytes,
        media_type: str = YAML,
        *,
        idempotency_key: str | None = None,
        priority: int | None = None,
        max_parallel: int | None = None,
    ) -> str:
        """Submit a matrix; the id of its sweep.

        Args:
            idempotency_key: a new one for each call, unless it is given.
            priority: sweeps of a higher one come first.
            max_parallel: so many of its runs at once, at most.
        """
        headers = {"Content-Type": media_type, "Idempotency-Key": idempotency_key or secrets.token_hex(16)}
        terms = {"priority": priority, "max_parallel": max_parallel}
        answer = self._post(
            "/v1/sweeps",
            self._submitting,
            content=matrix,
            headers=headers,
            params={name: value for name, value in terms.items() if value is not None},
            timeout=AUDIT_TIMEOUT_S,
        )
        return str(answer["id"])

    def sweep(self, sweep_id: str) -> Json:
        """How far a sweep is."""
        return self._get(f"/v1/sweeps/{sweep_id}")

    def report(self, sweep_id: str) -> Json:
        """The report as far as the sweep has come."""
        return self._get(f"/v1/sweeps/{sweep_id}/report")

    def export(self, sweep_id: str, form: str) -> bytes:
        """The report as ``junit``, ``csv``, ``parquet`` or ``html``."""
        return self._ask(lambda: self._http.get(f"/v1/sweeps/{sweep_id}/export/{form}")).content

    def cancel(self, sweep_id: str, cell_id: str | None = None) -> None:
        """End a sweep, or one of its cells, before it is done."""
        self._post(f"{_subject(sweep_id, cell_id)}/cancel", self._acting)

    def rerun(self, sweep_id: str, cells: Sequence[str] | None = None) -> None:
        """Run cells of an ended sweep again, by their ids: those that are not ok, unless they are named."""
        self._post(f"/v1/sweeps/{sweep_id}/rerun", self._acting, json={} if cells is None else {"cells": list(cells)})

    def clone(self, sweep_id: str) -> str:
        """Submit a sweep's matrix once more; the id of the new sweep."""
        return str(self._post(f"/v1/sweeps/{sweep_id}/clone", self._acting, timeout=AUDIT_TIMEOUT_S)["id"])

    def events(self, sweep_id: str, after: int = 0) -> Iterator[Json]:
        """What happens in a sweep, from behind event ``after`` to its end.

        A stream that breaks off is gone on with; nothing is left out and nothing comes twice.

        Raises:
            Unreachable: when the controller has been away for ``PATIENCE_S``.
        """
        seen = after
        while True:
            try:
                for event in self._stream(f"/v1/sweeps/{sweep_id}/events/stream", seen):
                    if event.event == END:
                        return
                    # What keeps the connection open comes as an event without data, and with the id before it.
                    if event.data and event.id:
                        seen = int(event.id)
                        yield event.json()
            except ClientError as error:
                if not _may_pass(error):
                    raise
                self._wait_until_back()
            time.sleep(PAUSE_S)

    def wait(self, sweep_id: str, tell: Callable[[Json], None] = lambda event: None) -> Json:
        """Follow a sweep to its end, ``tell`` each event, and return its report."""
        for event in self.events(sweep_id):
            tell(event)
        return self.report(sweep_id)

    def comment(self, sweep_id: str) -> str:
        """A sweep as a comment on a pull request, in Markdown."""
        return self._ask(lambda: self._http.get(f"/v1/sweeps/{sweep_id}/comment.md")).text

    # --- lists and files ---------------------------------------------------------------------------------------------

    def cells(self, sweep_id: str) -> Iterator[Json]:
        """The cells of a sweep without their results."""
        return self._pages(f"/v1/sweeps/{sweep_id}/cells", "cells")

    def runs(self, sweep_id: str) -> Iterator[Json]:
        """The runs of a sweep without what they found out."""
        return self._pages(f"/v1/sweeps/{sweep_id}/runs", "runs")

    def artifacts(self, run_id: str) -> Iterator[Json]:
        """The files of a run."""
        return self._pages(f"/v1/runs/{run_id}/artifacts", "artifacts")

    def download(self, run_id: str, path: str, to: Path) -> None:
        """Write one file of a run to ``to``."""
        url = f"/v1/runs/{run_id}/artifacts/{quote(path)}"
        try:
            with self._http.stream("GET", url) as response:
                self._check_stream(response)
                with to.open("wb") as file:
                    for chunk in response.iter_bytes():
                        file.write(chunk)
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error

    # --- requests ----------------------------------------------------------------------------------------------------

    def _pages(self, path: str, name: str) -> Iterator[Json]:
        parameters: dict[str, str] = {}
        while True:
            page = self._get(path, parameters)
            yield from page[name]
            if page["next"] is None:
                return
            parameters = {"after": page["next"]}

    def _get(self, path: str, parameters: dict[str, str] | None = None) -> Json:
        return dict(self._ask(lambda: self._http.get(path, params=parameters)).json())

    def _post(self, path: str, retry: Retry, **options: Any) -> Json:
        return dict(self._ask(lambda: self._http.post(path, extensions={"retry": retry}, **options)).json())

    def _stream(self, path: str, seen: int) -> Iterator[ServerSentEvent]:
        """Raises ``Unreachable`` where it breaks off."""
        headers, timeout = {"Last-Event-ID": str(seen)}, httpx.Timeout(TIMEOUT_S, read=SILENCE_S)
        try:
            with connect_sse(self._http, "GET", path, headers=headers, timeout=timeout) as source:
                self._check_stream(source.response)
                yield from source.iter_sse()
        except (httpx.HTTPError, SSEError) as error:
            raise self._unreachable(error) from error

    def _wait_until_back(self) -> None:
        """Until the controller answers. What it was doing it goes on with."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                self._get("/healthz")
                return
            except ClientError as error:
                if not _may_pass(error) or time.monotonic() > deadline:
                    raise
            time.sleep(PAUSE_S)

    def _ask(self, call: Callable[[], httpx.Response]) -> httpx.Response:
        try:
            response = call()
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error
        self._check(response)
        return response

    def _check(self, response: httpx.Response) -> None:
        if response.is_error:
            raise RequestRefused(self.url, response.status_code, _problem(response))

    def _check_stream(self, response: httpx.Response) -> None:
        if response.is_error:
            response.read()
        self._check(response)

    def _unreachable(self, error: Exception) -> Unreachable:
        return Unreachable(f"{self.url} does not answer ({error}); is `shardproof serve` running there?")


def _problem(response: httpx.Response) -> Json:
    try:
        found = response.json()
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _item(item: Json) -> str:
    """What is wrong, where and what to do."""
    line = f"line {item['line']}, column {item['column']} " if item.get("line") else ""
    hint = f". {item['hint']}" if item.get("hint") else ""
    return f"{line}{item.get('path') or 'matrix'}: {item['detail']}{hint}"


def _may_pass(error: ClientError) -> bool:
    """The controller is restarted, busy, or behind something that has lost it."""
    return not isinstance(error, RequestRefused) or error.status == HTTPStatus.TOO_MANY_REQUESTS or error.status >= 500


def _subject(sweep_id: str, cell_id: str | None) -> str:
    return f"/v1/sweeps/{sweep_id}" if cell_id is None else f"/v1/cells/{sweep_id}/{cell_id}"
