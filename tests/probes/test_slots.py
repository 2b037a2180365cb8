"""Slots: what a captured CUDA graph replays must neither wait for the device nor move what it writes to."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from workers.probes.slots import FIRST, LAST, PADDED, ROWS, SCATTERED, Capacity, Facts, HashSlot, Slot
from workers.residual import sketch as sketches
from workers.residual.sketch import Sketch, sketch

WIDTH = 48
KINDS = {"whole": (True, False), "sketch": (False, False), "hash": (True, True)}
"""Name → kept whole, hashes only."""

WAITS = {"_local_scalar_dense", "item", "is_nonzero", "nonzero", "masked_select", "unique", "equal", "_unique2"}
"""Operations whose result or whose size the host needs to know."""


def slot(kind: str, rows: int = 8, device: str = "cpu") -> Slot:
    whole, hashes_only = KINDS[kind]
    return Capacity(rows, whole).slot(torch.empty(0, WIDTH, device=device), hashes_only)


def values(rows: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, WIDTH, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def torchs_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sketches as a GPU takes them; the CPU's own loops are seen by no dispatcher."""
    monkeypatch.setattr(sketches, "COMPILED_LOOPS", False)


# --- safe in a captured graph ----------------------------------------------------------------------------------------


class Watch(TorchDispatchMode):
    """Notes what waits for the device, and where each operation that writes in place writes to."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[str] = []
        self.written: set[int] = set()
        self.operations = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        self.operations += 1
        if name in WAITS or _devices(args) | _devices([result]) > {"cpu"}:
            self.waits.append(name)
        if name in ("copy_", "fill_", "zero_"):
            self.written.add(args[0].untyped_storage().data_ptr())
        return result


def _devices(values: Any) -> set[str]:
    return {value.device.type for value in values if isinstance(value, torch.Tensor)}


def watched(target: Slot, number: int) -> Watch:
    watch = Watch()
    with watch:
        target.write(values(4 + number, number), Facts(8, (1, 8), bool(number % 2)))
    return watch


@pytest.mark.usefixtures("torchs_operations")
@pytest.mark.parametrize("kind", KINDS)
def test_writing_again_waits_for_nothing_and_writes_where_it_wrote(kind: str) -> None:
    target = slot(kind)
    target.write(values(2), Facts(2))
    memory = {value.untyped_storage().data_ptr() for value in vars(target).values() if isinstance(value, torch.Tensor)}
    for number in range(3):
        watch = watched(target, number)
        assert watch.operations > 5, "it saw what the slot did"
        assert watch.waits == []
        assert watch.written == memory
    assert target.mark.tolist() == [6, 8, 1, 8, 0]


@pytest.mark.parametrize("kind", KINDS)
def test_a_write_needs_no_value_that_is_on_the_device(kind: str) -> None:
    # Tensors on this device have no values: whatever asks for one, or for a copy on the host, raises.
    target = slot(kind, device="meta")
    target.write(values(4).to("meta"), Facts(8, (1, 8), True))
    assert target.mark.device.type == "meta"


class WaitingSlot(HashSlot):
    """Asks the device for a number before it writes."""

    def _fill(self, value: torch.Tensor) -> None:
        if value.sum().item() != 0:
            super()._fill(value)


class MovingSlot(HashSlot):
    """Takes new memory for each write."""

    def _fill(self, value: torch.Tensor) -> None:
        self._hashes = torch.zeros_like(self._hashes)
        super()._fill(value)


@pytest.mark.usefixtures("torchs_operations")
def test_a_slot_that_waits_or_moves_is_caught() -> None:
    waiting = WaitingSlot(8, torch.device("cpu"))
    waiting.write(values(2), Facts(2))
    assert watched(waiting, 0).waits == ["_local_scalar_dense"]
    with pytest.raises(RuntimeError, match="meta"):
        WaitingSlot(8, torch.device("meta")).write(values(2).to("meta"), Facts(2))
    moving = MovingSlot(8, torch.device("cpu"))
    moving.write(values(2), Facts(2))
    memory = {moving._hashes.data_ptr(), moving.mark.data_ptr()}
    kept = moving._hashes
    assert watched(moving, 0).written != memory
    assert kept is not moving._hashes


def test_what_was_allocated_in_a_forward_pass_can_be_cleared_outside_of_it() -> None:
    with torch.inference_mode():
        target = Capacity(8, True).slot(values(2))
        refused = torch.zeros(1)
        target.write(values(2), Facts(2))
    target.mark.zero_()
    with pytest.raises(RuntimeError, match="inference"):
        refused.zero_()


# --- what is kept ----------------------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(rows=st.lists(st.integers(1, 8), min_size=1, max_size=4), dtype=st.sampled_from([torch.float32, torch.bfloat16]))
def test_each_kind_keeps_the_last_write_and_no_row_of_the_one_before(rows: list[int], dtype: torch.dtype) -> None:
    like = torch.empty(0, WIDTH, dtype=dtype)
    whole, sketched = Capacity(8, True).slot(like), Capacity(8, False).slot(like)
    hashed = Capacity(8, True).slot(like, hashes_only=True)
    for seed, count in enumerate(rows):
        value = values(count, seed).to(dtype)
        for target in (whole, sketched, hashed):
            target.write(value, Facts(8))
    truth = sketch(value)
    taken = sketched.read(rows[-1])
    assert isinstance(taken, Sketch)
    assert torch.equal(taken.hashes, truth.hashes)
    assert torch.equal(taken.projection, truth.projection)
    for target, expected in ((whole, value), (hashed, truth.hashes)):
        kept = target.read(rows[-1])
        assert isinstance(kept, torch.Tensor)
        assert torch.equal(kept, expected)
        assert kept.dtype == expected.dtype


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_read_does_not_change_with_the_next_write(kind: str) -> None:
    target = slot(kind)
    target.write(values(4, 1), Facts(4))
    read = target.read(4)
    kept = read.projection if isinstance(read, Sketch) else read
    before = kept.clone()
    target.write(values(4, 2), Facts(4))
    assert torch.equal(kept, before)
    again = target.read(4)
    assert not torch.equal(again.projection if isinstance(again, Sketch) else again, before)


@pytest.mark.parametrize("kind", KINDS)
def test_a_warm_up_may_be_longer_than_the_slot_and_a_step_may_not(kind: str) -> None:
    target = slot(kind, rows=4)
    target.write(values(9), Facts(9))
    assert target.mark[ROWS] == 9
    with pytest.raises(RuntimeError, match="a step wrote 9 rows where the batch plan's largest has 4"):
        target.read(int(target.mark[ROWS]))
    target.write(values(4), Facts(4))
    target.read(int(target.mark[ROWS]))


def test_the_mark_tells_what_was_known_of_the_write() -> None:
    target = slot("whole")
    assert target.mark.tolist() == [0] * 5, "nothing is written yet"
    target.write(values(3), Facts(6, (2, 64), True))
    mark = target.mark.tolist()
    assert [mark[place] for place in (ROWS, PADDED, FIRST, LAST, SCATTERED)] == [3, 6, 2, 64, 1]


@pytest.mark.parametrize("kind", KINDS)
def test_a_slot_holds_the_bytes_it_says(kind: str) -> None:
    target = slot(kind)
    tensors = [value for value in vars(target).values() if isinstance(value, torch.Tensor)]
    assert target.bytes == sum(tensor.nbytes for tensor in tensors) - target.mark.nbytes
    assert target.bytes == 8 * {"whole": WIDTH * 4, "sketch": 264, "hash": 8}[kind]
