"""What crosses from one pipeline stage to the next: sent, received, and what the arm compared with has there.

The stage that ran layers a to b-1 sends the residual of site 2b-1 and, apart from it, what the last layer's MLP gives:
both together are the residual of site 2b. Under SP each rank sends its part of the residual; vLLM's runner gathers the
parts before the next stage's model is given them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from workers.residual.question import Spot
from workers.residual.rows import Rows, SketchRows, WholeRows
from workers.residual.sketch import sketch
from workers.residual.taps import site_name

if TYPE_CHECKING:
    from workers.residual.invariants import Arm

Crossing = tuple[bool, str]
"""Whether it holds, and what is to be said if not."""

NAMES = ("hidden_states", "residual")


def crossings(arm: Arm) -> Iterator[Crossing]:
    """Every tensor that crosses in every step, on every rank."""
    for step in range(len(arm.taps.tokens)):
        for stage, end in enumerate(first_sites_after(arm.shape.layers, arm.shape.pipeline_parallel_size)):
            for rank in range(len(arm.taps.boundary)):
                for name in NAMES:
                    yield from _received(arm, step, stage, rank, name)
                yield from _as_it_should_be(arm, step, stage, rank, end)


def first_sites_after(layers: int, stages: int) -> list[int]:
    """Of each boundary the first site of the stage that receives, as vLLM divides ``layers`` where nobody says how.

    What cannot be divided goes to the stages before the last, the later ones first.
    """
    counts = [layers // stages] * stages
    for place in range(2, layers % stages + 2):
        counts[-place] += 1
    return [2 * sum(counts[: stage + 1]) for stage in range(stages - 1)]


def _kept(arm: Arm, step: int, stage: int, rank: int, end: str, name: str) -> torch.Tensor | None:
    return arm.taps.boundary[rank].get(f"{step}/{stage}/{end}/{name}")


def _received(arm: Arm, step: int, stage: int, rank: int, name: str) -> Iterator[Crossing]:
    sent = [_kept(arm, step, stage, other, "sent", name) for other in range(len(arm.taps.boundary))]
    got, own = _kept(arm, step, stage, rank, "received", name), sent[rank]
    where = f"step {step}, from stage {stage}, rank {rank}: {name}"
    if got is None and own is None:
        return
    if got is None or own is None:
        yield False, f"{where} was {'sent and not received' if got is None else 'received and not sent'}"
        return
    parts = [part for part in sent if part is not None]
    # More rows than the rank sent: the runner has put the parts of all ranks together.
    whole = torch.cat(parts) if len(got) > len(own) and len(parts) == len(sent) else own
    rows = min(arm.taps.tokens[step], len(whole))
    same = len(got) >= rows and torch.equal(got[:rows], whole[:rows])
    yield same, f"{where} is not received as it was sent ({len(whole)} rows sent, {len(got)} received)"


def _as_it_should_be(arm: Arm, step: int, stage: int, rank: int, end: int) -> Iterator[Crossing]:
    residual = _kept(arm, step, stage, rank, "sent", "residual")
    hidden = _kept(arm, step, stage, rank, "sent", "hidden_states")
    if residual is None:
        return
    where = f"step {step}, from stage {stage}, rank {rank}"
    yield from _holds(arm, Spot(step, end - 1, rank), residual, f"{where}: the residual sent")
    if hidden is not None and len(residual) < len(hidden):
        hidden = hidden[rank * len(residual) : (rank + 1) * len(residual)]
    if hidden is not None and len(hidden) == len(residual):
        what = f"{where}: hidden states and residual together"
        yield from _holds(arm, Spot(step, end, rank), hidden + residual, what)


def _holds(arm: Arm, spot: Spot, sent: torch.Tensor, what: str) -> Iterator[Crossing]:
    """To the same demand as residuals: to the bit where that is owed, else within the noise."""
    if arm.control is None or spot.step not in arm.pair.steps:
        return
    whole = arm.pair.whole(spot)
    if whole is None:
        return
    # A rank that has fewer rows than the model ran has its part of them; of one token the last rank has padding alone.
    start = spot.rank * len(sent) if len(sent) < arm.pair.step(spot.step).padded else 0
    expected = whole.part(start, start + len(sent))
    if not len(expected):
        return
    rows = sent[: len(expected)]
    got: Rows = SketchRows(sketch(rows)) if isinstance(whole, SketchRows) else WholeRows(rows)
    yield _agrees(arm, got, expected, spot.site), f"{what}: not the residual of site {site_name(spot.site)}"


def _agrees(arm: Arm, got: Rows, expected: Rows, site: int) -> bool:
    if got.equal(expected):
        return True
    if arm.question.bitwise or not got.comparable(expected):
        return False
    return got.hold(expected).worst <= arm.question.noise_factor * arm.question.floor(got, site)
