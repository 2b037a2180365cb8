"""Input that a command cannot use."""

from __future__ import annotations


class Refused(Exception):
    """The input cannot be used; the text says what, where and what to do."""
