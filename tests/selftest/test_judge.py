"""The checker as the self-test asks it: what is found, by which check, and what a weaker one would have missed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from workers.probes.recorder import Position, Recorder
from workers.probes.slots import Capacity
from workers.protocol import Fault
from workers.selftest.__main__ import ENDED, is_placed
from workers.selftest.catalogue import CLEAN, RANKS, RESIDUAL, SITES, SP, Entry, catalogue
from workers.selftest.engines import engines
from workers.selftest.judge import BITS, COMPLETENESS, ROWS, Finding, Recording, judge

STEPS, HIDDEN = (16, 13), 8
REPLICATED_ENGINE, SP_ENGINE = engines(catalogue(quick=True)).values()

Change = Callable[[int, int, int, torch.Tensor], torch.Tensor | None]
"""(step, site, rank, what the rank holds) → what is recorded."""


def as_it_is(step: int, site: int, rank: int, value: torch.Tensor) -> torch.Tensor | None:
    return value


def whole(step: int, site: int) -> torch.Tensor:
    rows = STEPS[step] + STEPS[step] % RANKS
    return torch.randn(rows, HIDDEN, generator=torch.Generator().manual_seed(10 * step + site))


def record(folder: Path, scattered: bool, change: Change = as_it_is, norm: str = "same") -> Recording:
    """Recordings of both ranks, and what each told of itself."""
    folder.mkdir()
    for rank in range(RANKS):
        recorder = Recorder(Capacity(STEPS[0] + RANKS, True))
        recorder.position, recorder.enabled = Position(tp_rank=rank), True
        for step, tokens in enumerate(STEPS):
            recorder.begin(tokens)
            recorder.forward(len(whole(step, 0)))
            for site in range(SITES):
                value = whole(step, site).chunk(RANKS)[rank] if scattered else whole(step, site)
                changed = change(step, site, rank, value)
                if changed is not None:
                    recorder.record(changed, site, SITES, CLEAN, scattered)
            found = recorder.end()
            assert found is not None
            found.believed = scattered
        recorder.save(folder, rank)
    told = [_told(rank, scattered, norm if rank else "same") for rank in range(RANKS)]
    (folder / "result.json").write_text(json.dumps({"ranks": told}))
    return Recording(SP_ENGINE if scattered else REPLICATED_ENGINE, folder)


def _told(rank: int, scattered: bool, norm: str) -> dict[str, Any]:
    rewritten = SITES if scattered else 0
    graph = {
        "compile_range": CLEAN,
        "applicable": scattered,
        "all_reduce_before": SITES,
        "rewritable": SITES,
        "all_reduce_after": SITES - rewritten,
        "reduce_scatter_after": rewritten,
        "all_gather_after": rewritten,
        "claimed": rewritten if scattered else None,
        "structure": "same",
        "scattered": [scattered] * SITES,
    }
    return {"rank": rank, "census": [graph], "norms": {"norm.weight": norm}}


@pytest.fixture
def control(tmp_path: Path) -> Recording:
    return record(tmp_path / "control", False)


def spoil(site: int, rank: int, change: Callable[[torch.Tensor], torch.Tensor]) -> Change:
    return lambda step, at, on, value: change(value.clone()) if (at, on) == (site, rank) else value


def test_nothing_is_found_where_nothing_is_wrong(tmp_path: Path, control: Recording) -> None:
    assert judge(record(tmp_path / "sp", True), control).by == frozenset()


def test_one_bit_is_found_and_a_checker_without_bit_equality_misses_it(tmp_path: Path, control: Recording) -> None:
    one_ulp = spoil(3, 1, lambda value: torch.nextafter(value, value + 1))
    finding = judge(record(tmp_path / "sp", True, one_ulp), control)
    assert finding.by == {RESIDUAL}
    assert finding.seen is not None
    assert (finding.seen.site, finding.seen.rank) == ("1.attn", 1)
    assert finding.without == {BITS: False, COMPLETENESS: True, ROWS: True}
    entry = Entry(SP, Fault(kind="any", site=3, rank=1), RESIDUAL, 3, frozenset({1}))
    assert is_placed(entry, finding)
    assert not is_placed(Entry(SP, entry.fault, RESIDUAL, 3, frozenset({0})), finding)
    assert not is_placed(Entry(SP, entry.fault, RESIDUAL, 2, frozenset({1})), finding)
    assert not is_placed(Entry(SP, entry.fault, "boundary"), finding)


def test_a_missing_rank_is_found(tmp_path: Path, control: Recording) -> None:
    recording = record(tmp_path / "sp", True)
    (recording.folder / "taps-rank1.safetensors").unlink()
    finding = judge(recording, control)
    assert finding.by == {RESIDUAL}
    assert finding.without[COMPLETENESS] is False


def test_rows_that_are_missing_are_found(tmp_path: Path, control: Recording) -> None:
    finding = judge(record(tmp_path / "sp", True, spoil(0, 0, lambda value: value[:-1])), control)
    assert RESIDUAL in finding.by
    assert finding.without[ROWS] is False


def test_another_weight_on_one_rank_is_found_by_an_invariant(tmp_path: Path, control: Recording) -> None:
    finding = judge(record(tmp_path / "sp", True, norm="other"), control)
    assert finding.by == {"norm-weights-equal"}
    assert any("norm.weight" in detail for detail in finding.details)


def test_a_fault_of_the_control_is_found(tmp_path: Path) -> None:
    wrong = spoil(SITES - 1, 1, lambda value: torch.nextafter(value, value + 1))
    control = record(tmp_path / "control", False, wrong)
    assert judge(record(tmp_path / "sp", True), control).by == {"replicas-equal"}


def test_rounding_is_no_alarm_where_bits_may_differ(tmp_path: Path, control: Recording) -> None:
    rounded = [
        record(tmp_path / f"noise-{seed}", False, lambda step, site, rank, value: value * (1 + 2**-22))
        for seed in range(2)
    ]
    subject = record(tmp_path / "sp", True, lambda step, site, rank, value: value * (1 - 2**-22))
    assert judge(subject, control, tuple(rounded)).by == frozenset()
    assert judge(subject, control).by == {RESIDUAL}
    wrong = record(tmp_path / "wrong", True, lambda step, site, rank, value: value * (1 - 2**-16))
    assert judge(wrong, control, tuple(rounded)).by == {RESIDUAL}


def test_an_engine_that_did_not_come_through_has_shown_its_fault() -> None:
    assert is_placed(catalogue(quick=False)[-1], Finding(frozenset({ENDED}), None))
