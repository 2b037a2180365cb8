"""Switches on the faults that are neither in a residual nor in a collective, and takes them back.

Weights, what the runner believes, what crosses between pipeline stages, and the recording itself: a checker that is
given less than it should, or something else, has to say so.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from workers.engine.internals import resolve
from workers.patches.full_graph_sp import HELPER_NAME
from workers.probes.guards import RUNNER_HELPER
from workers.probes.recorder import RECORDER, Step
from workers.protocol import Fault
from workers.selftest.faults import STATE

Undo = Callable[[], None]

_undo: list[Undo] = []


def switch(worker: Any, fault: Fault | None) -> None:
    """Take back the fault before, and switch ``fault`` on if it is one of these. ``worker``: vLLM's."""
    while _undo:
        _undo.pop()()
    if fault is None:
        return
    begin = ENGINE_FAULTS.get(fault.kind)
    if begin is not None and fault.rank in (STATE.rank, None):
        _undo.append(begin(worker, fault))


# --- weights ---------------------------------------------------------------------------------------------------------


def _norm_weight(worker: Any, fault: Fault) -> Undo:
    """One number of the norm after the site, this rank's copy alone."""
    from vllm.model_executor.layers.layernorm import RMSNorm

    norms = [module for module in worker.get_model().modules() if isinstance(module, RMSNorm)]
    weight = norms[fault.site or 0].weight
    if not isinstance(weight, torch.nn.Parameter):
        raise TypeError(f"norm {fault.site} has no weight to change")
    kept = weight.data.clone()
    weight.data[len(weight) // 3] *= 1.5
    return lambda: _put_back(weight, kept)


def _put_back(weight: torch.nn.Parameter, kept: torch.Tensor) -> None:
    weight.data.copy_(kept)


# --- what the runner believes ----------------------------------------------------------------------------------------


def _belief(worker: Any, fault: Fault) -> Undo:
    """The helper takes a residual that is scattered for whole, and the other way round.

    Where it is asked of afterwards, not where the runner acts on it: that would end the engine.
    """
    right = resolve(RUNNER_HELPER, "make the runner believe the opposite")

    @functools.wraps(right)
    def wrong(*args: Any, **kwargs: Any) -> bool:
        return not right(*args, **kwargs)

    module = sys.modules[RUNNER_HELPER.partition(":")[0]]
    setattr(module, HELPER_NAME, wrong)
    return lambda: setattr(module, HELPER_NAME, right)


# --- between pipeline stages -----------------------------------------------------------------------------------------

Tensors = dict[str, torch.Tensor]


def _crossing(change: Callable[[Tensors, Tensors], Tensors]) -> Callable[[Any, Fault], Undo]:
    """``change``: from what was received now, and in the step before, to what the model is given."""

    def begin(worker: Any, fault: Fault) -> Undo:
        before: Tensors = {}

        def hook(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            received = kwargs.get("intermediate_tensors")
            if received is None:
                return None
            wrong = {name: value.clone() for name, value in change(dict(received.tensors), dict(before)).items()}
            before.update({name: value.clone() for name, value in received.tensors.items()})
            return args, kwargs | {"intermediate_tensors": type(received)(wrong)}

        # Before the hook that records what was received.
        handle = worker.get_model().register_forward_pre_hook(hook, with_kwargs=True, prepend=True)
        return handle.remove  # type: ignore[no-any-return]

    return begin


def _changed(now: Tensors, before: Tensors) -> Tensors:
    residual = now["residual"].clone()
    residual[0, residual.shape[-1] // 3] += 1
    return now | {"residual": residual}


def _parts_exchanged(now: Tensors, before: Tensors) -> Tensors:
    half = len(now["residual"]) // 2
    return now | {"residual": now["residual"].roll(half, dims=0)}


def _of_the_step_before(now: Tensors, before: Tensors) -> Tensors:
    residual = now["residual"].clone()
    old = before.get("residual", residual)[: len(residual)]
    residual[: len(old)] = old
    return now | {"residual": residual}


def _exchanged(now: Tensors, before: Tensors) -> Tensors:
    """The next layer adds the two: their sum stays what it is."""
    return now | {"residual": now["hidden_states"], "hidden_states": now["residual"]}


# --- the recording ---------------------------------------------------------------------------------------------------


def _recording(change: Callable[[list[Step], Fault], list[Step]]) -> Callable[[Any, Fault], Undo]:
    """``change``: from the steps that were recorded to those that are written."""

    def begin(worker: Any, fault: Fault) -> Undo:
        right = RECORDER.save

        def save(folder: Path, rank: int) -> None:
            RECORDER.steps = change(RECORDER.steps, fault)
            right(folder, rank)

        return _saving(save)

    return begin


def _saving(save: Callable[[Path, int], None]) -> Undo:
    vars(RECORDER)["save"] = save
    return lambda: vars(RECORDER).pop("save")


def _nothing_written(worker: Any, fault: Fault) -> Undo:
    def save(folder: Path, rank: int) -> None:
        RECORDER.steps = []

    return _saving(save)


def _reordered(steps: list[Step], fault: Fault) -> list[Step]:
    for step in steps:
        step.requests.reverse()
    return steps


def _site_left_out(steps: list[Step], fault: Fault) -> list[Step]:
    for step in steps:
        step.kept.pop(str(fault.site), None)
        step.scattered.pop(fault.site or 0, None)
    return steps


def _rows(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[list[Step], Fault], list[Step]]:
    """Change the rows that were kept at the fault's site; at every site, if it names none."""

    def apply(steps: list[Step], fault: Fault) -> list[Step]:
        for step in steps:
            for name, kept in step.kept.items():
                if isinstance(kept, torch.Tensor) and name in {str(site) for site in step.scattered}:
                    step.kept[name] = change(kept) if fault.site in (int(name), None) else kept
        return steps

    return apply


ENGINE_FAULTS: dict[str, Callable[[Any, Fault], Undo]] = {
    "norm-weight": _norm_weight,
    "belief-inverted": _belief,
    "boundary-changed": _crossing(_changed),
    "boundary-parts-exchanged": _crossing(_parts_exchanged),
    "boundary-stale": _crossing(_of_the_step_before),
    "boundary-tensors-exchanged": _crossing(_exchanged),
    "nothing-written": _nothing_written,
    "step-left-out": _recording(lambda steps, fault: steps[:-1]),
    "site-left-out": _recording(_site_left_out),
    "row-left-out": _recording(_rows(lambda kept: kept[:-1])),
    "row-too-many": _recording(_rows(lambda kept: torch.cat([kept, kept[-1:]]))),
    "row-too-many-at-last": _recording(
        lambda steps, fault: steps[:-1] + _rows(lambda kept: torch.cat([kept, kept[-1:]]))(steps[-1:], fault)
    ),
    "requests-reordered": _recording(_reordered),
    "tokens-permuted": _recording(_rows(lambda kept: kept.flip(0))),
}
