"""Which measurements belong together: one configuration, on one kind of machine, whatever the versions are.

The key holds what the engine made of the settings that were written, and what the whole configuration resolves to. It
does not hold the settings that nobody wrote, nor any version: a new vLLM has other settings and other defaults, and
what these do to the times is what the series is there to show.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from service.domain import reserved
from service.domain.fingerprint import digest
from service.domain.secrecy import masked
from workers.protocol import DEFAULT, Environment, Shape

_AS_WRITTEN = ("model", "tokenizer")
"""Their effective value may be a folder of the machine."""

_RESOLVED = (
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "layers",
    "hidden_size",
    "dtype",
    "sequence_parallelism",
    "full_graph",
    "compiled",
)
"""Of a cell's shape: what changes how much there is to compile. Numbers that a version chooses are not among them."""


@dataclass(frozen=True)
class Identity:
    """``settings``: what was written, as the engine resolved it; secrets are masked. ``environment``: its name."""

    id: str
    settings: dict[str, Any]
    environment: str
    device: str
    devices: int
    cores: int


def identity(
    requested: Mapping[str, Any],
    effective: Mapping[str, Any],
    shape: Shape,
    environment: Environment,
    preload: bool,
    machines: int = 1,
) -> Identity:
    """The series of a cell.

    Args:
        requested: as the cell has it, with the reserved keys.
        effective: as it was resolved.
        shape: likewise.
        environment: where it ran. Its machine counts, its versions do not.
        preload: engines are forked from a process that has imported vLLM, so that their times hold no imports.
        machines: how many ran its engines together.
    """
    written = {key: value for key, value in requested.items() if key.partition(".")[0] != reserved.EVAL}
    # Masked first: a token that is renewed begins no series.
    settings = masked({key: _resolved(key, value, effective) for key, value in sorted(written.items())})
    name = str(settings.pop(reserved.ENVIRONMENT, DEFAULT))
    resolved = {field: getattr(shape, field) for field in _RESOLVED}
    device = environment.device if machines == 1 else f"{environment.device} on {machines} machines"
    machine = [device, environment.devices, environment.cores]
    key = digest({"settings": settings, "shape": resolved, "environment": name, "machine": machine, "preload": preload})
    return Identity(key, settings, name, device, environment.devices, environment.cores)


def _resolved(key: str, written: Any, effective: Mapping[str, Any]) -> Any:
    if key in _AS_WRITTEN or reserved.is_reserved(key):
        return written
    return effective.get(key)
