"""Whether a matrix that came over the network may be planned: the operator's settings as a policy.

Every way in which a matrix comes from outside goes through :func:`admit` before anything else reads it.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

from packaging.utils import canonicalize_name

from service.domain import allowed
from service.domain.allowed import Policy
from service.domain.document import Document
from service.settings import Settings

TINY = "tiny:"

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(?:/[A-Za-z0-9][\w.-]{0,95})?")


def admit(document: Document, settings: Settings) -> None:
    """Refuse a matrix that sets what only the operator may set.

    Raises:
        MatrixError: with everything that is not allowed, each at its place.
    """
    allowed.check(document, policy(settings))


def policy(settings: Settings) -> Policy:
    """What the operator allows."""
    return Policy(
        settings=settings.allow_settings,
        variables=settings.allow_variables,
        packages=frozenset(canonicalize_name(name) for name in settings.allow_packages),
        why_not_model=lambda model: _why_not(model, settings),
    )


def _why_not(model: str, settings: Settings) -> str | None:
    if model.startswith(TINY):
        return None
    # vLLM takes a folder where there is one of that name, whatever else the name could mean.
    if "/" not in model[:1] and _HUB_ID.fullmatch(model) and ".." not in model and not Path(model).exists():
        if any(fnmatchcase(model, pattern) for pattern in settings.allow_hub_models):
            return None
        return "is none of the hub's that SHARDPROOF_ALLOW_HUB_MODELS lists"
    if Path(model).is_absolute() and _inside(Path(model), settings):
        return None
    return "lies in no folder that SHARDPROOF_ALLOW_MODEL_FOLDERS lists"


def _inside(path: Path, settings: Settings) -> bool:
    """Links are followed: what counts is where the files lie."""
    try:
        real = path.resolve()
    except (OSError, RuntimeError, ValueError):
        return False
    folders = (settings.models_dir, *settings.allow_model_folders)
    return any(real.is_relative_to(folder.resolve()) for folder in folders)
