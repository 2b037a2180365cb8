"""Keeps what the taps of one rank saw, by step and site.

A *step* is one forward pass of the batch plan. Warm-up and dummy runs go through the taps too, with garbage: only what
lies between ``begin`` and ``end`` of a step is kept.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import save_file


@dataclass
class Step:
    """``tokens``: rows the scheduler asked for; under SP the recorded rows are padded to a multiple of the ranks."""

    tokens: int
    sites: list[torch.Tensor] = field(default_factory=list)


class Recorder:
    def __init__(self) -> None:
        self.enabled = False
        self.steps: list[Step] = []
        self._open: Step | None = None
        self._base = 0
        self._seen = 0

    def begin(self, tokens: int) -> None:
        if self.enabled:
            self._open = Step(tokens)
            self._base = self._seen = 0

    def end(self) -> None:
        if self._open is not None:
            self.steps.append(self._open)
            self._open = None

    def site(self, index: int) -> int | None:
        """The number of the site that number ``index`` of the running graph is; ``None`` outside of steps."""
        return None if self._open is None else self._base + index

    def record(self, residual: torch.Tensor, index: int, count: int) -> None:
        """Keep a copy of ``residual``, number ``index`` of ``count`` in the graph that runs now.

        One forward pass may run several graphs (piecewise compilation), and equal graphs share their code: a site's
        place is the number of sites in the graphs before plus its index.
        """
        if self._open is None:
            return
        if self._base + index != len(self._open.sites):
            raise RuntimeError(f"tap {index} of {count} fired out of order at site {len(self._open.sites)}")
        self._open.sites.append(residual.detach().clone())
        self._seen += 1
        if self._seen == count:
            self._base += count
            self._seen = 0

    def append(self, residual: torch.Tensor) -> None:
        """Keep the next site of an eager model, where sites arrive in order one by one."""
        if self._open is not None:
            self._open.sites.append(residual.detach().clone())

    def save(self, folder: Path, rank: int) -> None:
        """Write all steps, and forget them.

        Into ``taps-rank<rank>.safetensors``, tensor ``<step>/<site number>``, with an index beside it.
        """
        tensors = {f"{n}/{k}": t.contiguous() for n, step in enumerate(self.steps) for k, t in enumerate(step.sites)}
        save_file(tensors, folder / f"taps-rank{rank}.safetensors")
        index = [{"tokens": step.tokens, "sites": len(step.sites)} for step in self.steps]
        (folder / f"taps-rank{rank}.json").write_text(json.dumps({"steps": index}))
        self.steps = []


RECORDER = Recorder()
