"""How OpenAPI describes keys."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from service.api.guard import PUBLIC

SCHEME = "key"


def install(app: FastAPI) -> None:
    """Say in the OpenAPI description of ``app`` that a key is needed, and where none is."""
    describe = app.openapi

    def describe_with_keys() -> dict[str, Any]:
        description = describe()
        description["components"]["securitySchemes"] = {
            SCHEME: {
                "type": "http",
                "scheme": "bearer",
                "description": "An API key, see `shardproof keys create`. None is needed until there is one. To look "
                "takes the scope `read`, to change something `submit`, keys and the audit trail `admin`.",
            }
        }
        description["security"] = [{SCHEME: []}]
        for path in PUBLIC:
            for operation in description["paths"].get(path, {}).values():
                operation["security"] = []
        return description

    app.openapi = describe_with_keys  # type: ignore[method-assign]
