"""Files of a run: listed, downloaded, and the end of its logs. Nothing is shown as a page: engines wrote them."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Query
from starlette.responses import PlainTextResponse, StreamingResponse

from service.api.dependencies import SettingsDependency, StoreDependency
from service.api.paging import After, Limit, cut
from service.api.problems import RESPONSES, ProblemError
from service.api.resources import ArtifactPage, Log, Logs
from service.artifacts import LOG, Artifacts, artifacts_of, order
from service.domain import cursor
from service.run_files import Artifact, Opened
from service.settings import Settings
from service.store import Store, repositories
from service.store.records import SweepRecord, UnknownRecord

ARTIFACTS = "artifacts"
SAFE = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox; default-src 'none'"}
MOST_TAIL_BYTES = 1 << 20

router = APIRouter(prefix="/v1/runs/{run_id}", tags=["artifacts"], responses=RESPONSES)

_FILE: dict[int | str, dict[str, Any]] = {
    HTTPStatus.OK: {
        "description": "The file, as it is",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


@router.get("/artifacts")
def list_artifacts(
    run_id: str, store: StoreDependency, settings: SettingsDependency, limit: Limit = 50, after: After = None
) -> ArtifactPage:
    """The files that the arms of a run left, and those of the arms that it shares with other cells."""
    behind = None if after is None else str(cursor.decode(ARTIFACTS, after, str)[0])
    sweep, files = _files(run_id, store, settings)
    page, last = cut(_behind(files, behind)[: limit + 1], limit)
    return ArtifactPage(
        artifacts=page,
        next=None if last is None else cursor.encode(ARTIFACTS, last.path),
        removed_at=sweep.artifacts_removed_at,
    )


@router.get("/artifacts/{path:path}", response_class=StreamingResponse, responses=_FILE)
def download_artifact(
    run_id: str, path: str, store: StoreDependency, settings: SettingsDependency
) -> StreamingResponse:
    """One file of a run, by its path in the list. No link is followed."""
    opened = _opened(run_id, path, store, settings)
    headers = {
        "Content-Length": str(opened.size),
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(path.rpartition('/')[2])}",
        **SAFE,
    }
    return StreamingResponse(opened.chunks(), headers=headers, media_type="application/octet-stream")


@router.get("/logs")
def list_logs(run_id: str, store: StoreDependency, settings: SettingsDependency) -> Logs:
    """The logs of a run's engines, one of each arm that was started."""
    _, files = _files(run_id, store, settings)
    return Logs(logs=[Log(arm=arm, bytes=log.bytes, modified_at=log.modified_at) for arm, log in files.logs()])


@router.get("/logs/{arm}", response_class=PlainTextResponse)
def read_log(
    run_id: str,
    arm: str,
    store: StoreDependency,
    settings: SettingsDependency,
    tail: Annotated[int, Query(ge=1, le=MOST_TAIL_BYTES, description="So many bytes of its end")] = 1 << 16,
) -> PlainTextResponse:
    """The end of an arm's log; the whole is the artifact `ARM/engine.log`. Bytes that are no UTF-8 are replaced."""
    opened = _opened(run_id, f"{arm}/{LOG}", store, settings)
    content = b"".join(opened.chunks(max(opened.size - tail, 0)))
    return PlainTextResponse(content.decode(errors="replace"), headers=SAFE)


def _files(run_id: str, store: Store, settings: Settings) -> tuple[SweepRecord, Artifacts]:
    with store.reading() as session:
        run = repositories.get_run(session, run_id)
        sweep = repositories.get_sweep(session, run.sweep_id)
    return sweep, artifacts_of(run, settings)


def _opened(run_id: str, path: str, store: Store, settings: Settings) -> Opened:
    sweep, files = _files(run_id, store, settings)
    try:
        return files.open(path)
    except UnknownRecord:
        if sweep.artifacts_removed_at is None:
            raise
        raise ProblemError(
            HTTPStatus.GONE,
            "artifacts-removed",
            f"the files of this sweep were removed at {sweep.artifacts_removed_at.isoformat()}, see "
            "SHARDPROOF_RETENTION_SWEEPS; its report and evidence are still there",
        ) from None


def _behind(files: Artifacts, path: str | None) -> list[Artifact]:
    return [item for item in files if path is None or order(item.path) > order(path)]
