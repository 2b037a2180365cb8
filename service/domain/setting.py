"""One setting as somebody wrote it, and mappings of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from service.domain.fingerprint import canonical
from service.domain.place import Path


@dataclass(frozen=True)
class Setting:
    """A value and where it stands. ``label``: the key to show for it, as written."""

    value: Any
    path: Path
    label: str

    @cached_property
    def form(self) -> str:
        """Equal forms, equal values, as JSON sees it: ``1`` is not ``true``."""
        return canonical(self.value)


Entry = Mapping[str, Setting]
"""Flat dotted key → setting. Only leaves have keys, so no key of an entry reaches into another."""


def values(entry: Entry) -> dict[str, Any]:
    """The settings without their places; those that are ``null`` leave the default and are not there."""
    return {key: setting.value for key, setting in entry.items() if setting.value is not None}
