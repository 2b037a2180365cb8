"""What the vLLM of one engine environment has of the settings that another one knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from service.domain.arms import MEANS_NOTHING_WITHOUT_SP, SP
from workers.protocol import Catalogue

TURNS_SP_ON = (SP, "compilation_config.pass_config.fuse_gemm_comms")


def absent_settings(engine: Mapping[str, Any], catalogue: Catalogue) -> frozenset[str]:
    """Settings of SP that ``catalogue`` does not have, for a cell with the settings ``engine`` that leaves SP off.

    A vLLM without SP cannot be told to leave it off, and does. Empty where the cell turns SP on.
    """
    if any(engine.get(key) for key in TURNS_SP_ON):
        return frozenset()
    return frozenset(key for key in MEANS_NOTHING_WITHOUT_SP if key not in catalogue.keys)


def unsupported_settings(engine: Mapping[str, Any], catalogue: Catalogue) -> list[str]:
    """Those of the settings ``engine`` that ``catalogue`` does not know, sorted."""
    return sorted(key for key in engine if key not in catalogue.keys)
