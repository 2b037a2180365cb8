"""Values that nobody is shown. An engine may need one; a report, a name or a command line never does."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

SHOWN = "(secret)"
"""What stands in place of a secret."""

_WORDS = frozenset({"token", "secret", "secrets", "password", "passwd", "passphrase", "credential", "credentials"})
_KINDS_OF_KEY = ("api_key", "apikey", "access_key", "private_key", "auth_key")

_HOLDS = (str, dict, list)


# A report asks of the same hundred settings for every cell.
@lru_cache(maxsize=4096)
def is_secret(key: str) -> bool:
    """Whether a setting (dotted) holds a secret, by what it is called: ``env.HF_TOKEN``, ``hf_token``."""
    name = key.rpartition(".")[2].lower()
    return not _WORDS.isdisjoint(name.split("_")) or any(kind in name for kind in _KINDS_OF_KEY)


def masked(tree: Any, key: str = "") -> Any:
    """A plain tree with ``SHOWN`` for each text, or list of texts, under a key that holds a secret."""
    if isinstance(tree, str):
        return SHOWN if is_secret(key) else tree
    if isinstance(tree, dict):
        return {name: masked(value, str(name)) if isinstance(value, _HOLDS) else value for name, value in tree.items()}
    if isinstance(tree, list):
        return [masked(value, key) for value in tree]
    return tree
