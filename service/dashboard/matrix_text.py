"""A stored matrix as the text that somebody edits."""

from __future__ import annotations

from collections.abc import Mapping
from io import StringIO
from typing import Any

from ruamel.yaml import YAML


def text_of(matrix: Mapping[str, Any]) -> str:
    """``matrix`` as YAML. Read back it is the same; comments and the way it was written are gone."""
    yaml = YAML()
    yaml.default_flow_style = None
    yaml.width = 110
    written = StringIO()
    yaml.dump(dict(matrix), written)
    return written.getvalue()
