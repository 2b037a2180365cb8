"""Arms whose engines are played by the null engine, from the recording in the repository."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from store.samples import run_spec

from service.recordings import recorded
from workers.protocol import ArmSpec, Recorded, Role


def played(root: Path, speed: float, roles: Sequence[Role], **fields: Any) -> list[ArmSpec]:
    """An arm for each of ``roles``, in folders below ``root``; ``fields`` take the place of what they have."""
    (arm,) = run_spec("run").arms
    emitted = {"timeout_s": 60.0, "null_engine": Recorded(folder=str(recorded()), speed=speed), **fields}
    places = {role: {"role": role, "folder": str(root / role), "cache_root": str(root / "cache")} for role in roles}
    return [arm.model_copy(update=places[role] | emitted) for role in roles]
