"""Engine environments: which one a run wants."""

from __future__ import annotations

from workers.protocol.words import Message

MARK = "shardproof.json"
"""File in the folder of an environment that says what it is. An environment without it is not finished."""

DEFAULT = "default"
"""Name of the environment that is there from the start: the operator's interpreter."""


class EnvironmentSpec(Message):
    """Either ``requirements``, as pip takes them, or the path of an ``interpreter`` that has all of it.

    ``root``: the folder in which environments are kept, on each node.
    """

    name: str
    root: str
    requirements: list[str] | None = None
    interpreter: str | None = None
