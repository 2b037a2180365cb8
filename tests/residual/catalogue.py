"""Synthetic tap recordings, everything that can be wrong with one, and what a checker lets through.

The recordings are written by the recorder itself. A healthy one holds, per step and site, one residual of all tokens:
each rank has a copy of it, or under SP its own part. A corruption spoils one spot, and a checker that does not report
that spot has let it escape.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from workers.probes.recorder import Position, Recorder
from workers.probes.slots import Capacity
from workers.protocol import Residual, Role
from workers.residual.compare import Question, Spot
from workers.residual.sketch import sketch
from workers.residual.taps import NoTaps, TapSet, load, site_count, site_name
from workers.residual.unshard import part

STEPS = (5, 8, 1)
LAYERS = 2
HIDDEN = 6
SITES = site_count(LAYERS)

Compare = Callable[[TapSet, TapSet, Question], Residual]
Whole = Callable[[int, int], torch.Tensor]
"""(step, site) → the residual of all tokens."""


# --- recordings ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    ranks: int
    scattered: bool

    def __str__(self) -> str:
        return f"{self.ranks} ranks, {'scattered' if self.scattered else 'replicated'}"


LAYOUTS = tuple(Layout(ranks, scattered) for ranks in (2, 4) for scattered in (True, False))


@dataclass(frozen=True)
class Recording:
    """An arm's taps and those of the arm it is compared with, both read back from their folders."""

    layout: Layout
    subject: TapSet
    control: TapSet

    @property
    def spots(self) -> list[Spot]:
        """Every place where something was recorded, in the order in which a checker has to look."""
        places = ((step, site) for step in range(len(STEPS)) for site in range(SITES))
        return [Spot(step, site, rank) for step, site in places for rank in range(self.layout.ranks)]

    def question(self, bitwise: bool) -> Question:
        return Question(
            subject=Role.PROBE,
            against=Role.REPLICATED,
            scattered=self.layout.scattered,
            bitwise=bitwise,
            sites=SITES,
            noise_factor=3.0,
        )


def residual(step: int, site: int) -> torch.Tensor:
    """Rows × hidden, different for every step and site, the same in every call."""
    draw = torch.Generator().manual_seed(1000 * step + site)
    return torch.randn(STEPS[step], HIDDEN, generator=draw)


def pad(rows: torch.Tensor, count: int) -> torch.Tensor:
    """``rows`` and as many rows of garbage as make ``count``."""
    return torch.cat([rows, torch.full((count - len(rows), rows.shape[1]), torch.nan, dtype=rows.dtype)])


def held(layout: Layout, rank: int, whole: torch.Tensor) -> torch.Tensor:
    """What ``rank`` holds of ``whole``: its copy, or its part and padding."""
    mine = part(len(whole), layout.ranks, rank, layout.scattered)
    return pad(whole[mine.start : mine.stop], mine.rows)


def write(
    folder: Path,
    layout: Layout,
    whole: Whole = residual,
    layers: int = LAYERS,
    result: dict[str, Any] | None = None,
    kept_whole: bool = True,
) -> Path:
    """Record every rank of an arm as an engine does, warm-up and two graphs per step included.

    ``result``: what the arm told beside its answers.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for rank in range(layout.ranks):
        recorder = Recorder(Capacity(rows=64, whole=kept_whole))
        recorder.enabled = True
        recorder.position = Position(tp_rank=rank)
        recorder.forward(2)
        recorder.record(torch.full((2, HIDDEN), torch.nan), 0, 1)
        for step, tokens in enumerate(STEPS):
            recorder.begin(tokens, [(step, 0, tokens)])
            recorder.forward(-(-tokens // layout.ranks) * layout.ranks if layout.scattered else tokens)
            for site in range(site_count(layers)):
                first = site < 2
                index, count = (site, 2) if first else (site - 2, site_count(layers) - 2)
                value = held(layout, rank, whole(step, site))
                recorder.record(value, index, count, (1, 64), layout.scattered)
            recorder.end()
        recorder.save(folder, rank)
    answers = [{"prompt": [step] * tokens, "tokens": [0]} for step, tokens in enumerate(STEPS)]
    (folder / "result.json").write_text(json.dumps({"outputs": answers, **(result or {})}))
    return folder


def sketched(taps: TapSet) -> TapSet:
    """What is left of ``taps`` in a recording that was too large to be kept."""
    ranks = [{key: sketch(rows) for key, rows in tensors.items()} for tensors in taps.ranks]
    return dataclasses.replace(taps, ranks=ranks)


def write_control(folder: Path, padded: int = 1, whole: Whole = residual) -> Path:
    """The arm compared with, whose rank 0 holds everything, its rows padded to a multiple of ``padded``."""
    return write(folder, Layout(1, False), lambda step, site: _padded(whole(step, site), padded))


def _padded(rows: torch.Tensor, multiple: int) -> torch.Tensor:
    return pad(rows, -(-len(rows) // multiple) * multiple)


def record(root: Path, layout: Layout) -> Recording:
    subject = write(root / str(layout) / "subject", layout)
    control = write_control(root / str(layout) / "control", padded=layout.ranks)
    return Recording(layout, load(subject, layout.ranks), load(control, 1))


# --- corruptions of one tensor ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Site:
    """A tensor to be spoiled: ``mine`` is what the rank holds, ``tokens`` its rows that are no padding."""

    mine: torch.Tensor
    tokens: int
    recording: Recording
    spot: Spot

    def of(self, rank: int) -> torch.Tensor:
        found = self.recording.subject.at(rank, self.spot.step, self.spot.site)
        assert found is not None
        return found

    @property
    def next_rank(self) -> int:
        return (self.spot.rank + 1) % self.recording.layout.ranks


Spoil = Callable[[Site], torch.Tensor | None]
"""The spoiled tensor; ``None`` where there is nothing to spoil (only padding, or no other rows)."""


def _set(site: Site, value: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor | None:
    """Change the last number of the last token."""
    if not site.tokens:
        return None
    spoiled = site.mine.clone()
    spoiled[site.tokens - 1, -1] = value(spoiled[site.tokens - 1, -1])
    return spoiled


def one_element(site: Site) -> torch.Tensor | None:
    return _set(site, lambda number: number + 1.0)


def last_bit(site: Site) -> torch.Tensor | None:
    return _set(site, lambda number: torch.nextafter(number, torch.tensor(torch.inf)))


def not_a_number(site: Site) -> torch.Tensor | None:
    return _set(site, lambda number: number * torch.nan)


def zeroed(site: Site) -> torch.Tensor | None:
    return torch.zeros_like(site.mine) if site.tokens else None


def slice_of_another_rank(site: Site) -> torch.Tensor | None:
    if not site.tokens:
        return None
    layout = site.recording.layout
    if layout.scattered:
        return site.of(site.next_rank).clone()
    parts = [part(site.tokens, layout.ranks, rank, True) for rank in (site.spot.rank, site.next_rank)]
    rows = min(found.tokens for found in parts)
    spoiled = site.mine.clone()
    spoiled[parts[0].start : parts[0].start + rows] = site.mine[parts[1].start : parts[1].start + rows]
    return spoiled if rows else None


def rows_swapped(site: Site) -> torch.Tensor | None:
    if site.tokens < 2:
        return None
    spoiled = site.mine.clone()
    spoiled[[0, site.tokens - 1]] = site.mine[[site.tokens - 1, 0]]
    return spoiled


def row_dropped(site: Site) -> torch.Tensor | None:
    return site.mine[:-1].clone()


def column_dropped(site: Site) -> torch.Tensor | None:
    return site.mine[:, :-1].clone()


def whole_instead_of_part(site: Site) -> torch.Tensor | None:
    layout = site.recording.layout
    everything = torch.cat([site.of(rank) for rank in range(layout.ranks)])
    return everything if layout.scattered else None


SPOILS: dict[str, Spoil] = {
    "one element": one_element,
    "last bit": last_bit,
    "not a number": not_a_number,
    "zeroed": zeroed,
    "slice of another rank": slice_of_another_rank,
    "rows swapped": rows_swapped,
    "row dropped": row_dropped,
    "column dropped": column_dropped,
    "whole instead of part": whole_instead_of_part,
}
ROUNDING = "last bit"
"""Too small to be told from rounding: it has to be found where bit equality is owed, and nowhere else."""

MISSING, ONWARD, LOST_RANK, LOST_STEP = "tensor missing", "from here on", "rank missing", "step missing"


# --- corrupted recordings --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Corruption:
    """``spoiled`` gives the recording, spoiled at ``spot`` first; ``reported`` says whether a result tells so."""

    kind: str
    layout: Layout
    spot: Spot
    spoiled: Callable[[], TapSet]
    reported: Callable[[Residual], bool]


def corruptions(recording: Recording, kinds: set[str] | None = None) -> Iterator[Corruption]:
    """Every corruption of ``recording`` at every step, site and rank."""
    for spot in recording.spots:
        for kind in SPOILS:
            if (kinds is None or kind in kinds) and _spoil(recording, kind, spot) is not None:
                yield _one(recording, kind, spot)
        if kinds is None or MISSING in kinds:
            yield _gap(recording, spot)
        if kinds is None or ONWARD in kinds:
            yield from _onward(recording, spot)


def _spoil(recording: Recording, kind: str, spot: Spot) -> torch.Tensor | None:
    mine = recording.subject.at(spot.rank, spot.step, spot.site)
    assert mine is not None
    tokens = part(STEPS[spot.step], recording.layout.ranks, spot.rank, recording.layout.scattered).tokens
    return SPOILS[kind](Site(mine, tokens, recording, spot))


def _with(taps: TapSet, changes: dict[Spot, torch.Tensor | None]) -> TapSet:
    """``taps`` with some tensors replaced, or taken out (``None``)."""
    ranks = [dict(tensors) for tensors in taps.ranks]
    for spot, tensor in changes.items():
        key = f"{spot.step}/{spot.site}"
        if tensor is None:
            del ranks[spot.rank][key]
        else:
            ranks[spot.rank][key] = tensor
    return dataclasses.replace(taps, ranks=ranks)


def _names(result: Residual, spot: Spot) -> bool:
    found = result.first_divergence
    return found is not None and (found.step, found.site, found.rank) == (spot.step, site_name(spot.site), spot.rank)


def _one(recording: Recording, kind: str, spot: Spot) -> Corruption:
    def spoiled() -> TapSet:
        return _with(recording.subject, {spot: _spoil(recording, kind, spot)})

    return Corruption(kind, recording.layout, spot, spoiled, lambda result: _names(result, spot))


def _gap(recording: Recording, spot: Spot) -> Corruption:
    gap = f"step {spot.step}, site {site_name(spot.site)}, rank {spot.rank}"

    def spoiled() -> TapSet:
        return _with(recording.subject, {spot: None})

    return Corruption(MISSING, recording.layout, spot, spoiled, lambda result: gap in result.missing)


def _onward(recording: Recording, spot: Spot) -> Iterator[Corruption]:
    """Real faults spread: all that follows is wrong too, and the first place is the one to name."""
    if _spoil(recording, "one element", spot) is None:
        return

    def spoiled() -> TapSet:
        after = recording.spots[recording.spots.index(spot) :]
        changed = {place: _spoil(recording, "one element", place) for place in after}
        return _with(recording.subject, {place: tensor for place, tensor in changed.items() if tensor is not None})

    yield Corruption(ONWARD, recording.layout, spot, spoiled, lambda result: _names(result, spot))


# --- corrupted folders -----------------------------------------------------------------------------------------------


def lost_files(recording: Recording, scratch: Path) -> Iterator[tuple[str, Path]]:
    """Folders of the recording in which a file of a rank is not there: (which rank, folder)."""
    for rank in range(recording.layout.ranks):
        for suffix in ("json", "safetensors"):
            folder = scratch / f"{recording.layout} without {rank} {suffix}"
            shutil.copytree(recording.subject.folder, folder)
            (folder / f"taps-rank{rank}.{suffix}").unlink()
            yield f"rank {rank}", folder


def lost_steps(recording: Recording, scratch: Path, ranks: list[int]) -> Iterator[tuple[int, Path]]:
    """Folders in which ``ranks`` did not see one of the steps: (which step, folder)."""
    for step in range(len(STEPS)):
        folder = scratch / f"{recording.layout} without step {step} on {ranks}"
        shutil.copytree(recording.subject.folder, folder)
        for rank in ranks:
            _forget_step(folder, rank, step)
        yield step, folder


def _forget_step(folder: Path, rank: int, step: int) -> None:
    from safetensors.torch import load_file, save_file

    index, data = folder / f"taps-rank{rank}.json", folder / f"taps-rank{rank}.safetensors"
    written = json.loads(index.read_text())
    written["steps"] = written["steps"][:step] + written["steps"][step + 1 :]
    index.write_text(json.dumps(written))
    kept = {}
    for key, tensor in load_file(data).items():
        number, site = map(int, key.split("/"))
        if number != step:
            kept[f"{number - (number > step)}/{site}"] = tensor
    save_file(kept, data)


# --- what escapes ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Escape:
    kind: str
    layout: Layout
    spot: Spot
    reported: str


def escapes(
    compare_function: Compare, recordings: list[Recording], bitwise: bool = True, kinds: set[str] | None = None
) -> list[Escape]:
    """The corruptions that ``compare_function`` did not report, or not at the right step, site and rank.

    Corruptions of single tensors only; whole files and steps are ``lost_files`` and ``lost_steps``.
    """
    found = []
    for recording in recordings:
        for corruption in corruptions(recording, kinds):
            if corruption.kind == ROUNDING and not bitwise:
                continue
            try:
                result = compare_function(corruption.spoiled(), recording.control, recording.question(bitwise))
            except NoTaps as error:
                raise AssertionError(f"{corruption} was refused, not compared") from error
            if not corruption.reported(result):
                told = str(result.first_divergence or result.missing)
                found.append(Escape(corruption.kind, corruption.layout, corruption.spot, told))
    return found
