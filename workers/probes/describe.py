"""Which settings this engine environment knows, asked of vLLM itself."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import sys
import types
import typing
from importlib import metadata
from pathlib import Path
from typing import Any

from workers.environment import differing
from workers.probes.driver import driver_version
from workers.protocol import Catalogue, Diagnosis, Environment, KeyInfo, Patch, PatchMode
from workers.protocol.environments import MARK

MAX_DEPTH = 6


def environment() -> Environment:
    """Versions and device of this interpreter."""
    import torch
    import vllm

    devices = torch.cuda.device_count()
    return Environment(
        vllm=vllm.__version__,
        torch=torch.__version__,
        ray=_version("ray"),
        python=platform.python_version(),
        device=torch.cuda.get_device_name(0) if devices else "cpu",
        devices=devices,
        cores=len(os.sched_getaffinity(0)),
        address=_address(),
        driver=driver_version() if devices else None,
    )


def _address() -> str | None:
    """What the builder of this environment wrote down; nobody builds the default one."""
    mark = Path(sys.prefix, MARK)
    return str(json.loads(mark.read_text())["address"]) if mark.is_file() else None


def diagnose() -> Diagnosis:
    """The patches as this version has them, what they are worth in it, and whether its guards hold."""
    from workers.engine.internals import GRAPH
    from workers.patches import establish, missing
    from workers.probes.guards import check_guards

    return Diagnosis(
        environment=environment(),
        patches=establish(dict.fromkeys(Patch, PatchMode.NATIVE)),
        guards=check_guards(),
        missing=missing(),
        formats_unread=_formats_unread(),
        fallback_log=GRAPH,
    )


def _formats_unread() -> bool | None:
    from workers.probes.fallback import FallbackProbe

    probe = FallbackProbe()
    probe.install()
    try:
        return probe.told(0).eager
    finally:
        probe.remove()


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def describe() -> Catalogue:
    """All keys a matrix may use: ``EngineArgs`` and, dotted, the fields of the configuration classes it holds."""
    from vllm.engine.arg_utils import EngineArgs

    keys: dict[str, KeyInfo] = {}
    _walk(EngineArgs, "", keys, 0)
    return Catalogue(environment=environment(), keys=keys, for_ranks=_for_ranks())


def _for_ranks() -> dict[str, str]:
    """What a configuration that asks for nothing changes in this process's environment, which its ranks inherit.

    Of two the second: the first imports more of vLLM, and what imports set is not meant, they set it in ranks too.
    """
    _changed_by_a_configuration()
    return _changed_by_a_configuration()


def _changed_by_a_configuration() -> dict[str, str]:
    from vllm.config import VllmConfig

    before = dict(os.environ)
    try:
        VllmConfig()
        return {name: os.environ[name] for name in differing(os.environ, before) if name in os.environ}
    finally:
        os.environ.clear()
        os.environ.update(before)


def _walk(owner: type[Any], prefix: str, keys: dict[str, KeyInfo], depth: int) -> None:
    for field, annotation in settings_of(owner):
        nested = nested_config(annotation)
        key = prefix + field.name
        keys[key] = KeyInfo(type=_text(annotation), nested=nested is not None)
        if nested is not None and depth < MAX_DEPTH:
            _walk(nested, key + ".", keys, depth + 1)


def settings_of(owner: type[Any]) -> list[tuple[dataclasses.Field[Any], Any]]:
    """The fields of a configuration class that a user can set, each with its annotation.

    An annotation that cannot be resolved here (its module is imported for type checkers alone) stays as written.
    """
    try:
        hints = typing.get_type_hints(owner)
    except (NameError, TypeError):
        hints = {}
    fields = (field for field in dataclasses.fields(owner) if field.init and not field.name.startswith("_"))
    return [(field, hints.get(field.name, field.type)) for field in fields]


def nested_config(annotation: Any) -> type[Any] | None:
    """The configuration class behind ``annotation`` (also ``X | None``), if dotted keys can reach into it."""
    for part in parts_of(annotation):
        if isinstance(part, type) and dataclasses.is_dataclass(part) and part.__module__.startswith("vllm.config"):
            return part
    return None


def parts_of(annotation: Any) -> tuple[Any, ...]:
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return tuple(part for member in typing.get_args(annotation) for part in parts_of(member))
    if typing.get_origin(annotation) is typing.Annotated:
        return parts_of(typing.get_args(annotation)[0])
    return (annotation,)


def _text(annotation: Any) -> str:
    if isinstance(annotation, str):
        return annotation
    if isinstance(annotation, type) and not typing.get_args(annotation):
        return annotation.__name__
    return str(annotation).replace("typing.", "").replace("NoneType", "None")
