"""What every message is made of, and the words that messages share."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict

PROTOCOL = 1

Settings = dict[str, Any]
"""Dotted key → JSON value, in vLLM's own names."""

ONE_ORDER = 2
"""Up to so many ranks a sum over them has one order, and bit equality is owed."""

SKETCH_NUMBERS = 64
"""Numbers that a sketch keeps of a token's residual, see ``workers.residual.sketch``."""

REPLICAS_DIFFER = "replicas-differ"
"""The pattern of ranks that should hold the same and do not. No tolerance decides it."""

INVARIANTS = (
    "shards-complete",
    "token-order",
    "replicas-equal",
    "below-threshold-replicated",
    "gathered-equal",
    "norm-weights-equal",
    "runner-belief",
    "graphs-equal",
    "collectives",
    "boundary",
)
"""What has to hold without any tolerance, see ``workers.residual.invariants``."""


class Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Patch(StrEnum):
    """A change of behaviour of the engine process."""

    FULL_GRAPH_SP = "full_graph_sp"
    FALLBACK_FAST_PATH = "fallback_fast_path"


class PatchMode(StrEnum):
    """What is asked of a patch: make sure it is there, take it away, or leave it as found."""

    ON = "on"
    OFF = "off"
    NATIVE = "native"


class PatchState(StrEnum):
    """What was found once the request was carried out. ``absent``: left as found, and this version has none."""

    NATIVE = "native"
    APPLIED = "applied"
    REMOVED = "removed"
    ABSENT = "absent"
    TARGET_MISSING = "target-missing"


class Check(StrEnum):
    """What a cell wants to know. ``eval`` takes as long as its tasks do, so a cell has it only where it is written."""

    AUDIT = "audit"
    COMPILE = "compile"
    RESIDUAL = "residual"
    OUTPUTS = "outputs"
    EVAL = "eval"


class Role(StrEnum):
    """What an engine start inside a run is for."""

    COLD = "cold"
    WARM = "warm"
    PROBE = "probe"
    REPLICATED = "replicated"
    REFERENCE = "reference"
    EVAL = "eval"
    EVAL_REPLICATED = "eval-replicated"


class Outcome(StrEnum):
    OK = "ok"
    CRASHED = "crashed"
    TIMED_OUT = "timed-out"
    CANCELLED = "cancelled"
