"""Requests fitted to a configuration: every size that can go wrong is a step of its own, and all of it can be run."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.batch import problems, resolve, sizes
from workers.protocol import BatchPlan, Problem, Shape

SMALL: dict[str, Any] = {
    "tensor_parallel_size": 2,
    "pipeline_parallel_size": 1,
    "layers": 2,
    "hidden_size": 128,
    "dtype": "float32",
    "sequence_parallelism": True,
    "full_graph": True,
    "compiled": True,
    "sp_min_token_num": 8,
    "compile_ranges": [(1, 7), (8, 64)],
    "max_num_batched_tokens": 64,
    "max_model_len": 512,
    "max_num_seqs": 8,
    "chunked_prefill": True,
    "kv_tokens": 4096,
    "block_size": 16,
}


def shape(**fields: Any) -> Shape:
    return Shape(**(SMALL | fields))


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    """Resolved configurations, tight ones among them. A batch holds at least as many tokens as requests, as in vLLM."""
    seqs = draw(st.integers(1, 600))
    batch = draw(st.integers(seqs, 9000))
    ends = sorted({*draw(st.lists(st.integers(1, batch), max_size=4)), batch})
    return shape(
        tensor_parallel_size=draw(st.integers(1, 8)),
        pipeline_parallel_size=draw(st.integers(1, 2)),
        sp_min_token_num=draw(st.none() | st.integers(1, batch + 10)),
        compile_ranges=list(zip([1, *(end + 1 for end in ends)], ends, strict=False)),
        max_num_batched_tokens=batch,
        max_model_len=draw(st.integers(5, 20_000)),
        max_num_seqs=seqs,
        chunked_prefill=draw(st.booleans()),
        kv_tokens=draw(st.none() | st.integers(512, 200_000)),
        block_size=draw(st.sampled_from([None, 16, 128])),
    )


def prefills(plan: BatchPlan) -> list[int]:
    return [sum(wave) for wave in plan.waves]


def found(batch: dict[str, Any], **fields: Any) -> list[Problem]:
    resolved = shape(**fields)
    return problems(resolve(batch, resolved), resolved)


# --- what is chosen --------------------------------------------------------------------------------------------------


@given(shapes())
def test_every_plan_that_is_chosen_can_be_run(resolved: Shape) -> None:
    plan = resolve({}, resolved)
    assert problems(plan, resolved) == []
    assert plan == resolve({}, resolved)
    assert BatchPlan.model_validate(plan.model_dump()) == plan


@given(shapes())
def test_every_size_that_fits_is_a_step_of_its_own(resolved: Shape) -> None:
    plan = resolve({}, resolved)
    steps = prefills(plan)
    ranks, threshold = resolved.tensor_parallel_size, resolved.sp_min_token_num
    ends = {size for first, last in resolved.compile_ranges for size in (first, last, last + 1, last // ranks * ranks)}
    below = 0 if threshold is None else (threshold - 1) // ranks * ranks
    around = set() if threshold is None else {below, threshold - 1, threshold, threshold + 1}
    wanted = (ends | around | set(range(1, ranks + 2))) - {0}
    assert sizes(resolved, threshold) == sorted(wanted)
    largest = max((size for size in steps if size <= (resolved.max_num_batched_tokens or 0)), default=0)
    assert {size for size in wanted if size <= largest} <= set(steps)
    # One request more, or one token, would be too much for something that is limited.
    for size in wanted - set(steps):
        assert size > min(_most(resolved, plan), resolved.max_num_batched_tokens or 0)


def _most(resolved: Shape, plan: BatchPlan) -> int:
    """The most tokens that one step can be, counted anew: fill the requests one by one, each as long as it may be."""
    block, total = resolved.block_size or 1, 0
    room = resolved.kv_tokens if resolved.kv_tokens is not None else 10**9
    for _ in range(resolved.max_num_seqs or 0):
        fits = [room // block * block - plan.max_tokens, (resolved.max_model_len or 0) - plan.max_tokens]
        length = min(fits)
        if length < 1:
            break
        total += length
        room -= -(-(length + plan.max_tokens) // block) * block
    return total


@given(shapes())
def test_work_stays_small(resolved: Shape) -> None:
    plan = resolve({}, resolved)
    ranges = len(resolved.compile_ranges)
    assert len(plan.waves) <= resolved.tensor_parallel_size + 8 + 4 * (ranges + 1)
    assert len({tuple(wave) for wave in plan.waves}) == len(plan.waves)
    assert len(plan.staggered) <= 1
    assert plan.max_tokens == 4


def test_the_quickstart_has_few_steps() -> None:
    plan = resolve({}, shape(sp_min_token_num=1, compile_ranges=[(1, 8192)], max_num_batched_tokens=8192,
                             max_num_seqs=512, kv_tokens=130_944, block_size=128))  # fmt: skip
    assert prefills(plan) == [1, 2, 3, 8192, 14, 21]
    assert len(plan.waves) <= 25


def test_the_plan_of_a_small_batch() -> None:
    plan = resolve({}, shape())
    assert plan.waves == [
        [1], [2], [3], [6], [7], [8], [9], [64], [5, 1, 8], [5, 1, 8, 3, 17, 4, 5, 1], [17, 4], [3, 67],
    ]  # fmt: skip
    assert plan.staggered == [[5, 1, 8, 3, 17, 4]]
    assert plan.chunked_prefill


def test_a_step_stays_below_the_threshold_though_it_is_padded() -> None:
    """Seven tokens on two ranks are run as eight, which is the threshold."""
    assert [6] in resolve({}, shape()).waves
    assert [4] in resolve({}, shape(tensor_parallel_size=4)).waves
    assert resolve({}, shape(sp_min_token_num=100, compile_ranges=[(1, 64)])).waves[3] == [64]
    assert [14] in resolve({}, shape(sp_min_token_num=None, compile_ranges=[(1, 15), (16, 64)])).waves


def test_decode_steps_meet_the_threshold_and_one_more_than_ranks() -> None:
    assert {3, 8} <= {len(wave) for wave in resolve({}, shape()).waves}
    assert 8 not in {len(wave) for wave in resolve({}, shape(sp_min_token_num=9)).waves}
    assert max(len(wave) for wave in resolve({}, shape(sp_min_token_num=None)).waves) == 3


def test_a_step_larger_than_the_model_is_long_takes_several_requests() -> None:
    plan = resolve({}, shape(max_model_len=30))
    # Four answers leave 26 positions. The short prompt comes first: no border is one between equal parts.
    assert [12, 26, 26] in plan.waves
    assert not plan.chunked_prefill


@pytest.mark.parametrize(
    ("limits", "largest"),
    [
        ({}, 64),
        ({"max_model_len": 20, "max_num_seqs": 3}, 3 * 16),
        # Four blocks: prompts of 12 tokens and four answers each fill one.
        ({"kv_tokens": 64}, 60),
        ({"kv_tokens": 64, "max_model_len": 16}, 48),
        ({"kv_tokens": 79, "max_model_len": 33, "max_num_seqs": 2}, 29 + 12),
    ],
)
def test_the_largest_step_is_as_large_as_the_limits_allow(limits: dict[str, int], largest: int) -> None:
    plan = resolve({}, shape(chunked_prefill=False, **limits))
    assert max(prefills(plan)) == largest


def test_a_prompt_is_cut_only_where_the_engine_does_and_the_model_is_long_enough() -> None:
    assert resolve({}, shape()).chunked_prefill
    assert not resolve({}, shape(chunked_prefill=False)).chunked_prefill
    assert not resolve({}, shape(max_model_len=70)).chunked_prefill
    assert not resolve({"chunked_prefill": False}, shape()).chunked_prefill


def test_in_a_pipeline_a_prompt_that_is_cut_is_alone() -> None:
    assert resolve({}, shape(pipeline_parallel_size=2)).waves[-1] == [67]


def test_a_cut_that_was_asked_for_is_made_of_several_prompts_if_need_be() -> None:
    plan = resolve({"chunked_prefill": True}, shape(max_model_len=30))
    assert plan.waves[-1] == [15, 26, 26]


def test_with_prefix_caching_a_prompt_fills_a_block_of_the_cache() -> None:
    plan = resolve({"prefix_caching": True}, shape())
    assert [19, 5] in plan.waves
    assert [19, 5] not in resolve({}, shape()).waves


@pytest.mark.parametrize("field", ["seed", "max_tokens", "logprobs", "full_bytes"])
def test_other_fields_are_kept(field: str) -> None:
    assert getattr(resolve({field: 3}, shape()), field) == 3


def test_what_was_written_is_taken_as_it_is() -> None:
    assert resolve({"waves": [[9]]}, shape()) == BatchPlan(waves=[[9]])
    written = resolve({"staggered": [[2, 2]]}, shape())
    assert (written.staggered, written.waves) == ([[2, 2]], resolve({}, shape()).waves)


def test_a_cell_without_sp_has_the_requests_of_its_twin_with_it() -> None:
    off = shape(sequence_parallelism=False, sp_min_token_num=None, compile_ranges=[(1, 64)])
    assert resolve({}, off, threshold=8) == resolve({}, shape())
    assert resolve({}, off) != resolve({}, shape())


def test_what_only_a_running_engine_knows_limits_nothing() -> None:
    unknown = shape(max_num_batched_tokens=None, max_model_len=None, max_num_seqs=None, kv_tokens=None,
                    block_size=None, compile_ranges=[], chunked_prefill=False)  # fmt: skip
    assert prefills(resolve({}, unknown))[:7] == [1, 2, 3, 6, 7, 8, 9]
    assert problems(BatchPlan(waves=[[10**6] * 1000]), unknown) == []


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("batch", "limits", "key", "said", "advice"),
    [
        ({"waves": [[1], [509]]}, {"max_num_batched_tokens": 600}, "batch.waves",
         "wave 2 of batch.waves: a prompt of 509 tokens and 4 answers are more than the model's length, 512",
         "raise max_model_len"),
        ({"waves": [[33, 32]]}, {}, "batch.waves", "65 tokens are to be one step, and a batch holds 64",
         "batch.chunked_prefill: true"),
        ({"waves": [[1] * 9]}, {}, "batch.waves", "9 requests are to run at once, and at most 8 do", "max_num_seqs"),
        ({"waves": [[20, 20]]}, {"kv_tokens": 63}, "batch.waves",
         "the KV cache has to hold 64 tokens at once, and the smallest of the cell's arms has room for 63",
         "kv_cache_memory_bytes"),
        ({"staggered": [[1], [62, 1, 1, 1]], "chunked_prefill": False}, {}, "batch.staggered",
         "wave 2 of batch.staggered: 65 tokens are", "Split"),
        ({"staggered": [[1] * 20]}, {"max_num_seqs": 3}, "batch.staggered", "4 requests are to run at once", "fewer"),
        ({"waves": [[99]], "chunked_prefill": True}, {"chunked_prefill": False}, "batch.chunked_prefill",
         "enable_chunked_prefill is off", "enable_chunked_prefill: true"),
        ({"waves": [[9]], "chunked_prefill": True}, {}, "batch.chunked_prefill", "no wave is larger than a batch (64)",
         "lower max_num_batched_tokens"),
        ({"waves": [[16]], "prefix_caching": True}, {}, "batch.prefix_caching", "(16 tokens): it would never be hit",
         "Write a longer prompt"),
        ({"max_tokens": 512}, {}, "batch.max_tokens", "a model of 512 positions has no room for a prompt and 512",
         "Lower batch.max_tokens"),
    ],
)  # fmt: skip
def test_what_cannot_run_is_refused_with_advice(
    batch: dict[str, Any], limits: dict[str, Any], key: str, said: str, advice: str
) -> None:
    (problem,) = found(batch, **limits)
    assert problem.key == key
    assert said in problem.message
    assert advice in str(problem.hint)


@pytest.mark.parametrize(
    ("batch", "limits"),
    [
        ({"waves": [[508]]}, {"max_num_batched_tokens": 600}),
        ({"waves": [[32, 32]]}, {}),
        ({"waves": [[33, 32]], "chunked_prefill": True}, {}),
        ({"waves": [[1] * 8]}, {}),
        ({"waves": [[20, 20]]}, {"kv_tokens": 64}),
        ({"staggered": [[61, 1, 1, 1]], "chunked_prefill": False}, {}),
        # Of a staggered wave only so many are there at once as each has steps.
        ({"staggered": [[1] * 20]}, {"max_num_seqs": 4}),
        ({"waves": [[17]], "prefix_caching": True}, {}),
        ({"max_tokens": 511}, {"chunked_prefill": False}),
    ],
)
def test_the_largest_that_fits_is_not_refused(batch: dict[str, Any], limits: dict[str, Any]) -> None:
    assert found(batch, **limits) == []


def test_every_bad_wave_is_named() -> None:
    messages = [problem.message for problem in found({"waves": [[65], [1], [66]]})]
    assert [message.partition(":")[0] for message in messages] == ["wave 1 of batch.waves", "wave 3 of batch.waves"]
