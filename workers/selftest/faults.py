"""Faults that can be switched on and off in a running engine.

A residual fault changes what one rank holds after a site; a collective fault changes what one collective returns on
one rank. Everything downstream then computes with the wrong numbers. The kinds are what has gone wrong for people, or
could: another rank's slice, a lost or doubled reduction, stale buffers, shifted tokens, single bits. Faults elsewhere
in the engine are switched on by ``workers.selftest.switch``; those of a compiled graph are in
``workers.selftest.graphs``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from workers.protocol import Fault

Gather = Callable[[torch.Tensor], list[torch.Tensor]]
"""All ranks' tensors of one shape, in the order of the ranks. A collective: every rank has to call it."""


@dataclass
class FaultState:
    """The fault that is on in this process, and what it needs to remember. One per process."""

    fault: Fault | None = None
    rank: int = 0
    gather: Gather | None = None
    calls: Counter[str] = field(default_factory=Counter)
    before: dict[str, torch.Tensor] = field(default_factory=dict)

    def set(self, fault: Fault | None) -> None:
        self.fault = fault
        self.before.clear()
        self.calls.clear()

    def begin_step(self) -> None:
        self.calls.clear()


STATE = FaultState()


# --- residual faults ------------------------------------------------------------------------------------------------


def residual(value: torch.Tensor, site: int) -> torch.Tensor:
    """What this rank holds after ``site``: ``value``, or a wrong version of it."""
    fault = STATE.fault
    if fault is None or fault.kind not in RESIDUAL_FAULTS:
        return value
    stale = STATE.before.get(str(site))
    STATE.before[str(site)] = value.clone()
    if fault.site not in (site, None):
        return value
    wrong = RESIDUAL_FAULTS[fault.kind](value, Around(site, stale))
    return wrong if fault.rank in (STATE.rank, None) else value


@dataclass(frozen=True)
class Around:
    """``stale``: the same site's residual in the step before, on this rank."""

    site: int
    stale: torch.Tensor | None


def _gathered(value: torch.Tensor) -> list[torch.Tensor]:
    if STATE.gather is None:
        return [value]
    return STATE.gather(value.contiguous())


def _slice_of(rank: int) -> Callable[[torch.Tensor, Around], torch.Tensor]:
    return lambda value, around: _gathered(value)[rank]


def _next_rank(value: torch.Tensor, around: Around) -> torch.Tensor:
    parts = _gathered(value)
    return parts[(STATE.rank + 1) % len(parts)]


def _stale(value: torch.Tensor, around: Around) -> torch.Tensor:
    wrong = value.clone()
    if around.stale is not None:
        rows = min(len(wrong), len(around.stale))
        wrong[:rows] = around.stale[:rows]
    return wrong


def _shifted(value: torch.Tensor, around: Around) -> torch.Tensor:
    return value.roll(1, dims=0)


def _first_row_twice(value: torch.Tensor, around: Around) -> torch.Tensor:
    wrong = value.clone()
    wrong[-1] = wrong[0]
    return wrong


def _one_element(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor, Around], torch.Tensor]:
    def apply(value: torch.Tensor, around: Around) -> torch.Tensor:
        wrong = value.clone()
        column = wrong.shape[-1] // 3
        wrong[0, column] = change(wrong[0, column])
        return wrong

    return apply


def _flip_lowest_bit(element: torch.Tensor) -> torch.Tensor:
    return torch.nextafter(element.float(), torch.tensor(torch.inf)).to(element.dtype)


RESIDUAL_FAULTS: dict[str, Callable[[torch.Tensor, Around], torch.Tensor]] = {
    "slice-of-rank-0": _slice_of(0),
    "slice-of-last-rank": _slice_of(-1),
    "ranks-rotated": _next_rank,
    "stale-buffer": _stale,
    "zero-buffer": lambda value, around: torch.zeros_like(value),
    "shifted-by-a-token": _shifted,
    "last-row-from-first": _first_row_twice,
    "nan": _one_element(lambda element: element * torch.nan),
    "one-element": _one_element(lambda element: element + 1),
    "one-ulp": _one_element(_flip_lowest_bit),
    "doubled": lambda value, around: value * 2,
    "negated": lambda value, around: -value,
    "scaled-a-little": lambda value, around: value * 1.001,
    "rounded-to-bfloat16": lambda value, around: value.bfloat16().to(value.dtype),
    "columns-swapped": lambda value, around: value.roll(1, dims=-1),
}


# --- collective faults ----------------------------------------------------------------------------------------------

Collective = Callable[[torch.Tensor], torch.Tensor]


def collective(name: str, value: torch.Tensor, right: Collective) -> torch.Tensor:
    """The result of collective ``name`` on ``value``: ``right``'s, or a wrong one at the call the fault names."""
    call = STATE.calls[name]
    STATE.calls[name] += 1
    result = right(value)
    fault = STATE.fault
    wrong_kind = COLLECTIVE_FAULTS.get(name, {}).get(fault.kind) if fault else None
    if fault is None or wrong_kind is None:
        return result
    stale = STATE.before.get(f"{name}/{call}")
    STATE.before[f"{name}/{call}"] = result.clone()
    if fault.site not in (call, None):
        return result
    wrong = wrong_kind(value, result, stale)
    return wrong if fault.rank in (STATE.rank, None) else result


def _own_part(value: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    rows = len(result)
    return value[STATE.rank * rows : (STATE.rank + 1) * rows]


def _parts_rotated(value: torch.Tensor, result: torch.Tensor, stale: torch.Tensor | None) -> torch.Tensor:
    return torch.cat([result[len(value) :], result[: len(value)]])


def _last_call(value: torch.Tensor, result: torch.Tensor, stale: torch.Tensor | None) -> torch.Tensor:
    wrong = result.clone()
    if stale is not None:
        rows = min(len(wrong), len(stale))
        wrong[:rows] = stale[:rows]
    return wrong


def _in_place(value: torch.Tensor, result: torch.Tensor, stale: torch.Tensor | None) -> torch.Tensor:
    """As the stock CPU communicator does it: compiled code may still read the input, and the output is its memory."""
    return value.copy_(result)


def _one_row(value: torch.Tensor, result: torch.Tensor, stale: torch.Tensor | None) -> torch.Tensor:
    wrong = result.clone()
    wrong[0] = wrong[0] * 1.001
    return wrong


COLLECTIVE_FAULTS: dict[str, dict[str, Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None], torch.Tensor]]] = {
    "reduce_scatter": {
        "reduction-lost": lambda value, result, stale: _own_part(value, result).clone(),
        "reduction-doubled": lambda value, result, stale: result + _own_part(value, result),
        "own-part-missing": lambda value, result, stale: result - _own_part(value, result),
        "reduction-averaged": lambda value, result, stale: result / 2,
    },
    "all_reduce": {"reduced-in-place": _in_place},
    "all_gather": {
        "gather-rotated": _parts_rotated,
        "gather-stale": _last_call,
        "gather-own-part-everywhere": lambda value, result, stale: torch.cat([value, value]),
        "gathered-row-changed": _one_row,
    },
}
