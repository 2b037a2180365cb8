"""What a matrix would become: expanded and audited, and nothing started."""

from __future__ import annotations

from fastapi import APIRouter

from service.api.dependencies import DOCUMENT_BODY, ControllerDependency, DocumentDependency
from service.api.problems import RESPONSES
from service.domain.preview import Preview

router = APIRouter(prefix="/v1/sweeps", tags=["sweeps"], responses=RESPONSES)


@router.post("/preview", openapi_extra=DOCUMENT_BODY)
def preview_sweep(document: DocumentDependency, controller: ControllerDependency) -> Preview:
    """The cells of a matrix as they would be run: what vLLM makes of each, and which share a run. Nothing is stored.

    What would be refused when it is submitted is refused here in the same words.
    """
    return controller.preview(document)
