"""Keys of a matrix that are not settings of the engine: ``patches.*``, ``env.*``, ``batch.*`` and ``environment``."""

from __future__ import annotations

import re
from typing import Any

from service.domain.errors import Problems
from service.domain.place import Path
from service.domain.wording import found, listing, show
from workers.protocol import BatchPlan, KeyInfo, Patch, PatchMode, ValidationError

ENVIRONMENTS = ("default",)
PATCHES, ENV, BATCH, ENVIRONMENT = "patches", "env", "batch", "environment"

KEYS: dict[str, KeyInfo] = {
    **{root: KeyInfo(type="reserved", nested=True) for root in (PATCHES, ENV, BATCH)},
    **{f"{PATCHES}.{patch}": KeyInfo(type="reserved") for patch in Patch},
    **{f"{BATCH}.{field}": KeyInfo(type="reserved") for field in BatchPlan.model_fields},
    ENVIRONMENT: KeyInfo(type="reserved"),
}
"""All reserved keys, except that ``env`` takes any variable."""

_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")


def is_reserved(key: str) -> bool:
    return key.partition(".")[0] in (PATCHES, ENV, BATCH, ENVIRONMENT)


def is_variable(key: str) -> bool:
    return key.startswith(f"{ENV}.")


def check_variable_name(key: str, path: Path, problems: Problems) -> bool:
    """Whether ``env.NAME`` names a variable; if it does not, that is noted."""
    name = key.removeprefix(f"{ENV}.")
    if _VARIABLE.fullmatch(name):
        return True
    message = f"{show(name)} is not the name of an environment variable"
    hint = f"Use capital letters, digits and _, as in {ENV}.{_suggest_variable(name)}"
    problems.add("variable-name", message, path, hint)
    return False


def check(key: str, value: Any, path: Path, problems: Problems) -> Any:
    """The value of a reserved key in the form that cells carry; ``None`` when it is refused."""
    root, _, name = key.partition(".")
    if root == PATCHES:
        return _patch_mode(value, path, problems)
    if root == ENV:
        return _variable(value, path, problems)
    if root == BATCH:
        return _batch(name, value, path, problems)
    return _environment(value, path, problems)


def _patch_mode(value: Any, path: Path, problems: Problems) -> str | None:
    if isinstance(value, bool):
        return PatchMode.ON.value if value else PatchMode.OFF.value
    if value in list(PatchMode):
        return str(value)
    modes = listing(PatchMode, last="or")
    problems.add("wrong-value", f"wrong value: a patch is {modes}, found {found(value)}", path, f"Write {modes}")
    return None


def _variable(value: Any, path: Path, problems: Problems) -> str | None:
    if isinstance(value, bool):
        return str(int(value))  # what vLLM and PyTorch read as a switch
    if isinstance(value, str | int | float):
        return str(value)
    message = f"wrong type: an environment variable is a string or a number, found {found(value)}"
    problems.add("wrong-type", message, path, "Write it as one string, in quotes")
    return None


def _suggest_variable(name: str) -> str:
    return re.sub(r"[^A-Z0-9]+", "_", name.upper()).lstrip("_0123456789")[:60] or "NAME"


def _environment(value: Any, path: Path, problems: Problems) -> str | None:
    if value in ENVIRONMENTS:
        return str(value)
    known = listing(ENVIRONMENTS, last="or")
    message = f"unknown engine environment, found {found(value)}"
    problems.add("unknown-environment", message, path, f"Only {known} is known")
    return None


def _batch(field: str, value: Any, path: Path, problems: Problems) -> Any:
    try:
        plan = BatchPlan.model_validate({field: value}, strict=True)
    except ValidationError as error:
        for item in error.errors():
            message = f"wrong type: {item['msg'].lower()}, found {found(item['input'])}"
            problems.add("wrong-type", message, (*path, *item["loc"][1:]), f"{BATCH}.{field} is {_BATCH_HINTS[field]}")
        return None
    if field == "max_tokens" and plan.max_tokens < 1:
        problems.add("wrong-value", f"wrong value: at least 1 token, found {plan.max_tokens}", path, "Write 1 or more")
    if field == "waves":
        _check_waves(plan.waves, path, problems)
    return value


_BATCH_HINTS = {
    "seed": "an integer",
    "max_tokens": "an integer of 1 or more",
    "logprobs": "an integer",
    "waves": "a list of lists of prompt lengths in tokens, e.g. [[1], [2, 3]]",
}


def _check_waves(waves: list[list[int]], path: Path, problems: Problems) -> None:
    hint = f"{BATCH}.waves is {_BATCH_HINTS['waves']}"
    if not waves:
        problems.add("wrong-value", "wrong value: no wave, so nothing would be run", path, hint)
    for place, wave in enumerate(waves):
        if not wave:
            problems.add("wrong-value", "wrong value: a wave without a prompt", (*path, place), hint)
        for index, length in enumerate(wave):
            if length < 1:
                message = f"wrong value: a prompt has at least 1 token, found {length}"
                problems.add("wrong-value", message, (*path, place, index), hint)
