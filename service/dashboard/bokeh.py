"""Bokeh's scripts, out of the installed package: nothing of them is in this repository, nothing comes from elsewhere.

Their address holds the version, so a browser may keep them for ever.
"""

from __future__ import annotations

import gzip
from functools import cache
from http import HTTPStatus
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

VERSION = version("bokeh")
FOLDER = f"static/bokeh-{VERSION}"
"""Below ``/static/``, which needs no key: the scripts hold nothing of ours."""

SCRIPTS = ("bokeh.min.js", "bokeh-api.min.js")
"""What pages load, in this order: the library, and what builds a plot out of plain calls."""

_FOR_EVER = "public, max-age=31536000, immutable"

router = APIRouter(include_in_schema=False)


def show_script(request: Request) -> Response:
    """One of the scripts, as it was packed once."""
    name = request.path_params["name"]
    if name not in SCRIPTS:
        raise HTTPException(HTTPStatus.NOT_FOUND)
    headers = {"Cache-Control": _FOR_EVER, "Vary": "Accept-Encoding", "X-Content-Type-Options": "nosniff"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(_packed(name), headers={**headers, "Content-Encoding": "gzip"}, media_type="text/javascript")
    return Response(_script(name).read_bytes(), headers=headers, media_type="text/javascript")


# No route of the API's kind: like all below this folder it is a file, and open to everybody.
router.add_route(f"/{FOLDER}/{{name}}", show_script, include_in_schema=False)


@cache
def _packed(name: str) -> bytes:
    return gzip.compress(_script(name).read_bytes(), mtime=0)


def _script(name: str) -> Path:
    # Bokeh itself is not imported: the server draws nothing with it, and would wait a second for that.
    spec = find_spec("bokeh")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "server" / "static" / "js" / name
