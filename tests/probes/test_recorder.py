"""The recorder: what belongs to a step, what does not, and what of it comes back from a rank's files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from workers.probes.recorder import RECEIVED, SENT, Position, Recorder, Request
from workers.probes.slots import Capacity
from workers.residual.sketch import Sketch, sketch
from workers.residual.taps import load

WIDTH, ROOM = 8, 6


@pytest.fixture
def record() -> Recorder:
    return recorder()


def recorder(whole: bool = True, position: Position | None = None) -> Recorder:
    fresh = Recorder(Capacity(ROOM, whole))
    fresh.enabled = True
    fresh.position = position or Position()
    return fresh


def rows(number: float, count: int = 2) -> torch.Tensor:
    return torch.full((count, WIDTH), float(number))


def forward(record: Recorder, numbers: list[float], count: int = 2, padded: int = 2) -> None:
    """A forward pass through one graph, whose sites see ``numbers``."""
    record.forward(padded)
    for index, number in enumerate(numbers):
        record.record(rows(number, count), index, len(numbers), (1, 8))


def step(record: Recorder, numbers: list[float], tokens: int = 2, count: int = 2, padded: int = 2) -> None:
    record.begin(tokens)
    forward(record, numbers, count, padded)
    record.end()


def seen(record: Recorder, number: int = -1) -> list[float]:
    """The first number of each site of a step."""
    return [float(site[0, 0]) for site in record.steps[number].sites if isinstance(site, torch.Tensor)]


# --- the order of taps -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fired",
    [
        [(1, 2)],
        [(0, 2), (0, 2)],
        [(0, 2), (1, 2), (1, 2)],
        [(0, 1), (1, 1)],
        [(0, 3), (2, 3)],
    ],
    ids=["not from the start", "twice", "not from the start of the next", "beyond the graph", "left out"],
)
def test_tap_out_of_order_is_an_error(record: Recorder, fired: list[tuple[int, int]]) -> None:
    record.begin(1)
    record.forward(1)
    for index, size in fired[:-1]:
        record.record(rows(index), index, size)
    with pytest.raises(RuntimeError, match=r"tap \d of \d fired out of order, after \d of its graph"):
        record.record(rows(0), *fired[-1])


def test_residuals_and_gathered_activations_are_counted_apart(record: Recorder) -> None:
    record.begin(2)
    record.forward(2)
    record.record(rows(1), 0, 2)
    record.record_gathered(rows(5), 0, 1)
    record.record(rows(2), 1, 2)
    record.record(rows(3), 0, 1)
    record.record_gathered(rows(6), 0, 1)
    record.end()
    assert seen(record) == [1, 2, 3]
    kept = record.steps[0].kept
    assert sorted(kept) == ["0", "1", "2", "gathered/0", "gathered/1"]
    for name, number in (("gathered/0", 5), ("gathered/1", 6)):
        found = kept[name]
        assert isinstance(found, torch.Tensor)
        assert torch.equal(found, sketch(rows(number)).hashes)


def test_sites_of_an_eager_model_are_counted_one_by_one(record: Recorder) -> None:
    for numbers in ([1.0, 2.0, 3.0], [4.0, 5.0, 6.0]):
        record.begin(2)
        record.forward(2)
        for number in numbers:
            record.append(rows(number))
        record.end()
    assert [seen(record, 0), seen(record, 1)] == [[1, 2, 3], [4, 5, 6]]
    assert record.steps[0].compile_range is None


def test_a_site_has_its_number_within_a_step_alone(record: Recorder) -> None:
    assert record.site(0) is None
    record.begin(2)
    record.forward(2)
    record.record(rows(0), 0, 1)
    assert record.site(1) == 2, "one site of the graph before"
    record.end()
    assert record.site(0) is None


# --- what belongs to a step ------------------------------------------------------------------------------------------


def test_a_site_not_written_in_a_step_is_not_kept_nor_that_of_the_step_before(record: Recorder) -> None:
    step(record, [1, 2, 3])
    step(record, [4, 5])
    step(record, [6, 7, 8])
    assert [seen(record, number) for number in range(3)] == [[1, 2, 3], [4, 5], [6, 7, 8]]


def test_a_shorter_step_has_no_row_of_the_longer_one_before(record: Recorder) -> None:
    step(record, [1, 2], tokens=5, count=5, padded=6)
    step(record, [3, 4], tokens=2, count=2, padded=2)
    assert [(found.padded, [len(site) for site in found.sites if isinstance(site, torch.Tensor)])
            for found in record.steps] == [(6, [5, 5]), (2, [2, 2])]  # fmt: skip


def test_what_runs_between_steps_is_not_kept(record: Recorder) -> None:
    forward(record, [9, 9, 9])
    step(record, [1, 2])
    forward(record, [9, 9, 9])
    step(record, [3, 4])
    assert [seen(record, 0), seen(record, 1)] == [[1, 2], [3, 4]]


def test_of_two_forward_passes_in_a_step_the_last_is_kept(record: Recorder) -> None:
    record.begin(2)
    forward(record, [9, 9])
    forward(record, [1, 2])
    record.end()
    assert seen(record) == [1, 2]


def test_warm_up_may_be_longer_than_any_step_and_a_step_may_not(record: Recorder) -> None:
    forward(record, [9, 9], count=ROOM + 3)
    step(record, [1, 2], count=ROOM)
    assert seen(record) == [1, 2]
    with pytest.raises(RuntimeError, match=rf"a step wrote {ROOM + 1} rows .* largest has {ROOM}"):
        step(record, [1, 2], count=ROOM + 1)
    assert len(record.steps) == 1


def test_a_step_that_broke_off_leaves_nothing_and_does_not_disturb_the_next(record: Recorder) -> None:
    record.begin(1)
    record.forward(1)
    record.record(rows(9), 0, 2)
    record.abandon()
    assert record.end() is None
    step(record, [1, 2], tokens=4)
    assert [(found.tokens, seen(record)) for found in record.steps] == [(4, [1, 2])]


def test_without_recording_a_step_is_none(record: Recorder) -> None:
    record.enabled = False
    record.begin(2)
    forward(record, [1, 2])
    assert record.end() is None
    assert record.steps == []


def test_a_tap_before_the_recorder_has_room_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="before the recorder was told how much it may keep"):
        Recorder().append(rows(1))


def test_requests_stand_in_the_order_of_their_rows(record: Recorder) -> None:
    requests: list[Request] = [(3, 0, 2), (1, 4, 1), (2, 7, 1)]
    for order in ([1, 3, 2, 8], None):
        record.begin(4, list(requests))
        forward(record, [1])
        record.end(order)
    assert [found.requests for found in record.steps] == [[(1, 4, 1), (3, 0, 2), (2, 7, 1)], requests]


# --- files -----------------------------------------------------------------------------------------------------------


def test_a_ranks_files_hold_what_it_kept(record: Recorder, tmp_path: Path) -> None:
    record.position = Position(stage=0, tp_rank=1, first_site=0)
    for tokens in (3, 4):
        record.begin(tokens, [(0, 5, tokens)])
        record.forward(4)
        record.record(torch.full((WIDTH, tokens), 1.0).t(), 0, 2, (2, 64), scattered=False)
        record.record(rows(tokens), 1, 2, (2, 64), scattered=True)
        record.end()
    record.steps[0].believed = True
    record.save(tmp_path, 1)
    assert record.steps == []
    index = json.loads((tmp_path / "taps-rank1.json").read_text())
    scattered = {"0": False, "1": True}
    common = {"padded": 4, "compile_range": [2, 64], "scattered": scattered}
    assert index.pop("steps") == [
        {"tokens": 3, "requests": [[0, 5, 3]], "believed": True} | common,
        {"tokens": 4, "requests": [[0, 5, 4]], "believed": None} | common,
    ]
    size = WIDTH * 4
    assert index == {
        "stage": 0,
        "tp_rank": 1,
        "first_site": 0,
        "whole": True,
        "buffer_bytes": 2 * ROOM * size,
        "recorded_bytes": (3 + 4 + 2 + 2) * size,
    }
    tensors = load_file(tmp_path / "taps-rank1.safetensors")
    assert sorted(tensors) == ["0/0", "0/1", "1/0", "1/1"]
    assert torch.equal(tensors["1/1"], rows(4))
    assert tensors["0/0"].shape == (3, WIDTH)


def test_rows_padding_range_and_layout_survive_saving_and_loading(tmp_path: Path) -> None:
    for rank in range(2):
        record = recorder(position=Position(tp_rank=rank))
        for padded, compile_range, scattered in ((4, (2, 8), True), (6, (9, 64), False), (2, (0, 0), False)):
            record.begin(padded - 1, [(0, 3, padded - 1)])
            record.forward(padded)
            part = padded // 2 if scattered else padded
            record.record(rows(rank, padded), 0, 2, compile_range)
            record.record(rows(10 + rank, part), 1, 2, compile_range, scattered)
            record.end()
        record.steps[1].believed = False
        record.save(tmp_path, rank)
    found = load(tmp_path, 2)
    assert found.tokens == [3, 5, 1]
    assert [step.padded for step in found.steps] == [4, 6, 2]
    assert [step.compile_range for step in found.steps] == [(2, 8), (9, 64), None]
    assert [step.scattered for step in found.steps] == [{0: False, 1: True}] + [{0: False, 1: False}] * 2
    assert [step.believed for step in found.steps] == [None, False, None]
    assert [step.requests for step in found.steps] == [((0, 3, 3),), ((0, 3, 5),), ((0, 3, 1),)]
    for rank in range(2):
        for number, expected in enumerate((2, 6, 2)):
            site = found.at(rank, number, 1)
            assert isinstance(site, torch.Tensor)
            assert torch.equal(site, rows(10 + rank, expected))


def test_sketches_come_back_as_sketches(tmp_path: Path) -> None:
    record = recorder(whole=False)
    value = torch.randn(3, WIDTH, generator=torch.Generator().manual_seed(0))
    record.begin(3)
    record.forward(3)
    record.record(value, 0, 1)
    record.crossing(SENT, {"residual": value})
    record.end()
    record.save(tmp_path, 0)
    found = load(tmp_path, 1)
    truth, site = sketch(value), found.at(0, 0, 0)
    assert isinstance(site, Sketch)
    assert torch.equal(site.hashes, truth.hashes)
    assert torch.equal(site.projection, truth.projection)
    assert list(found.ranks[0]) == ["0/0"]
    assert json.loads((tmp_path / "taps-rank0.json").read_text())["whole"] is False


def test_sites_of_a_later_stage_have_their_numbers_in_the_whole_model(tmp_path: Path) -> None:
    record = recorder(position=Position(stage=1, first_site=10))
    record.begin(2)
    record.forward(2)
    record.crossing(RECEIVED, {"residual": rows(7)})
    for index in range(3):
        record.record(rows(index), index, 3, scattered=index == 1)
    record.end()
    assert seen(record) == [0, 1, 2]
    record.save(tmp_path, 0)
    assert sorted(load_file(tmp_path / "taps-rank0.safetensors")) == ["0/10", "0/11", "0/12", "0/received/residual"]
    (written,) = json.loads((tmp_path / "taps-rank0.json").read_text())["steps"]
    assert written["scattered"] == {"10": False, "11": True, "12": False}
