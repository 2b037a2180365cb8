"""What the taps of one arm recorded, read back from its folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from workers.residual.sketch import Sketch

Request = tuple[int, int, int]
"""Number of the request, its first position in a step, how many tokens of it."""

Recorded = torch.Tensor | Sketch
"""A residual as it was kept: rows × hidden, or a sketch of its rows."""


class NoTaps(ValueError):
    """An arm's folder holds no usable taps: what was expected, and what was found."""


@dataclass(frozen=True)
class Step:
    """One forward pass. ``tokens``: what the scheduler asked for; ``padded``: as many as the model was given.

    ``requests``: (number of the request, its first position, how many tokens of it), in the order of their rows.
    ``believed``: whether the runner takes the residual for scattered (``is_residual_scattered_for_sp``); ``None`` where
    it could not be asked. ``compile_range``: first and last number of tokens of the range whose graph ran; ``None`` in
    an eager model. ``scattered``: by site, whether the graph left each rank a part of the residual there.
    """

    tokens: int
    padded: int
    requests: tuple[Request, ...] = ()
    believed: bool | None = None
    compile_range: tuple[int, int] | None = None
    scattered: Mapping[int, bool] = field(default_factory=dict)


@dataclass(frozen=True)
class TapSet:
    """``ranks[r]["<step>/<site>"]``: what TP rank ``r`` saw, of every pipeline stage. ``tokens[n]``: of step ``n``.

    ``gathered[r]["<step>/<stage>/<n>"]``: hash of each row (int64) of the ``n``-th gathered activation of a stage.
    ``boundary[r]``: what crossed between pipeline stages, ``"<step>/<stage>/sent/<name>"`` as the rank of ``stage`` had
    it and ``"<step>/<stage>/received/<name>"`` as the next stage's model was given it; names are vLLM's:
    ``hidden_states``, ``residual``. ``orders[p][n]``: the requests of step ``n`` in the order in which process ``p``
    held them. ``buffer_bytes`` and ``recorded_bytes``: the largest over the ranks.
    """

    folder: Path
    tokens: list[int]
    ranks: list[dict[str, Recorded]]
    steps: list[Step] = field(default_factory=list)
    gathered: list[dict[str, torch.Tensor]] = field(default_factory=list)
    boundary: list[dict[str, torch.Tensor]] = field(default_factory=list)
    buffer_bytes: int = 0
    recorded_bytes: int = 0
    orders: list[list[tuple[Request, ...]]] = field(default_factory=list)

    def at(self, rank: int, step: int, site: int) -> Recorded | None:
        return self.ranks[rank].get(f"{step}/{site}")


@dataclass(frozen=True)
class _Process:
    """What one process wrote."""

    index: dict[str, Any]
    tensors: dict[str, torch.Tensor]

    @property
    def tokens(self) -> list[int]:
        return [step["tokens"] for step in self.index["steps"]]

    @property
    def requests(self) -> list[tuple[Request, ...]]:
        return [_requests(step) for step in self.index["steps"]]


def load(folder: str | Path, ranks: int, stages: int = 1) -> TapSet:
    """The taps of ``ranks`` TP ranks over ``stages`` pipeline stages.

    Raises:
        NoTaps: when a rank's files are not there or the ranks did not see the same steps.
    """
    folder = Path(folder)
    processes = [_read(folder, number) for number in range(ranks * stages)]
    if any(process.tokens != processes[0].tokens for process in processes):
        raise NoTaps(f"the ranks recorded different steps: {[process.tokens for process in processes]}")
    found = TapSet(
        folder,
        processes[0].tokens,
        [{} for _ in range(ranks)],
        _steps(processes),
        [{} for _ in range(ranks)],
        [{} for _ in range(ranks)],
        max(process.index["buffer_bytes"] for process in processes),
        max(process.index["recorded_bytes"] for process in processes),
        [process.requests for process in processes],
    )
    for process in processes:
        _file(found, process)
    return found


def _read(folder: Path, number: int) -> _Process:
    index, data = folder / f"taps-rank{number}.json", folder / f"taps-rank{number}.safetensors"
    if not index.exists() or not data.exists():
        raise NoTaps(f"rank {number} recorded no residual: {data.name} is not in the arm's folder")
    return _Process(json.loads(index.read_text()), load_file(data))


def _steps(processes: list[_Process]) -> list[Step]:
    """Each step as the first process saw it, its sites those of all stages."""
    steps = []
    for number, written in enumerate(processes[0].index["steps"]):
        scattered: dict[int, bool] = {}
        for process in processes:
            scattered |= {int(site): part for site, part in process.index["steps"][number]["scattered"].items()}
        steps.append(
            Step(
                tokens=written["tokens"],
                padded=written["padded"] or written["tokens"],
                requests=_requests(written),
                believed=written["believed"],
                compile_range=tuple(written["compile_range"]) if written["compile_range"] else None,
                scattered=scattered,
            )
        )
    return steps


def _requests(written: dict[str, Any]) -> tuple[Request, ...]:
    return tuple((request, first, count) for request, first, count in written["requests"])


def _file(found: TapSet, process: _Process) -> None:
    """Put what ``process`` kept where it belongs: residuals by site, the rest by pipeline stage."""
    rank, stage = process.index["tp_rank"], process.index["stage"]
    for name, tensor in process.tensors.items():
        step, _, rest = name.partition("/")
        kind, _, last = rest.partition("/")
        if kind == "gathered":
            found.gathered[rank][f"{step}/{stage}/{last}"] = tensor
        elif kind in ("sent", "received"):
            sender = stage if kind == "sent" else stage - 1
            found.boundary[rank][f"{step}/{sender}/{kind}/{last}"] = tensor
        elif last == "hashes":
            found.ranks[rank][f"{step}/{kind}"] = Sketch(tensor, process.tensors[f"{step}/{kind}/projection"])
        elif not last:
            found.ranks[rank][f"{step}/{kind}"] = tensor


def site_name(number: int) -> str:
    """``embed``, then per layer ``0.attn``, ``0.mlp``, ``1.attn``, …

    Site ``<layer>.attn`` is the residual with that layer's attention added in, as the norm before the MLP sees it.
    """
    if number == 0:
        return "embed"
    return f"{(number - 1) // 2}.{'attn' if number % 2 else 'mlp'}"


def site_count(layers: int) -> int:
    return 2 * layers + 1
