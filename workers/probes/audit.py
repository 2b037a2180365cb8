"""Audit: requested → effective for each cell, from the configuration vLLM itself builds. No engine is started."""

from __future__ import annotations

from typing import Any

from workers.engine import models, tasks
from workers.engine.settings import HARNESS, HARNESS_CPU, engine_config
from workers.patches import establish
from workers.probes import flatten, tracing
from workers.probes.describe import environment, nested_config, settings_of
from workers.probes.shape import shape_of
from workers.probes.unfit import is_named, unfit
from workers.protocol import AuditCell, AuditedCell, AuditReply, AuditRequest, Change, Problem, Settings

CHOICE_LEFT_OPEN = ("auto",)
"""Values by which a user leaves the choice to the engine."""


def audit(request: AuditRequest) -> AuditReply:
    """Resolve every cell of ``request``. A cell the engine refuses has problems and no effective settings."""
    classes = _config_classes()
    cells = [_audit(cell, request.models_dir, classes) for cell in request.cells]
    return AuditReply(environment=environment(), cells=cells)


def _config_classes() -> list[type[Any]]:
    """``EngineArgs``, ``VllmConfig`` and every configuration class below them."""
    from vllm.config import VllmConfig
    from vllm.engine.arg_utils import EngineArgs

    found: list[type[Any]] = []
    queue: list[type[Any]] = [EngineArgs, VllmConfig]
    while queue:
        owner = queue.pop()
        if owner in found:
            continue
        found.append(owner)
        nested = (nested_config(annotation) for _, annotation in settings_of(owner))
        queue.extend(inner for inner in nested if inner is not None)
    return found


def _audit(cell: AuditCell, models_dir: str, classes: list[type[Any]]) -> AuditedCell:
    patches = establish(cell.patches)
    try:
        with tracing.watch(classes) as trace:
            config = engine_config(cell.engine, models_dir)
        problems = unfit(config, cell) + tasks.problems(cell.evaluation, config)
    except Exception as error:
        return _refused(cell, [_explain(error, cell.engine)], patches)
    if problems:
        return _refused(cell, problems, patches)
    fields = list(flatten.fields_of(config))
    return AuditedCell(
        id=cell.id,
        problems=[],
        effective=_effective(fields, cell.engine),
        changes=_changes(fields, cell.engine, trace),
        patches=patches,
        shape=shape_of(config, cell.engine),
    )


def _refused(cell: AuditCell, problems: list[Problem], patches: Any) -> AuditedCell:
    return AuditedCell(id=cell.id, problems=problems, effective=None, changes=[], patches=patches, shape=None)


def _explain(error: Exception, requested: Settings) -> Problem:
    """The engine's refusal, pinned to the setting that its words name, if they name one."""
    if isinstance(error, models.ModelError):
        return Problem(key="model", message=str(error), hint=None)
    if isinstance(error, OSError):
        return Problem(key="model", message=f"{requested.get('model')!r} cannot be had: {error}", hint=None)
    locations = [".".join(str(part) for part in item["loc"]) for item in getattr(error, "errors", list)()]
    text = "; ".join(str(item["msg"]) for item in getattr(error, "errors", list)()) or _said(error)
    haystack = " ".join([*locations, text])
    named = [key for key, value in requested.items() if is_named(key, value, haystack)]
    spoken = [key for key in requested if key.rpartition(".")[2].replace("_", " ") in haystack]
    quoted = [key for key, value in requested.items() if isinstance(value, str) and repr(value.upper()) in text.upper()]
    keys = sorted(named or spoken or quoted, key=len, reverse=True)
    prefix = f"{', '.join(locations)}: " if any(locations) else ""
    return Problem(key=keys[0] if keys else None, message=f"vLLM refuses this: {prefix}{text}")


def _said(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"it knows no {error}"
    return str(error) or type(error).__name__


def _effective(fields: list[flatten.Field], requested: Settings) -> Settings:
    effective = {field.key: flatten.plain(field.value) for field in fields}
    return {key: _by_name(value, effective, requested) for key, value in effective.items()}


def _by_name(value: Any, effective: Settings, requested: Settings) -> Any:
    """A model goes by the name that was written: where it lies on this machine is no setting."""
    name = str(requested.get("model", ""))
    return name if name.startswith((models.SCHEME, models.HOME)) and value == effective.get("model") else value


def _changes(fields: list[flatten.Field], requested: Settings, trace: tracing.Trace) -> list[Change]:
    changes = []
    effective = _effective(fields, requested)
    harness = HARNESS | HARNESS_CPU
    for field in fields:
        written = field.key in requested
        asked = requested[field.key] if written else field.default
        value = effective[field.key]
        if flatten.agrees(asked, field.value) or asked == value or flatten.plain(asked) == value:
            continue
        place = trace.writes.get((id(field.owner), field.name))
        reason = trace.reason(place, field.name)
        if not written and field.key in harness:
            reason = "set by Shardproof: two arms have to compute the same, from token ids"
        if written and asked in CHOICE_LEFT_OPEN:
            reason = reason or f"{asked!r} leaves the choice to the engine"
        changes.append(
            Change(
                key=field.key,
                requested=flatten.plain(asked) if written else None,
                effective=value,
                written=written and asked not in CHOICE_LEFT_OPEN,
                reason=reason,
                where=str(place) if place else None,
            )
        )
    return changes
