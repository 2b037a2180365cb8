"""Recordings read back: files of all ranks and pipeline stages become one set of taps, or are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from workers.probes.recorder import RECEIVED, SENT, Position, Recorder, Request
from workers.probes.slots import Capacity
from workers.residual.sketch import Sketch, sketch
from workers.residual.taps import NoTaps, TapSet, load, site_count, site_name

WIDTH, TOKENS, PADDED = 8, [3, 2], 4
RANKS, STAGES = 2, 2
FIRST_SITES = [0, 2]
SITES_HERE = [2, 3]
"""Stage 0 has one layer of two: its sites are 0 and 1; 2, 3 and 4 are on the next."""


def value(*what: float) -> torch.Tensor:
    """Rows that no other call with other arguments gives."""
    rows = torch.zeros(PADDED, WIDTH)
    rows[:, : len(what)] = torch.tensor(what, dtype=torch.float32)
    return rows


def write(folder: Path, tokens: dict[int, list[int]] | None = None, whole: bool = True) -> Path:
    """What an arm of two stages leaves. ``tokens``: by process, where one saw other steps than the rest."""
    for stage in range(STAGES):
        for rank in range(RANKS):
            process = stage * RANKS + rank
            record = Recorder(Capacity(8, whole))
            record.enabled = True
            record.position = Position(stage, rank, FIRST_SITES[stage])
            for step, count in enumerate((tokens or {}).get(process, TOKENS)):
                one_step(record, step, count)
            record.save(folder, process)
    return folder


def one_step(record: Recorder, step: int, tokens: int) -> None:
    stage, rank = record.position.stage, record.position.tp_rank
    requests: list[Request] = [(0, step, tokens)]
    record.begin(tokens, requests)
    record.forward(PADDED)
    if stage:
        record.crossing(RECEIVED, {"residual": value(step, 7, rank)})
    for index in range(SITES_HERE[stage]):
        site = FIRST_SITES[stage] + index
        # The first site of a later stage works on what it was given whole.
        scattered = site != 2
        part = value(step, site, rank)[: PADDED // RANKS if scattered else PADDED]
        record.record(part, index, SITES_HERE[stage], (2, 64), scattered)
        record.record_gathered(value(step, 50 + stage, index, rank), index, SITES_HERE[stage])
    if not stage:
        record.crossing(SENT, {"hidden_states": value(step, 8, rank), "residual": value(step, 9, rank)})
    record.end()


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> TapSet:
    return load(write(tmp_path_factory.mktemp("arm")), RANKS, STAGES)


def whole(tensor: Any) -> torch.Tensor:
    assert isinstance(tensor, torch.Tensor)
    return tensor


# --- stages become one model -----------------------------------------------------------------------------------------


def test_sites_of_all_stages_have_one_numbering(found: TapSet) -> None:
    assert len(found.ranks) == RANKS
    for rank in range(RANKS):
        assert set(found.ranks[rank]) == {f"{step}/{site}" for step in range(2) for site in range(5)}
        for step in range(2):
            for site in range(5):
                rows = whole(found.at(rank, step, site))
                assert rows[0, :3].tolist() == [step, site, rank]
                assert len(rows) == (PADDED if site == 2 else PADDED // RANKS)
    assert found.at(0, 0, 5) is None
    assert found.at(0, 2, 0) is None


def test_layouts_are_those_of_every_stage(found: TapSet) -> None:
    expected = {0: True, 1: True, 2: False, 3: True, 4: True}
    assert [step.scattered for step in found.steps] == [expected, expected]
    assert [(step.tokens, step.padded, step.compile_range) for step in found.steps] == [
        (3, 4, (2, 64)),
        (2, 4, (2, 64)),
    ]
    assert [step.requests for step in found.steps] == [((0, 0, 3),), ((0, 1, 2),)]


def test_gathered_activations_are_those_of_their_stage(found: TapSet) -> None:
    for rank in range(RANKS):
        names = {f"{s}/{stage}/{n}": (s, stage, n) for s in range(2) for stage in range(2) for n in range(2 + stage)}
        assert set(found.gathered[rank]) == set(names)
        for name, (step, stage, number) in names.items():
            truth = sketch(value(step, 50 + stage, number, rank)).hashes
            assert torch.equal(found.gathered[rank][name], truth)


def test_both_ends_of_a_boundary_go_by_the_stage_that_sends(found: TapSet) -> None:
    for rank in range(RANKS):
        assert set(found.boundary[rank]) == {
            f"{step}/0/{end}"
            for step in range(2)
            for end in ("sent/hidden_states", "sent/residual", "received/residual")
        }
        for step in range(2):
            for end, number in (("sent/hidden_states", 8), ("sent/residual", 9), ("received/residual", 7)):
                assert found.boundary[rank][f"{step}/0/{end}"][0, :3].tolist() == [step, number, rank]


def test_the_bytes_are_those_of_the_largest_process(found: TapSet) -> None:
    indexes = [json.loads((found.folder / f"taps-rank{number}.json").read_text()) for number in range(4)]
    for name, total in (("buffer_bytes", found.buffer_bytes), ("recorded_bytes", found.recorded_bytes)):
        sizes = {index[name] for index in indexes}
        assert len(sizes) == 2, "the stages differ"
        assert total == max(sizes)


def test_of_large_recordings_residuals_are_sketches_and_what_crosses_is_not(tmp_path: Path) -> None:
    found = load(write(tmp_path, whole=False), RANKS, STAGES)
    assert set(found.ranks[1]) == {f"{step}/{site}" for step in range(2) for site in range(5)}
    for name, site in found.ranks[1].items():
        step, _, number = name.partition("/")
        assert isinstance(site, Sketch)
        truth = sketch(value(float(step), float(number), 1)[: len(site.hashes)])
        assert torch.equal(site.hashes, truth.hashes)
        assert torch.equal(site.projection, truth.projection)
    crossed = found.boundary[1]["1/0/sent/residual"]
    assert torch.equal(crossed, value(1, 9, 1))


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("process", range(RANKS * STAGES))
@pytest.mark.parametrize("other", [[3], [3, 2, 2], [2, 3], []], ids=["one less", "one more", "other sizes", "none"])
def test_ranks_that_saw_other_steps_are_refused(tmp_path: Path, process: int, other: list[int]) -> None:
    write(tmp_path, tokens={process: other})
    with pytest.raises(NoTaps, match="the ranks recorded different steps") as error:
        load(tmp_path, RANKS, STAGES)
    assert str(other) in str(error.value)


@pytest.mark.parametrize("process", range(RANKS * STAGES))
@pytest.mark.parametrize("suffix", ["json", "safetensors"])
def test_a_rank_without_its_files_is_named(tmp_path: Path, process: int, suffix: str) -> None:
    (write(tmp_path) / f"taps-rank{process}.{suffix}").unlink()
    with pytest.raises(NoTaps, match=f"rank {process} recorded no residual"):
        load(tmp_path, RANKS, STAGES)


def test_fewer_stages_are_not_looked_for_where_there_are_more(tmp_path: Path) -> None:
    found = load(write(tmp_path), RANKS)
    assert set(found.ranks[0]) == {f"{step}/{site}" for step in range(2) for site in (0, 1)}


# --- names -----------------------------------------------------------------------------------------------------------


def test_sites_are_named_in_the_order_of_the_model() -> None:
    assert [site_name(number) for number in range(site_count(2))] == ["embed", "0.attn", "0.mlp", "1.attn", "1.mlp"]
