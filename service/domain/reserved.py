"""Keys of a matrix that are not settings of the engine: ``patches``, ``env``, ``batch``, ``eval``, ``environment``."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from service.domain import evaluation
from service.domain.errors import Problems
from service.domain.nearest import nearest
from service.domain.place import Path
from service.domain.wording import found, listing, show
from workers.protocol import DEFAULT, BatchPlan, KeyInfo, Patch, PatchMode, ValidationError

PATCHES, ENV, BATCH, EVAL, ENVIRONMENT = "patches", "env", "batch", "eval", "environment"

KEYS: dict[str, KeyInfo] = {
    **{root: KeyInfo(type="reserved", nested=True) for root in (PATCHES, ENV, BATCH, EVAL)},
    **{f"{PATCHES}.{patch}": KeyInfo(type="reserved") for patch in Patch},
    **{f"{BATCH}.{field}": KeyInfo(type="reserved") for field in BatchPlan.model_fields},
    **{f"{EVAL}.{field}": KeyInfo(type="reserved") for field in evaluation.FIELDS},
    ENVIRONMENT: KeyInfo(type="reserved"),
}
"""All reserved keys, except that ``env`` takes any variable."""

NEEDED_BY = {"prompt_embeds": "enable_prompt_embeds", "prefix_caching": "enable_prefix_caching"}
"""Options of ``batch`` → the engine's switch for what they use, turned on along with them."""

OF_THE_ARM = frozenset({
    "VLLM_CACHE_ROOT", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "CUDA_CACHE_PATH",
    "FLASHINFER_WORKSPACE_BASE", "DG_JIT_CACHE_DIR", "TILELANG_CACHE_DIR", "TVM_FFI_CACHE_DIR", "TMPDIR",
})  # fmt: skip
"""Variables that give an arm folders of its own: another value would make a cold start warm, or leave files behind."""

OWN_PREFIX = "SHARDPROOF_"
ALLOWED = frozenset({"SHARDPROOF_CPU_COLLECTIVE"})
"""The one variable of ours that is a setting of the engine: which all-reduce a CPU has."""

_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")


def is_reserved(key: str) -> bool:
    return key.partition(".")[0] in (PATCHES, ENV, BATCH, EVAL, ENVIRONMENT)


def needs(field: str, value: Any) -> bool:
    """Whether ``batch.<field>: <value>`` needs a switch of the engine."""
    return field in NEEDED_BY and value is True


def is_variable(key: str) -> bool:
    return key.startswith(f"{ENV}.")


def check_variable_name(key: str, path: Path, problems: Problems) -> bool:
    """Whether ``env.NAME`` names a variable that a cell may set; if it does not, that is noted."""
    name = key.removeprefix(f"{ENV}.")
    if name in OF_THE_ARM:
        message = f"{show(name)} is set by Shardproof: every start has folders of its own, so that a cold one is cold"
        problems.add("variable-taken", message, path, f"Remove {ENV}.{name}")
        return False
    if name.startswith(OWN_PREFIX) and name not in ALLOWED:
        message = f"{show(name)} is a variable of Shardproof's own and no setting of an engine"
        problems.add("variable-taken", message, path, f"Remove {ENV}.{name}, or set it where Shardproof is started")
        return False
    if _VARIABLE.fullmatch(name):
        return True
    message = f"{show(name)} is not the name of an environment variable"
    hint = f"Use capital letters, digits and _, as in {ENV}.{_suggest_variable(name)}"
    problems.add("variable-name", message, path, hint)
    return False


def check(key: str, value: Any, path: Path, problems: Problems, environments: Collection[str] = ()) -> Any:
    """The value of a reserved key in the form that cells carry; ``None`` when it is refused.

    ``environments``: names of engine environments that are known besides ``default``.
    """
    root, _, name = key.partition(".")
    if root == PATCHES:
        return _patch_mode(value, path, problems)
    if root == ENV:
        return _variable(value, path, problems)
    if root == BATCH:
        return _batch(name, value, path, problems)
    if root == EVAL:
        return evaluation.check(name, value, path, problems)
    return _environment(value, path, problems, (DEFAULT, *environments))


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


def _environment(value: Any, path: Path, problems: Problems, known: Collection[str]) -> str | None:
    if isinstance(value, str) and value in known:
        return value
    message = f"unknown engine environment, found {found(value)}"
    if len(known) == 1:
        hint = f"Only {DEFAULT} is known; define others under environments:"
    else:
        near = f"The nearest known one is {nearest(value, known)}; " if isinstance(value, str) else ""
        hint = f"{near}known are {listing(known)}"
    problems.add("unknown-environment", message, path, hint)
    return None


def _batch(field: str, value: Any, path: Path, problems: Problems) -> Any:
    try:
        plan = BatchPlan.model_validate({field: value}, strict=True)
    except ValidationError as error:
        for item in error.errors():
            message = f"wrong type: {item['msg'].lower()}, found {found(item['input'])}"
            problems.add("wrong-type", message, (*path, *item["loc"][1:]), _hint(field))
        return None
    least = _LEAST.get(field)
    if least is not None and value < least:
        problems.add("wrong-value", f"wrong value: at least {least}, found {value}", path, f"Write {least} or more")
    if field == "waves" and not plan.waves:
        problems.add("wrong-value", "wrong value: no wave, so nothing would be run", path, _hint(field))
    if field in ("waves", "staggered"):
        _check_waves(field, value, path, problems)
    return value


_LEAST = {"max_tokens": 1, "logprobs": 0, "full_bytes": 0}

_BATCH_HINTS = {
    "seed": "an integer",
    "max_tokens": "an integer of 1 or more",
    "logprobs": "an integer of 0 or more",
    "waves": "a list of lists of prompt lengths in tokens, e.g. [[1], [2, 3]]",
    "staggered": "a list of lists of prompt lengths in tokens, e.g. [[5, 1, 8]]",
    "chunked_prefill": "true or false",
    "prompt_embeds": "true or false",
    "prefix_caching": "true or false",
    "full_bytes": "an integer: bytes per rank",
}


def _hint(field: str) -> str:
    return f"{BATCH}.{field} is {_BATCH_HINTS[field]}"


def _check_waves(field: str, waves: list[list[int]], path: Path, problems: Problems) -> None:
    hint = _hint(field)
    for place, wave in enumerate(waves):
        if not wave:
            problems.add("wrong-value", "wrong value: a wave without a prompt", (*path, place), hint)
        for index, length in enumerate(wave):
            if length < 1:
                message = f"wrong value: a prompt has at least 1 token, found {length}"
                problems.add("wrong-value", message, (*path, place, index), hint)
