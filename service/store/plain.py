"""Plain JSON values."""

from __future__ import annotations

import json
import math
from typing import Any


def dump_json(value: Any) -> str:
    """JSON text; numbers that JSON does not have become the strings ``NaN``, ``Infinity`` and ``-Infinity``.

    pydantic reads these strings back as numbers, and PostgreSQL refuses the bare words.
    """
    return json.dumps(finite(value), allow_nan=False)


def finite(value: Any) -> Any:
    """``value`` with every number that JSON does not have replaced by its name."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    return value
