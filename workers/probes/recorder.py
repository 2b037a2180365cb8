"""Keeps what the taps of one rank saw, by step and site.

A *step* is one forward pass of the batch plan. Warm-up and dummy runs go through the taps too, with garbage: what they
write into the slots is overwritten, and only what was written between ``begin`` and ``end`` of a step is kept.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from workers.probes.slots import FIRST, LAST, PADDED, ROWS, SCATTERED, Capacity, Facts, Kept, Slot
from workers.residual.sketch import Sketch
from workers.residual.taps import Request

GATHERED, SENT, RECEIVED = "gathered", "sent", "received"


@dataclass
class Step:
    """``tokens``: rows the scheduler asked for; the model was given ``padded``. ``kept``: by name of the slot.

    ``scattered``: by site, whether the graph left the rank a part of the residual there.
    """

    tokens: int
    requests: list[Request]
    padded: int | None = None
    compile_range: tuple[int, int] | None = None
    believed: bool | None = None
    scattered: dict[int, bool] = field(default_factory=dict)
    kept: dict[str, Kept] = field(default_factory=dict)

    @property
    def sites(self) -> list[Kept]:
        """What was kept of this process's sites, in their order."""
        return [self.kept[name] for name in sorted(filter(str.isdigit, self.kept), key=int)]


@dataclass(frozen=True)
class Position:
    """Where this process stands among the ranks. ``first_site``: the number of its first site in the whole model."""

    stage: int = 0
    tp_rank: int = 0
    first_site: int = 0


class Recorder:
    """One per process. ``capacity`` has to be set before the first tap fires."""

    def __init__(self, capacity: Capacity | None = None) -> None:
        self.enabled = False
        self.capacity = capacity
        self.position = Position()
        self.steps: list[Step] = []
        self._open: Step | None = None
        self._slots: dict[str, Slot] = {}
        self._padded = 0
        self._base: dict[str, int] = {}
        self._seen: dict[str, int] = {}

    # --- what happens around and inside a forward pass ----------------------------------------------------------------

    def begin(self, tokens: int, requests: list[Request] | None = None) -> None:
        """A step of ``tokens`` tokens begins. Outside of CUDA graphs."""
        if not self.enabled:
            return
        self._open = Step(tokens, requests or [])
        for slot in self._slots.values():
            slot.mark.zero_()

    def forward(self, padded: int) -> None:
        """The model is about to run ``padded`` tokens: its sites count from the first again."""
        self._padded = padded
        self._base = {}
        self._seen = {}

    def site(self, index: int) -> int | None:
        """The number of the site that number ``index`` of the running graph is; ``None`` outside of steps."""
        return None if self._open is None else self._base.get("", 0) + index

    def record(
        self,
        residual: torch.Tensor,
        index: int,
        count: int,
        compile_range: tuple[int, int] = (0, 0),
        scattered: bool = False,
    ) -> None:
        """Keep ``residual``, number ``index`` of ``count`` in the graph that runs now.

        One forward pass may run several graphs (piecewise compilation), and equal graphs share their code: a site's
        place is the number of sites in the graphs before plus its index.
        """
        self._write("", residual, index, count, Facts(self._padded, compile_range, scattered))

    def record_gathered(self, value: torch.Tensor, index: int, count: int) -> None:
        """Keep the hashes of an activation that all ranks should hold, number ``index`` of ``count`` in its graph."""
        self._write(GATHERED, value, index, count, Facts(self._padded))

    def append(self, residual: torch.Tensor) -> None:
        """Keep the next site of an eager model, where sites arrive in order one by one."""
        self._write("", residual, 0, 1, Facts(self._padded))

    def crossing(self, direction: str, tensors: dict[str, torch.Tensor]) -> None:
        """Keep what goes to the next pipeline stage (``SENT``) or came from the one before (``RECEIVED``), as it is."""
        for name, value in tensors.items():
            self._slot(f"{direction}/{name}", value).write(value, Facts(self._padded))

    def _write(self, group: str, value: torch.Tensor, index: int, count: int, facts: Facts) -> None:
        base, seen = self._base.get(group, 0), self._seen.get(group, 0)
        if index != seen:
            raise RuntimeError(f"tap {index} of {count} fired out of order, after {seen} of its graph")
        name = f"{base + index}"
        self._slot(f"{group}/{name}" if group else name, value).write(value, facts)
        done = seen + 1 == count
        self._base[group] = base + count if done else base
        self._seen[group] = 0 if done else seen + 1

    def _slot(self, name: str, like: torch.Tensor) -> Slot:
        found = self._slots.get(name)
        if found is None:
            if self.capacity is None:
                raise RuntimeError("a tap fired before the recorder was told how much it may keep")
            # Parts that cross a boundary are put together and added up, which sketches of their rows cannot be.
            crosses = name.startswith((SENT, RECEIVED))
            capacity = replace(self.capacity, whole=True) if crosses else self.capacity
            found = self._slots[name] = capacity.slot(like.detach(), hashes_only=name.startswith(GATHERED))
        return found

    def end(self, order: list[int] | None = None) -> Step | None:
        """The step is over: copy what was written to the host. ``order``: the requests as their rows lie in the batch.

        Returns:
            The step, ``None`` when nothing is being recorded.
        """
        step, self._open = self._open, None
        if step is None:
            return None
        if order is not None:
            step.requests.sort(key=lambda request: order.index(request[0]))
        for name, slot in self._slots.items():
            self._keep(step, name, slot, slot.mark.tolist())
        self.steps.append(step)
        return step

    def abandon(self) -> None:
        """The step ended in an error: nothing of it is kept."""
        self._open = None

    def _keep(self, step: Step, name: str, slot: Slot, mark: list[int]) -> None:
        if not mark[ROWS]:
            return
        step.kept[name] = slot.read(mark[ROWS])
        step.padded = mark[PADDED] or None
        if name.isdigit():
            step.compile_range = (mark[FIRST], mark[LAST]) if mark[LAST] else None
            step.scattered[int(name) + self.position.first_site] = bool(mark[SCATTERED])

    # --- files --------------------------------------------------------------------------------------------------------

    def save(self, folder: Path, rank: int) -> None:
        """Write all steps, and forget them.

        Into ``taps-rank<rank>.safetensors``, with an index beside it: ``<step>/<site>`` is a residual (a sketch is two
        tensors, ``…/hashes`` and ``…/projection``), ``<step>/gathered/<n>`` the hashes of a gathered activation,
        ``<step>/sent/<name>`` and ``<step>/received/<name>`` what crossed a pipeline boundary. Sites count from the
        first of the whole model.
        """
        tensors: dict[str, torch.Tensor] = {}
        for number, step in enumerate(self.steps):
            for name, kept in step.kept.items():
                tensors |= _tensors(f"{number}/{self._global(name)}", kept)
        save_file(tensors, folder / f"taps-rank{rank}.safetensors")
        (folder / f"taps-rank{rank}.json").write_text(json.dumps(self._index(tensors)))
        self.steps = []

    def _global(self, name: str) -> str:
        return str(int(name) + self.position.first_site) if name.isdigit() else name

    def _index(self, tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
        return {
            "stage": self.position.stage,
            "tp_rank": self.position.tp_rank,
            "first_site": self.position.first_site,
            "whole": self.capacity.whole if self.capacity else None,
            "buffer_bytes": sum(slot.bytes for slot in self._slots.values()),
            "recorded_bytes": sum(tensor.nbytes for tensor in tensors.values()),
            "steps": [_written(step) for step in self.steps],
        }


def _written(step: Step) -> dict[str, Any]:
    return {
        "tokens": step.tokens,
        "padded": step.padded,
        "requests": step.requests,
        "believed": step.believed,
        "compile_range": step.compile_range,
        "scattered": step.scattered,
    }


def _tensors(name: str, kept: Kept) -> dict[str, torch.Tensor]:
    if isinstance(kept, Sketch):
        return {f"{name}/hashes": kept.hashes, f"{name}/projection": kept.projection}
    return {name: kept.contiguous()}


RECORDER = Recorder()
