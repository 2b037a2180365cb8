"""Changes of behaviour of the engine process: apply, revert, detect.

Each patch brings the process into the state that is asked for and says what it found. Establishing the same state
twice changes nothing more, and any state can follow any other.
"""

from __future__ import annotations

from collections.abc import Mapping

from workers.patches import fallback_fast_path, full_graph_sp
from workers.protocol import Patch, PatchMode, PatchState

_MODULES = {Patch.FULL_GRAPH_SP: full_graph_sp, Patch.FALLBACK_FAST_PATH: fallback_fast_path}


def establish(asked: Mapping[Patch, PatchMode]) -> dict[Patch, PatchState]:
    """Bring every patch named in ``asked`` into its state.

    Returns:
        What each patch was found to be afterwards.
    """
    return {patch: _MODULES[patch].establish(mode) for patch, mode in asked.items()}


def missing() -> dict[Patch, str]:
    """What the patches rely on and this version does not have, in words. A patch that has all of it is left out."""
    found = {patch: module.missing() for patch, module in _MODULES.items()}
    return {patch: gone for patch, gone in found.items() if gone is not None}
