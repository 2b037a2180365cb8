"""A resolved ``VllmConfig`` as dotted settings in the names a user writes, with plain JSON values."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from workers.probes.describe import nested_config, settings_of

if TYPE_CHECKING:
    from vllm.config import VllmConfig


@dataclasses.dataclass(frozen=True)
class Field:
    """One setting: the object that holds it, its attribute there, its default (``None`` if it has none)."""

    key: str
    owner: Any
    name: str
    default: Any

    @property
    def value(self) -> Any:
        return getattr(self.owner, self.name)


def fields_of(config: VllmConfig) -> Iterator[Field]:
    """Every setting of ``EngineArgs`` that can be found in ``config``, and the settings below it."""
    from vllm.engine.arg_utils import EngineArgs

    for field, annotation in settings_of(EngineArgs):
        if nested_config(annotation) is not None:
            yield from _below(field.name, getattr(config, field.name, None))
            continue
        owner = _owner(config, field.name)
        if owner is not None:
            yield Field(field.name, owner, field.name, _default(field))


def _below(prefix: str, owner: Any) -> Iterator[Field]:
    if not dataclasses.is_dataclass(owner):
        return
    for field, annotation in settings_of(type(owner)):
        key = f"{prefix}.{field.name}"
        if not hasattr(owner, field.name):
            continue
        if nested_config(annotation) is not None:
            yield from _below(key, getattr(owner, field.name))
        else:
            yield Field(key, owner, field.name, _default(field))


def _owner(config: VllmConfig, name: str) -> Any | None:
    """The part of ``config`` that holds ``name``; ``None`` when none does or several disagree."""
    parts = (getattr(config, field.name) for field in dataclasses.fields(config))
    owners = [part for part in parts if dataclasses.is_dataclass(part) and _has_field(part, name)]
    values = [plain(getattr(owner, name, None)) for owner in owners]
    if not owners or any(value != values[0] for value in values):
        return None
    return owners[0]


def _has_field(part: Any, name: str) -> bool:
    return any(field.name == name for field in dataclasses.fields(part))


def _default(field: dataclasses.Field[Any]) -> Any:
    default: Any = field.default
    if default is dataclasses.MISSING:
        factory: Any = field.default_factory
        default = None if factory is dataclasses.MISSING else factory()
    # Pydantic hides a default that it fills in itself behind a description of the field.
    return default.default if type(default).__name__ == "FieldInfo" else default


def plain(value: Any) -> Any:
    """``value`` as JSON: enumerations by name, dtypes and paths as text, anything else as the name of its class."""
    import torch

    if isinstance(value, enum.Enum):
        return value.name
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((plain(item) for item in value), key=str)
    return f"<{type(value).__qualname__}>"


def agrees(requested: Any, effective: Any) -> bool:
    """Is ``effective`` (the engine's object) what ``requested`` (JSON) asked for?

    An enumeration may be written by name or value, a dtype by any of its names (``half`` is ``float16``), and a mapping
    may gain keys that nobody asked for.
    """
    import torch

    if isinstance(effective, enum.Enum):
        return requested == effective.value or str(requested).lower() == effective.name.lower()
    if isinstance(effective, torch.dtype):
        return getattr(torch, str(requested).removeprefix("torch."), None) is effective
    value = plain(effective)
    if isinstance(requested, Mapping) and isinstance(value, Mapping):
        return all(key in value and agrees(item, value[key]) for key, item in requested.items())
    return bool(requested == value)
