"""The residual checker against every corruption of the catalogue, and the catalogue against broken checkers.

A checker that finds nothing is worth nothing unless it would have found something: each broken version here must let
corruptions escape, or the catalogue would not have noticed that break in the real one.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from workers.residual import compare as checker
from workers.residual import question as floors
from workers.residual.compare import Finding, Question, compare
from workers.residual.rows import Rows, WholeRows, rows_of
from workers.residual.taps import NoTaps, TapSet, load, site_name
from workers.residual.unshard import part

from .catalogue import (
    HIDDEN,
    LAYOUTS,
    MISSING,
    ONWARD,
    ROUNDING,
    SITES,
    SPOILS,
    STEPS,
    Layout,
    Recording,
    corruptions,
    escapes,
    lost_files,
    lost_steps,
    record,
    residual,
    sketched,
    write,
    write_control,
)

SCATTERED, REPLICATED = Layout(2, True), Layout(2, False)
WIDE = Layout(4, True)

Patcher = pytest.MonkeyPatch


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> dict[Layout, Recording]:
    root = tmp_path_factory.mktemp("recordings")
    return {layout: record(root, layout) for layout in LAYOUTS}


# --- the catalogue itself --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_the_catalogue_spoils_every_spot_that_holds_tokens(recordings: dict[Layout, Recording], layout: Layout) -> None:
    recording = recordings[layout]
    spoiled = Counter(corruption.kind for corruption in corruptions(recording))
    spots = len(STEPS) * SITES * layout.ranks
    # Ranks that hold nothing but padding can lose rows, and nothing else.
    parts = [part(tokens, layout.ranks, rank, layout.scattered) for tokens in STEPS for rank in range(layout.ranks)]
    empty = SITES * sum(not found.tokens for found in parts)
    assert spoiled["row dropped"] == spoiled[MISSING] == spots
    for kind in ("one element", ROUNDING, "not a number", "zeroed", ONWARD):
        assert spoiled[kind] == spots - empty, kind
    assert all(spoiled[kind] for kind in SPOILS if layout.scattered or kind != "whole instead of part")


# --- healthy recordings ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bitwise", [True, False], ids=["bitwise", "scored"])
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_a_healthy_recording_has_no_finding(recordings: dict[Layout, Recording], layout: Layout, bitwise: bool) -> None:
    recording = recordings[layout]
    found = compare(recording.subject, recording.control, recording.question(bitwise))
    assert (found.first_divergence, found.missing) == (None, [])
    assert (found.bitwise_equal, found.worst_score) == (True, 0.0)
    assert found.replicas_equal is (None if layout.scattered else True)
    assert (found.sites, found.steps, found.ranks, found.tokens) == (SITES, len(STEPS), layout.ranks, sum(STEPS))
    copies = 1 if layout.scattered else layout.ranks
    assert found.elements == sum(STEPS) * SITES * HIDDEN * copies


@pytest.mark.parametrize("layers", [1, 3])
def test_a_model_of_any_depth(tmp_path: Path, layers: int) -> None:
    sites = 2 * layers + 1
    subject = load(write(tmp_path / "subject", SCATTERED, layers=layers), 2)
    control = load(write(tmp_path / "control", Layout(1, False), layers=layers), 1)
    question = Question("probe", "replicated", True, True, sites, 3.0)  # type: ignore[arg-type]
    found = compare(subject, control, question)
    assert (found.sites, found.missing, found.bitwise_equal) == (sites, [], True)
    deeper = compare(subject, control, dataclasses.replace(question, sites=sites + 1))
    assert f"step 0, site {site_name(sites)}, rank 0" in deeper.missing


def test_a_copy_may_carry_padding_and_a_part_may_not(tmp_path: Path, recordings: dict[Layout, Recording]) -> None:
    padded = load(write_control(tmp_path / "padded", padded=4), 1)
    question = dataclasses.replace(recordings[REPLICATED].question(True))
    assert compare(padded, recordings[REPLICATED].control, question).bitwise_equal is True
    as_a_part = dataclasses.replace(question, scattered=True)
    assert compare(padded, recordings[REPLICATED].control, as_a_part).first_divergence is not None


# --- nothing escapes the real checker --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_no_corruption_escapes(recordings: dict[Layout, Recording], layout: Layout) -> None:
    assert escapes(compare, [recordings[layout]]) == []


@pytest.mark.slow
@pytest.mark.parametrize(("layout", "bitwise"), [(SCATTERED, True), (WIDE, False), (REPLICATED, True)], ids=str)
def test_no_corruption_escapes_where_sketches_are_all_there_is(
    recordings: dict[Layout, Recording], layout: Layout, bitwise: bool
) -> None:
    def by_sketch(subject: TapSet, control: TapSet, question: Question) -> Any:
        return compare(sketched(subject), sketched(control), question)

    # How wide the rows were a sketch does not tell: a column is missed where a rank holds nothing but padding.
    assert {escape.kind for escape in escapes(by_sketch, [recordings[layout]], bitwise)} <= {"column dropped"}


def test_a_checker_whose_sketches_are_all_the_same(recordings: dict[Layout, Recording], monkeypatch: Patcher) -> None:
    """The negative control of the above."""

    def blind(kept: Any) -> Rows:
        return WholeRows(torch.ones(len(kept.hashes) if hasattr(kept, "hashes") else len(kept), 4))

    monkeypatch.setattr("workers.residual.pair.rows_of", blind)
    assert {escape.kind for escape in escapes(compare, [recordings[SCATTERED]])} >= {"one element", ROUNDING, "zeroed"}


@pytest.mark.slow
def test_no_corruption_escapes_where_bits_may_differ(recordings: dict[Layout, Recording]) -> None:
    assert escapes(compare, [recordings[WIDE]], bitwise=False) == []


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_a_rank_whose_file_is_missing_is_named(
    recordings: dict[Layout, Recording], layout: Layout, tmp_path: Path
) -> None:
    cases = list(lost_files(recordings[layout], tmp_path))
    assert len(cases) == 2 * layout.ranks
    for rank, folder in cases:
        with pytest.raises(NoTaps, match=rf"^{rank} recorded no residual"):
            load(folder, layout.ranks)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_a_step_that_one_rank_did_not_see(recordings: dict[Layout, Recording], layout: Layout, tmp_path: Path) -> None:
    for rank in range(layout.ranks):
        for _, folder in lost_steps(recordings[layout], tmp_path, [rank]):
            with pytest.raises(NoTaps, match="different steps"):
                load(folder, layout.ranks)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_a_step_that_no_rank_saw(recordings: dict[Layout, Recording], layout: Layout, tmp_path: Path) -> None:
    recording = recordings[layout]
    for _, folder in lost_steps(recording, tmp_path, list(range(layout.ranks))):
        found = compare(load(folder, layout.ranks), recording.control, recording.question(True))
        assert len(found.missing) == 1
        assert found.missing[0].startswith("the two arms ran different steps")


def test_what_both_ran_is_compared_although_a_later_step_is_missing(
    recordings: dict[Layout, Recording], tmp_path: Path
) -> None:
    recording = recordings[SCATTERED]
    *_, (last, folder) = lost_steps(recording, tmp_path, [0, 1])
    found = compare(load(folder, 2), recording.control, recording.question(True))
    assert (found.steps, found.first_divergence) == (last, None)
    spoiled = load(folder, 2)
    spoiled.ranks[1]["0/3"][0, 0] += 1.0
    divergence = compare(spoiled, recording.control, recording.question(True)).first_divergence
    assert divergence is not None
    assert (divergence.step, divergence.site, divergence.rank) == (0, site_name(3), 1)


@pytest.mark.parametrize("gap", ["missing", "short", "nan"])
def test_a_gap_in_the_arm_compared_with_is_missing_and_no_fault_of_the_subject(
    recordings: dict[Layout, Recording], gap: str
) -> None:
    recording = recordings[SCATTERED]
    tensors = dict(recording.control.ranks[0])
    whole = tensors.pop("2/3")
    if gap == "short":
        tensors["2/3"] = whole[: STEPS[2] - 1]
    if gap == "nan":
        tensors["2/3"] = whole * torch.nan
    control = dataclasses.replace(recording.control, ranks=[tensors])
    found = compare(recording.subject, control, recording.question(True))
    assert found.missing == [f"step 2, site {site_name(3)} of the arm compared with: not complete, or not finite"]
    assert found.first_divergence is None


def test_nothing_recorded_is_missing(recordings: dict[Layout, Recording]) -> None:
    recording = recordings[SCATTERED]
    nothing = dataclasses.replace(recording.subject, tokens=[], ranks=[{}, {}])
    found = compare(nothing, recording.control, recording.question(True))
    assert found.missing == ["no step was recorded"]
    assert (found.elements, found.bitwise_equal, found.worst_score) == (0, None, None)


def test_nothing_is_compared_with_itself(recordings: dict[Layout, Recording]) -> None:
    recording = recordings[REPLICATED]
    same = dataclasses.replace(recording.control, folder=recording.subject.folder / ".." / "subject")
    with pytest.raises(ValueError, match="held against itself"):
        compare(recording.subject, same, recording.question(True))


# --- broken checkers -------------------------------------------------------------------------------------------------


def _only(monkeypatch: Patcher, keep: Any) -> None:
    """Let the checker see only the findings that ``keep`` keeps."""
    findings = checker._findings

    def some(*arguments: Any) -> Iterator[Finding]:
        return (finding for finding in findings(*arguments) if keep(finding.spot))

    monkeypatch.setattr(checker, "_findings", some)


def _hold_with(monkeypatch: Patcher, change: Any) -> None:
    """Let ``change`` spoil what the checker holds against each other."""
    hold = checker._hold

    def broken(spot: Any, found: Any, whole: Any, mine: Any, question: Any) -> Finding:
        found, whole, mine = change(spot, found, whole, mine)
        return hold(spot, found, whole, mine, question)

    monkeypatch.setattr(checker, "_hold", broken)


def test_a_checker_that_holds_a_part_against_itself(recordings: dict[Layout, Recording], monkeypatch: Patcher) -> None:
    def itself(spot: Any, found: Any, whole: Any, mine: Any) -> Any:
        copy = whole.values.clone()
        rows = found.values[: mine.tokens]
        if rows.shape == copy[mine.start : mine.stop].shape:
            copy[mine.start : mine.stop] = rows
        return found, rows_of(copy), mine

    _hold_with(monkeypatch, itself)
    kinds = {escape.kind for escape in escapes(compare, [recordings[SCATTERED]])}
    assert kinds >= {"one element", ROUNDING, "zeroed", "slice of another rank", "rows swapped", ONWARD}


@pytest.mark.parametrize("site", range(SITES))
def test_a_checker_that_skips_a_site(recordings: dict[Layout, Recording], monkeypatch: Patcher, site: int) -> None:
    _only(monkeypatch, lambda spot: spot.site != site)
    found = escapes(compare, [recordings[SCATTERED]])
    assert {escape.spot.site for escape in found} == {site}
    assert {escape.kind for escape in found} == {*SPOILS, ONWARD}


@pytest.mark.parametrize("rank", range(2))
def test_a_checker_that_ignores_a_rank(recordings: dict[Layout, Recording], monkeypatch: Patcher, rank: int) -> None:
    _only(monkeypatch, lambda spot: spot.rank != rank)
    found = escapes(compare, [recordings[SCATTERED]])
    assert {escape.spot.rank for escape in found} == {rank}


def test_a_checker_that_ignores_the_last_step(recordings: dict[Layout, Recording], monkeypatch: Patcher) -> None:
    last = len(STEPS) - 1
    _only(monkeypatch, lambda spot: spot.step != last)
    found = escapes(compare, [recordings[SCATTERED]])
    assert {escape.spot.step for escape in found} == {last}


def test_a_checker_for_which_missing_is_equal(recordings: dict[Layout, Recording], monkeypatch: Patcher) -> None:
    monkeypatch.setattr(checker, "_missing", lambda *_: [])
    found = escapes(compare, [recordings[SCATTERED]])
    assert {escape.kind for escape in found} == {MISSING}
    assert len(found) == len(recordings[SCATTERED].spots)


@pytest.mark.slow
def test_a_checker_whose_tolerance_is_huge(recordings: dict[Layout, Recording], monkeypatch: Patcher) -> None:
    monkeypatch.setattr(floors, "noise_floor", lambda *_: 1e9)
    found = escapes(compare, [recordings[WIDE]], bitwise=False)
    assert {escape.kind for escape in found} >= {"one element", "zeroed", "rows swapped", ONWARD}


def test_a_checker_that_does_not_insist_on_bit_equality(
    recordings: dict[Layout, Recording], monkeypatch: Patcher
) -> None:
    def tolerant(subject: TapSet, control: TapSet, question: Question) -> Any:
        return compare(subject, control, dataclasses.replace(question, bitwise=False))

    found = escapes(tolerant, [recordings[SCATTERED]])
    assert {escape.kind for escape in found} == {ROUNDING}


def test_a_checker_that_compares_the_first_row_alone(recordings: dict[Layout, Recording], monkeypatch: Patcher) -> None:
    def first_row(spot: Any, found: Any, whole: Any, mine: Any) -> Any:
        return found, whole, dataclasses.replace(mine, stop=min(mine.stop, mine.start + 1))

    _hold_with(monkeypatch, first_row)
    kinds = {escape.kind for escape in escapes(compare, [recordings[SCATTERED]])}
    assert kinds >= {"one element", ROUNDING, "not a number", ONWARD}


def test_a_checker_that_does_not_look_at_sizes(recordings: dict[Layout, Recording], monkeypatch: Patcher) -> None:
    monkeypatch.setattr(checker, "_fits", lambda found, mine, scattered: len(found) >= mine.tokens)
    found = escapes(compare, [recordings[SCATTERED]])
    assert {escape.kind for escape in found} == {"whole instead of part", "row dropped"}


@pytest.mark.slow
def test_a_checker_that_takes_what_is_no_number_for_right(
    recordings: dict[Layout, Recording], monkeypatch: Patcher
) -> None:
    hold = checker._hold

    def lenient(*arguments: Any) -> Finding:
        found = hold(*arguments)
        return dataclasses.replace(found, score=0.0) if found.score is None and not found.problem else found

    monkeypatch.setattr(checker, "_hold", lenient)
    found = escapes(compare, [recordings[WIDE]], bitwise=False)
    assert {escape.kind for escape in found} == {"not a number", "slice of another rank"}


def test_a_checker_that_names_the_last_fault_and_not_the_first(
    recordings: dict[Layout, Recording], monkeypatch: Patcher
) -> None:
    findings = checker._findings
    monkeypatch.setattr(checker, "_findings", lambda *arguments: reversed(list(findings(*arguments))))
    found = escapes(compare, [recordings[SCATTERED]])
    assert {escape.kind for escape in found} == {ONWARD}


# --- rounding --------------------------------------------------------------------------------------------------------


def summed(step: int, site: int, order: list[int], magnify: float, dtype: torch.dtype) -> torch.Tensor:
    """A residual to which each site has added four ranks' partial sums in ``order``, its rounding times ``magnify``."""

    def total(order: list[int]) -> torch.Tensor:
        reached = residual(step, 0).to(dtype)
        for place in range(1, site + 1):
            draw = torch.Generator().manual_seed(7000 + 100 * step + place)
            terms = torch.randn(4, STEPS[step], HIDDEN, generator=draw).to(dtype)
            added = terms[order[0]]
            for rank in order[1:]:
                added = added + terms[rank]
            reached = reached + added
        return reached

    straight = total([0, 1, 2, 3]).double()
    return (straight + magnify * (total(order).double() - straight)).to(dtype)


def rounded(folder: Path, layout: Layout, magnify: float, dtype: torch.dtype, bitwise: bool) -> Any:
    def whole(step: int, site: int) -> torch.Tensor:
        return summed(step, site, [3, 1, 2, 0], magnify, dtype)

    def straight(step: int, site: int) -> torch.Tensor:
        return summed(step, site, [0, 1, 2, 3], 0.0, dtype)

    subject = load(write(folder / "subject", layout, whole), layout.ranks)
    control = load(write_control(folder / "control", whole=straight), 1)
    return compare(subject, control, Recording(layout, subject, control).question(bitwise))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("layout", [WIDE, Layout(4, False)], ids=str)
def test_rounding_passes_where_bits_may_differ(tmp_path: Path, layout: Layout, dtype: torch.dtype) -> None:
    found = rounded(tmp_path, layout, 1.0, dtype, bitwise=False)
    assert found.bitwise_equal is False
    assert 0.0 < found.worst_score <= 3.0
    assert (found.first_divergence, found.missing) == (None, [])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("layout", [WIDE, Layout(4, False)], ids=str)
def test_an_error_a_hundred_times_larger_fails(tmp_path: Path, layout: Layout, dtype: torch.dtype) -> None:
    found = rounded(tmp_path, layout, 100.0, dtype, bitwise=False)
    assert found.worst_score > 3.0
    assert found.first_divergence is not None
    assert found.first_divergence.pattern == "values"
    assert 3.0 < found.first_divergence.score <= found.worst_score


def test_rounding_fails_where_bit_equality_is_owed(tmp_path: Path) -> None:
    found = rounded(tmp_path, SCATTERED, 1.0, torch.float32, bitwise=True)
    assert found.first_divergence is not None
    assert found.first_divergence.score <= 3.0


def test_copies_that_differ_by_rounding_alone_are_told_apart(tmp_path: Path) -> None:
    layout = Layout(4, False)
    subject = load(write(tmp_path / "subject", layout), 4)
    control = load(write_control(tmp_path / "control"), 1)
    spot = subject.ranks[2]["1/4"]
    subject.ranks[2]["1/4"] = torch.nextafter(spot, torch.tensor(torch.inf))
    found = compare(subject, control, Recording(layout, subject, control).question(bitwise=False))
    assert found.worst_score is not None
    assert 0.0 < found.worst_score <= 3.0
    # Four ranks may each add up in an order of their own; two have one order only.
    assert (found.replicas_equal, found.first_divergence) == (False, None)
    pair = dataclasses.replace(subject, ranks=[subject.ranks[0], subject.ranks[2]])
    divergence = compare(pair, control, Recording(REPLICATED, pair, control).question(bitwise=False)).first_divergence
    assert divergence is not None
    place = (divergence.step, divergence.site, divergence.rank)
    assert (place, divergence.pattern) == ((1, site_name(4), 1), "replicas-differ")
