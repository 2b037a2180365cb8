"""A sweep's report as a file: JUnit XML, CSV, Parquet, or one page that opens offline."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from service.api.artifacts import SAFE
from service.api.dependencies import StoreDependency
from service.api.problems import RESPONSES
from service.exports import EXPORTS, Format
from service.exports.baselines import with_baselines
from service.report_text import kept_report

router = APIRouter(prefix="/v1/sweeps/{sweep_id}", tags=["exports"], responses=RESPONSES)

_FILES: dict[int | str, dict[str, Any]] = {
    HTTPStatus.OK: {
        "description": "The file",
        "content": {export.media_type.partition(";")[0]: {"schema": {"type": "string"}} for export in EXPORTS.values()},
    }
}


@router.get("/export/{form}", response_class=Response, responses=_FILES)
def export_sweep(sweep_id: str, form: Format, store: StoreDependency) -> Response:
    """The report as far as the sweep has come, as a file. What has not ended is an error in JUnit."""
    with store.reading() as session:
        report = with_baselines(session, kept_report(session, sweep_id))
    export = EXPORTS[form]
    headers = {"Content-Disposition": f'attachment; filename="{sweep_id}.{export.suffix}"', **SAFE}
    return Response(export.write(report), headers=headers, media_type=export.media_type)
