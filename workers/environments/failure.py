"""What can be wrong with an engine environment."""

from __future__ import annotations


class EnvironmentFailure(RuntimeError):
    """An environment cannot be had; the text says which, why, and in pip's own words where pip said it."""
