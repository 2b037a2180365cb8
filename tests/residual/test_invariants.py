"""Each invariant beside a recording in which it alone is broken: that one finds it, and no other does."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from workers.protocol import INVARIANTS, Invariant, Role, Shape
from workers.residual.boundary import first_sites_after
from workers.residual.invariants import CHECKS, Arm, invariants
from workers.residual.layout import whole_places
from workers.residual.question import Question
from workers.residual.sketch import sketch
from workers.residual.taps import Step, TapSet
from workers.residual.unshard import part

TP, STAGES, LAYERS, HIDDEN = 2, 2, 4, 32
SITES = 2 * LAYERS + 1
THRESHOLD = 4
TOKENS = [7, 3, 8]
STEPS = [
    Step(7, 8, ((0, 0, 7),), believed=True, compile_range=(4, 16)),
    Step(3, 4, ((1, 0, 3),), believed=True, compile_range=(4, 16)),
    Step(8, 8, ((2, 0, 8),), believed=True, compile_range=(4, 16)),
]
BELOW = Step(2, 2, ((3, 0, 2),), believed=False, compile_range=(1, 3))
"""A step that SP does not rewrite, in an engine whose runner knows of the threshold."""

ALL_STEPS = [*STEPS, BELOW]
END = first_sites_after(LAYERS, STAGES)[0]


def residual(step: int, site: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(100 * step + site)
    return torch.randn(ALL_STEPS[step].tokens, HIDDEN, generator=draw)


def held(step: int, site: int, rank: int) -> torch.Tensor:
    """What a rank holds: its part, or all below the threshold. Padding is zeros."""
    mine = part(ALL_STEPS[step].tokens, TP, rank, step < len(STEPS), ALL_STEPS[step].padded)
    rows = torch.zeros(mine.rows, HIDDEN)
    rows[: mine.tokens] = residual(step, site)[mine.start : mine.stop]
    return rows


def shape(**fields: Any) -> Shape:
    resolved: dict[str, Any] = {
        "tensor_parallel_size": TP, "pipeline_parallel_size": STAGES, "layers": LAYERS, "hidden_size": HIDDEN,
        "dtype": "float32", "sequence_parallelism": True, "full_graph": True, "compiled": True,
        "sp_min_token_num": THRESHOLD,
    }  # fmt: skip
    return Shape(**(resolved | fields))


def graph(stage: int, first: int, last: int, structure: str) -> dict[str, Any]:
    """The last all-reduce of the first stage goes to the second one and not to a norm."""
    before, rewritable = (5, 4) if stage == 0 else (4, 4)
    done = rewritable if first >= THRESHOLD else 0
    return {
        "compile_range": [first, last], "applicable": first >= THRESHOLD, "all_reduce_before": before,
        "rewritable": rewritable, "all_reduce_after": before - done, "reduce_scatter_after": done,
        "all_gather_after": done, "claimed": done, "structure": structure,
    }  # fmt: skip


def told(rank: int) -> dict[str, Any]:
    stage = rank // TP
    graphs = [graph(stage, 1, 3, f"low {stage}"), graph(stage, 4, 16, f"high {stage}")]
    return {"rank": rank, "census": graphs, "norms": {f"layers.{stage}.norm.weight": f"bits {stage}"}}


def crossings(rank: int) -> dict[str, torch.Tensor]:
    """The first stage sends its part of the residual; the runner gives the second one all of it."""
    found = {}
    for step, known in enumerate(ALL_STEPS):
        sent, mlp = held(step, END - 1, rank), torch.zeros(known.padded, HIDDEN)
        mlp[: known.tokens] = residual(step, END) - residual(step, END - 1)
        found[f"{step}/0/sent/residual"] = sent
        found[f"{step}/0/sent/hidden_states"] = mlp
        parts = [held(step, END - 1, other) for other in range(TP)]
        found[f"{step}/0/received/residual"] = torch.cat(parts) if step < len(STEPS) else sent.clone()
        found[f"{step}/0/received/hidden_states"] = mlp.clone()
    return found


def together(step: int) -> torch.Tensor:
    """Site ``END`` as it is computed from what crosses: the sum is rounded."""
    return (residual(step, END) - residual(step, END - 1)) + residual(step, END - 1)


def whole(step: int, site: int) -> torch.Tensor:
    return together(step) if site == END else residual(step, site)


def arm(kept_whole: bool = True, **fields: Any) -> Arm:
    """A healthy engine of two stages of two ranks under SP, and the replicated arm beside it."""
    numbers = [f"{step}/{site}" for step in range(len(ALL_STEPS)) for site in range(SITES)]
    ranks = [{key: _of(key, rank) for key in numbers} for rank in range(TP)]
    control = {key: whole(*map(int, key.split("/"))) for key in numbers}
    if not kept_whole:
        ranks = [{key: sketch(rows) for key, rows in tensors.items()} for tensors in ranks]
        control = {key: sketch(rows) for key, rows in control.items()}
    tokens = [step.tokens for step in ALL_STEPS]
    gathered = {
        f"{step}/{stage}/{n}": sketch(residual(step, n)).hashes
        for step in range(len(ALL_STEPS))
        for stage in range(STAGES)
        for n in range(2)
    }
    taps = TapSet(
        Path("probe"), tokens, ranks, list(ALL_STEPS), [dict(gathered) for _ in range(TP)],
        [crossings(rank) for rank in range(TP)],
    )  # fmt: skip
    found = [told(rank) for rank in range(TP * STAGES)]
    places = whole_places(shape(), ALL_STEPS, [found[0]["census"], found[TP]["census"]], SITES)
    question = Question(Role.PROBE, Role.REPLICATED, True, True, SITES, 3.0, whole=places, dtype=torch.float32)
    healthy: dict[str, Any] = {
        "role": Role.PROBE, "taps": taps, "ranks": found, "shape": shape(), "question": question,
        "control": TapSet(Path("replicated"), tokens, [control], list(ALL_STEPS)),
    }  # fmt: skip
    return Arm(**(healthy | fields))


def _of(key: str, rank: int) -> torch.Tensor:
    step, site = map(int, key.split("/"))
    rows = held(step, site, rank)
    if site == END:
        mine = part(ALL_STEPS[step].tokens, TP, rank, step < len(STEPS), ALL_STEPS[step].padded)
        rows[: mine.tokens] = together(step)[mine.start : mine.stop]
    return rows


def answers(scene: Arm) -> dict[str, bool | None]:
    return {item.name: item.held for item in invariants(scene)}


def one(scene: Arm, name: str) -> Invariant:
    return CHECKS[name](scene)


# --- healthy ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept_whole", [True, False], ids=["whole", "sketches"])
def test_a_healthy_arm_holds_them_all(kept_whole: bool) -> None:
    found = invariants(arm(kept_whole))
    assert [(item.name, item.held) for item in found] == [(name, True) for name in INVARIANTS], found
    assert all(item.checked and item.arm is Role.PROBE for item in found)


def test_the_registry_has_every_invariant_once_and_in_order() -> None:
    assert tuple(CHECKS) == INVARIANTS
    assert [check(arm()).name for check in CHECKS.values()] == list(INVARIANTS)


# --- one broken at a time --------------------------------------------------------------------------------------------

Break = Callable[[Arm], Arm | None]
"""Breaks the arm in place, or gives another one."""


def rows_lost(scene: Arm) -> None:
    """A row of padding alone: the tokens are all there."""
    scene.taps.ranks[1]["0/3"] = scene.taps.ranks[1]["0/3"][:-1]  # type: ignore[index]


def tokens_swapped(scene: Arm) -> None:
    kept = scene.taps.ranks[0]["2/3"]
    scene.taps.ranks[0]["2/3"] = kept[[1, 0, 2, 3]]  # type: ignore[index]


def one_bit_of_a_copy(scene: Arm) -> None:
    kept = scene.taps.ranks[1]["3/2"]
    scene.taps.ranks[1]["3/2"] = torch.nextafter(kept, torch.tensor(torch.inf))  # type: ignore[arg-type]


def scattered_below_the_threshold(scene: Arm) -> Arm:
    """The graphs, the runner and the recording agree: only the threshold says that it should not be so."""
    step = dataclasses.replace(BELOW, believed=True)
    taps = dataclasses.replace(scene.taps, steps=[*STEPS, step])
    for rank in range(TP):
        for site in range(SITES):
            taps.ranks[rank][f"3/{site}"] = whole(3, site)[rank : rank + 1]
    question = dataclasses.replace(scene.question, whole=frozenset())
    return dataclasses.replace(scene, taps=taps, question=question)


def another_activation(scene: Arm) -> None:
    scene.taps.gathered[1]["1/1/0"] = scene.taps.gathered[1]["1/1/0"] ^ 1


def another_weight(scene: Arm) -> None:
    scene.ranks[3]["norms"]["layers.1.norm.weight"] = "other bits"


def another_belief(scene: Arm) -> Arm:
    steps = [dataclasses.replace(ALL_STEPS[0], believed=False), *ALL_STEPS[1:]]
    return dataclasses.replace(scene, taps=dataclasses.replace(scene.taps, steps=steps))


def another_graph(scene: Arm) -> None:
    scene.ranks[1]["census"][1]["structure"] = "other"


def one_left_out(scene: Arm) -> None:
    for rank in range(TP):
        entry = scene.ranks[rank]["census"][1]
        entry |= {"all_reduce_after": 2, "reduce_scatter_after": 3, "all_gather_after": 3, "claimed": 3}


def lost_on_the_way(scene: Arm) -> None:
    scene.taps.boundary[0]["2/0/received/hidden_states"][0, 0] += 1


BROKEN: dict[str, tuple[Break, str]] = {
    "shards-complete": (rows_lost, r"step 0, site 1.attn: parts of [4, 3] rows by rank where 8 in equal parts belong"),
    "token-order": (tokens_swapped, "step 2, site 1.attn, rank 0: rows of other tokens at request 2, positions 0 to 1"),
    "replicas-equal": (one_bit_of_a_copy, "step 3, site 0.mlp, rank 1: not the copy that rank 0 holds (2 of 2 tokens"),
    "below-threshold-replicated": (
        scattered_below_the_threshold,
        "step 3, site embed, rank 0: 1 rows of 2 tokens, below the threshold of 4",
    ),
    "gathered-equal": (
        another_activation,
        "step 1, gather 0: rank 1 has other rows than rank 0 (request 1, ",
    ),
    "norm-weights-equal": (
        another_weight,
        "layers.1.norm.weight on rank 1 of stage 1: not the weights that rank",
    ),
    "runner-belief": (another_belief, "step 0 (7 tokens): the runner takes the residual for whole and it is scattered"),
    "graphs-equal": (
        another_graph,
        "tokens 4 to 16 of stage 0: rank 1 compiled ['other'] where rank 0 compiled [",
    ),
    "collectives": (
        one_left_out,
        "rank 0, tokens 4 to 16, graph 0: 5 all-reduces before the pass, 4 of them to be rewritten, 2 after it; "
        "3 reduce-scatters, 3 gathers; the pass claims 3",
    ),
    "boundary": (lost_on_the_way, "step 2, from stage 0, rank 0: hidden_states is not received as it was sent (8 rows"),
}


def test_each_invariant_has_a_recording_that_breaks_it() -> None:
    assert tuple(BROKEN) == INVARIANTS


@pytest.mark.parametrize(("name", "spoil", "words"), [(name, *broken) for name, broken in BROKEN.items()], ids=BROKEN)
def test_what_breaks_one_is_found_by_it_and_by_no_other(name: str, spoil: Break, words: str) -> None:
    scene = arm()
    broken = spoil(scene) or scene
    assert [found for found, held in answers(broken).items() if held is False] == [name]
    assert one(broken, name).detail.startswith(words)


@pytest.mark.parametrize("name", INVARIANTS)
def test_without_that_invariant_the_break_escapes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(CHECKS, name)
    scene = arm()
    broken = BROKEN[name][0](scene) or scene
    assert False not in answers(broken).values()


def test_ranks_that_hold_requests_in_another_order_are_named() -> None:
    scene = arm()
    order = [step.requests for step in ALL_STEPS]
    number = len(order) - 1
    turned = [*order[:-1], tuple((request + 1, first, count) for request, first, count in order[-1])]
    same = dataclasses.replace(scene, taps=dataclasses.replace(scene.taps, orders=[order] * 4))
    other = dataclasses.replace(scene, taps=dataclasses.replace(scene.taps, orders=[order, order, turned, order]))
    assert one(same, "token-order").held is True
    found = one(other, "token-order")
    assert found.held is False
    assert f"step {number}: process 2 holds requests" in found.detail
    assert {name for name, held in answers(other).items() if held is False} == {"token-order"}


# --- nothing to look at is never a pass ------------------------------------------------------------------------------


def test_an_arm_that_recorded_nothing_holds_nothing() -> None:
    nothing = TapSet(Path("probe"), [], [{} for _ in range(TP)], [], [{} for _ in range(TP)], [{} for _ in range(TP)])
    bare = [{"rank": rank, "census": []} for rank in range(TP * STAGES)]
    found = invariants(arm(taps=nothing, ranks=bare))
    assert {item.held for item in found} == {None}
    assert all(item.detail and not item.checked for item in found)


@pytest.mark.parametrize(
    ("name", "fields", "why"),
    [
        ("token-order", {"control": None}, "no other arm"),
        ("below-threshold-replicated", {"shape": shape(sp_min_token_num=None)}, "has no threshold"),
        ("below-threshold-replicated", {"shape": shape(sp_min_token_num=2)}, "no step has fewer tokens"),
        ("replicas-equal", {"shape": shape(tensor_parallel_size=4)}, "4 ranks may each add up in an order"),
        ("boundary", {"shape": shape(pipeline_parallel_size=1)}, "one pipeline stage"),
    ],
)
def test_what_cannot_be_checked_says_why(name: str, fields: dict[str, Any], why: str) -> None:
    found = one(arm(**fields), name)
    assert (found.held, found.checked) == (None, 0)
    assert why in found.detail


# --- the fine print of each ------------------------------------------------------------------------------------------


def test_wrong_numbers_are_no_disorder() -> None:
    """Token order is about whose row it is: what is doubled, zero or not a number is found by the comparison."""
    for spoiled in (lambda rows: rows * 2, torch.zeros_like, lambda rows: rows * torch.nan, lambda rows: rows + 0.5):
        scene = arm()
        scene.taps.ranks[0]["2/3"] = spoiled(scene.taps.ranks[0]["2/3"])
        assert one(scene, "token-order").held is True


@pytest.mark.parametrize("kept_whole", [True, False], ids=["whole", "sketches"])
def test_tokens_out_of_order_are_seen_through_rounding(kept_whole: bool) -> None:
    """On four ranks nothing is equal to the bit, and each row is still nearest to its own token."""
    asked = dataclasses.replace(arm().question, bitwise=False)
    scene = arm(question=asked)
    for rank in range(TP):
        for key, rows in scene.taps.ranks[rank].items():
            noise = torch.randn(rows.shape, generator=torch.Generator().manual_seed(len(key)))  # type: ignore[union-attr]
            scene.taps.ranks[rank][key] = rows * (1 + 1e-6 * noise)  # type: ignore[operator]
    spoiled = arm(question=asked, taps=dataclasses.replace(scene.taps, ranks=[dict(r) for r in scene.taps.ranks]))
    tokens_swapped(spoiled)
    for arms in (scene, spoiled):
        if not kept_whole:
            kept = [{key: sketch(rows) for key, rows in tensors.items()} for tensors in arms.taps.ranks]  # type: ignore[arg-type]
            whole_kept = {key: sketch(rows) for key, rows in arms.control.ranks[0].items()}  # type: ignore[arg-type, union-attr]
            arms.taps.ranks[:] = kept
            arms.control.ranks[:] = [whole_kept]  # type: ignore[union-attr]
    assert (one(scene, "token-order").held, one(spoiled, "token-order").held) == (True, False)


def test_equal_tokens_may_stand_for_each_other() -> None:
    scene = arm()
    for taps in (scene.taps, scene.control):
        assert taps is not None
        taps.ranks[0]["2/0"][1] = taps.ranks[0]["2/0"][0]  # type: ignore[index]
    assert one(scene, "token-order").held is True


def test_a_single_token_below_the_threshold_is_padded_on_every_rank() -> None:
    """One row is as many as there are tokens, and no more than a part of the padded step."""
    single = Step(1, 2, ((3, 0, 1),), compile_range=(1, 3))
    for rows, held in ((2, True), (1, False)):
        scene = arm()
        taps = dataclasses.replace(scene.taps, steps=[*STEPS, single], tokens=[*TOKENS, 1])
        for rank in range(TP):
            taps.ranks[rank].update({f"3/{site}": residual(3, site)[:rows] for site in range(SITES)})
        assert one(dataclasses.replace(scene, taps=taps), "below-threshold-replicated").held is held


def test_sums_on_more_than_two_ranks_need_not_agree_to_the_bit_and_gathers_do() -> None:
    wide = shape(tensor_parallel_size=4)
    below, above = arm(shape=wide), arm(shape=wide)
    below.taps.gathered[1]["3/0/0"] = below.taps.gathered[1]["3/0/0"] + 1
    above.taps.gathered[1]["0/0/0"] = above.taps.gathered[1]["0/0/0"] + 1
    assert one(below, "gathered-equal").held is True
    assert one(above, "gathered-equal").held is False
    assert one(dataclasses.replace(below, shape=shape()), "gathered-equal").held is False


def test_a_gather_that_one_rank_did_not_take_part_in() -> None:
    scene = arm()
    del scene.taps.gathered[1]["2/1/1"]
    assert one(scene, "gathered-equal").detail == "step 2, gather 1: rank 1 did not take part"


@pytest.mark.parametrize(("stages", "held"), [(1, True), (2, False)])
def test_a_belief_nobody_acts_on_is_a_remark(stages: int, held: bool) -> None:
    """vLLM's runner knows of no threshold: it takes every step of an SP engine for scattered."""
    steps = [*STEPS, dataclasses.replace(BELOW, believed=True)]
    scene = arm(shape=shape(pipeline_parallel_size=stages))
    found = one(dataclasses.replace(scene, taps=dataclasses.replace(scene.taps, steps=steps)), "runner-belief")
    assert found.held is held
    assert ("in 1 steps it takes for scattered what is whole" in found.detail) is held


def test_collectives_that_were_fused_into_products_since() -> None:
    scene = arm()
    for rank in scene.ranks:
        rank["census"][1] |= {"reduce_scatter_after": 1, "all_gather_after": 0}
    assert one(scene, "collectives").held is False
    assert one(dataclasses.replace(scene, fused=True), "collectives").held is True
    scene.ranks[0]["census"][1]["reduce_scatter_after"] = 5
    assert one(dataclasses.replace(scene, fused=True), "collectives").held is False


@pytest.mark.parametrize(
    "entry", [{"claimed": 3}, {"all_gather_after": 3}, {"reduce_scatter_after": 5}, {"all_reduce_after": 0}], ids=str
)
def test_counts_that_do_not_add_up(entry: dict[str, int]) -> None:
    scene = arm()
    scene.ranks[0]["census"][1] |= entry
    assert one(scene, "collectives").held is False


def test_a_graph_that_should_not_be_rewritten_and_was() -> None:
    scene = arm()
    scene.ranks[0]["census"][0] |= {
        "all_reduce_after": 4,
        "reduce_scatter_after": 1,
        "all_gather_after": 1,
        "claimed": 1,
    }
    assert one(scene, "collectives").held is False


# --- pipeline stages -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layers", "stages", "sites"),
    [(4, 2, [4]), (2, 2, [2]), (5, 2, [6]), (6, 4, [2, 6, 10]), (7, 3, [4, 10]), (8, 4, [4, 8, 12]), (3, 1, [])],
)
def test_where_stages_begin(layers: int, stages: int, sites: list[int]) -> None:
    assert first_sites_after(layers, stages) == sites


def test_where_stages_begin_is_what_the_engine_says() -> None:
    distributed = pytest.importorskip("vllm.distributed.utils")
    for layers in range(1, 20):
        for stages in range(1, layers + 1):
            starts = [2 * distributed.get_pp_indices(layers, stage, stages)[0] for stage in range(1, stages)]
            assert first_sites_after(layers, stages) == starts, (layers, stages)


CROSSINGS: dict[str, tuple[Callable[[dict[str, torch.Tensor]], Any], str]] = {
    "not received": (lambda kept: kept.pop("0/0/received/residual"), "residual was sent and not received"),
    "not sent": (lambda kept: kept.pop("0/0/sent/hidden_states"), "hidden_states was received and not sent"),
    "too short": (lambda kept: kept.update({"2/0/received/residual": kept["2/0/received/residual"][:5]}),
                  "residual is not received as it was sent (8 rows sent, 5 received)"),
    "the residual itself wrong": (lambda kept: _both(kept, "2/0/{}/residual", 1e-3),
                                  "the residual sent: not the residual of site"),
    "hidden states wrong": (lambda kept: _both(kept, "2/0/{}/hidden_states", 1e-3),
                            "hidden states and residual together: not the residual of site 1.mlp"),
}  # fmt: skip


def _both(kept: dict[str, torch.Tensor], key: str, error: float) -> None:
    """What is sent is wrong, and received as it was sent."""
    for end in ("sent", "received"):
        kept[key.format(end)][:4] += error


@pytest.mark.parametrize("kept_whole", [True, False], ids=["whole", "sketches"])
@pytest.mark.parametrize(("spoil", "words"), CROSSINGS.values(), ids=CROSSINGS)
def test_a_crossing_that_went_wrong(spoil: Callable[[Any], Any], words: str, kept_whole: bool) -> None:
    scene = arm(kept_whole)
    spoil(scene.taps.boundary[0])
    found = one(scene, "boundary")
    assert found.held is False
    assert words in found.detail


def test_padding_that_crosses_is_not_looked_at() -> None:
    scene = arm()
    for rank in range(TP):
        scene.taps.boundary[rank]["0/0/received/hidden_states"][7] = torch.nan
    assert one(scene, "boundary").held is True


def test_of_one_token_the_last_rank_sends_padding_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = [dataclasses.replace(ALL_STEPS[0], tokens=1, padded=TP, scattered=dict.fromkeys(range(SITES), True))]
    for name in ("STEPS", "ALL_STEPS"):
        monkeypatch.setitem(globals(), name, alone)
    scene = arm()
    assert one(scene, "boundary").held is True
    scene.taps.boundary[0]["0/0/sent/residual"][0, 0] += 1
    assert one(scene, "boundary").held is False


@pytest.mark.parametrize(("error", "held"), [(1e-7, True), (1e-3, False)])
def test_where_bits_may_differ_a_crossing_may_too(error: float, held: bool) -> None:
    scene = arm(question=dataclasses.replace(arm().question, bitwise=False))
    for rank in range(TP):
        for step in range(len(ALL_STEPS)):
            for end in ("sent", "received"):
                scene.taps.boundary[rank][f"{step}/0/{end}/residual"] *= 1 + error
    assert one(scene, "boundary").held is held
