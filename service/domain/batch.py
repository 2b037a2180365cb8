"""The requests of a cell, fitted to the configuration that its engine resolves to.

What can go wrong under SP depends on how many tokens a step has: fewer than ranks, one more or less than a multiple of
them, just below or above the threshold, the ends of a compile range, as many as a batch holds. Where the matrix wrote
no requests, each of these numbers is made a step of its own. All arms of a cell run the same plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from workers.protocol import BatchPlan, Problem, Shape

Wave = list[int]
"""Prompt lengths in tokens."""

SEVERAL = (5, 1, 8, 3, 17, 4)
"""Lengths of prompts that share steps: odd and even, with a single token among them."""

PAIR = [17, 4]
MOST_DECODES = 32
"""A threshold up to this is also met by decoding as many requests at once."""

UNKNOWN = 1 << 40
"""Stands for a limit that only the running engine knows."""


def resolve(batch: Mapping[str, Any], shape: Shape, threshold: int | None = None) -> BatchPlan:
    """The plan of a cell.

    Args:
        batch: fields of a ``BatchPlan`` as the matrix wrote them. Requests that it wrote are taken as they are.
        shape: what the cell's settings resolve to.
        threshold: ``sp_min_token_num`` where SP is off. It means nothing to that cell, but with it the cell has the
            requests of those with SP on and can share arms with them.

    Returns:
        A plan in which ``problems`` finds nothing, if no request was written and there is room for one at all. It has
        at most ``tensor_parallel_size + 8`` waves, and four more for each compile range and for the threshold: small
        ones, but for those that go up to the end of a large range. Deterministic.
    """
    plan = BatchPlan.model_validate(dict(batch))
    changes: dict[str, Any] = {}
    if "waves" not in batch:
        changes["waves"] = _waves(plan, shape, shape.sp_min_token_num or threshold)
        chunked = _chunked(plan, shape) if batch.get("chunked_prefill", True) else None
        if chunked is not None:
            changes |= {"waves": [*changes["waves"], chunked], "chunked_prefill": True}
        if "staggered" not in batch:
            changes["staggered"] = _first_that_fits(plan, shape, [list(SEVERAL), [1] * len(SEVERAL)], "staggered")
    return plan.model_copy(update=changes)


def sizes(shape: Shape, threshold: int | None = None) -> list[int]:
    """The numbers of tokens that a step should have, however many a batch holds; ascending.

    Under SP a step is padded to a multiple of the ranks, which may lift it over the threshold or into the next range.
    So the last multiple below each is among them too.
    """
    ranks = shape.tensor_parallel_size
    found = set(range(1, ranks + 2))
    ends = [last for _, last in shape.compile_ranges] + ([] if threshold is None else [threshold - 1])
    for last in ends:
        found |= {last // ranks * ranks, last, last + 1}
    found |= {first for first, _ in shape.compile_ranges} | (set() if threshold is None else {threshold + 1})
    return sorted(size for size in found if size > 0)


def problems(plan: BatchPlan, shape: Shape) -> list[Problem]:
    """Why an engine of ``shape`` cannot run ``plan`` as it stands; empty when it can."""
    faults = [
        Problem(key=f"batch.{field}", message=f"wave {number} of batch.{field}: {message}", hint=hint)
        for field, waves in (("waves", plan.waves), ("staggered", plan.staggered))
        for number, wave in enumerate(waves, 1)
        for message, hint in _faults(wave, plan, shape, field)
    ]
    return [*_mismatches(plan, shape), *faults]


def _mismatches(plan: BatchPlan, shape: Shape) -> Iterator[Problem]:
    """Options that come to nothing with these requests or this engine."""
    if not plan.waves:
        message = f"a model of {shape.max_model_len} positions has no room for a prompt and {plan.max_tokens} answers"
        yield Problem(key="batch.max_tokens", message=message, hint="Lower batch.max_tokens, or raise max_model_len")
    if plan.chunked_prefill and not shape.chunked_prefill:
        message = "batch.chunked_prefill is true, but the engine does not cut prompts: enable_chunked_prefill is off"
        hint = "Remove batch.chunked_prefill, or set enable_chunked_prefill: true"
        yield Problem(key="batch.chunked_prefill", message=message, hint=hint)
    elif plan.chunked_prefill and _nothing_is_cut(plan, shape):
        message = f"batch.chunked_prefill is true, but no wave is larger than a batch ({shape.max_num_batched_tokens})"
        hint = "Write a wave in batch.waves that is, or lower max_num_batched_tokens"
        yield Problem(key="batch.chunked_prefill", message=message, hint=hint)
    if plan.prefix_caching and shape.block_size is not None and not _fills_a_block(plan, shape.block_size):
        message = f"no prompt is longer than a block of the KV cache ({shape.block_size} tokens): it would never be hit"
        hint = "Write a longer prompt in batch.waves, lower block_size, or remove batch.prefix_caching"
        yield Problem(key="batch.prefix_caching", message=message, hint=hint)


# --- what fits -------------------------------------------------------------------------------------------------------


def _faults(wave: Sequence[int], plan: BatchPlan, shape: Shape, field: str) -> Iterator[tuple[str, str]]:
    """What is wrong with one wave, and what to do.

    Of a staggered wave as many requests are in the engine at once as each has steps, ``max_tokens``.
    """
    at_once = wave if field == "waves" else sorted(wave, reverse=True)[: plan.max_tokens]
    # The largest prompt of a staggered wave shares its step with the others, which decode one token each.
    tokens = sum(wave) if field == "waves" else max(wave) + len(at_once) - 1
    longest = _longest(plan, shape)
    if max(wave) > longest:
        message = f"a prompt of {max(wave)} tokens and {plan.max_tokens} answers are more than the model's length, "
        hint = "Shorten the prompt, or lower batch.max_tokens, or raise max_model_len"
        yield message + f"{shape.max_model_len}", hint
    if tokens > _limit(shape.max_num_batched_tokens) and not plan.chunked_prefill:
        message = f"{tokens} tokens are to be one step, and a batch holds {shape.max_num_batched_tokens}"
        hint = "Split the wave, or raise max_num_batched_tokens, or let prompts be cut with batch.chunked_prefill: true"
        yield f"{message} (max_num_batched_tokens)", hint
    if len(at_once) > _limit(shape.max_num_seqs):
        message = f"{len(at_once)} requests are to run at once, and at most {shape.max_num_seqs} do (max_num_seqs)"
        yield message, "Write fewer requests in one wave, or raise max_num_seqs"
    need = _kv_need(at_once, plan, shape)
    if need > _limit(shape.kv_tokens):
        message = f"the KV cache has to hold {need} tokens at once, and the smallest of the cell's arms has room for "
        hint = "Write fewer or shorter prompts in one wave, or raise kv_cache_memory_bytes"
        yield message + f"{shape.kv_tokens}", hint


def _limit(value: int | None) -> int:
    return UNKNOWN if value is None else value


def _longest(plan: BatchPlan, shape: Shape) -> int:
    return _limit(shape.max_model_len) - plan.max_tokens


def _kv_need(wave: Sequence[int], plan: BatchPlan, shape: Shape) -> int:
    """Tokens, in whole blocks: a block belongs to one request."""
    block = shape.block_size or 1
    return sum(-(-(length + plan.max_tokens) // block) * block for length in wave)


def _fills_a_block(plan: BatchPlan, block_size: int) -> bool:
    """The last token of a prompt is always computed, so a block's worth of tokens is not enough."""
    return any(length > block_size for wave in (*plan.waves, *plan.staggered) for length in wave)


def _nothing_is_cut(plan: BatchPlan, shape: Shape) -> bool:
    batch = shape.max_num_batched_tokens
    return batch is not None and all(sum(wave) <= batch for wave in plan.waves)


def _fits(wave: Sequence[int], plan: BatchPlan, shape: Shape, field: str = "waves") -> bool:
    return bool(wave) and min(wave) > 0 and not any(_faults(wave, plan, shape, field))


def _first_that_fits(plan: BatchPlan, shape: Shape, waves: Sequence[Wave], field: str = "waves") -> list[Wave]:
    return [wave for wave in waves if _fits(wave, plan, shape, field)][:1]


# --- what is chosen --------------------------------------------------------------------------------------------------


def _waves(plan: BatchPlan, shape: Shape, threshold: int | None) -> list[Wave]:
    """The sizes one by one, then waves of several requests, the largest last."""
    # What is not cut has to fit in a batch, also where the plan asks for prompts that are cut.
    whole = plan.model_copy(update={"chunked_prefill": False})
    largest = _largest(whole, shape)
    wanted = [size for size in sizes(shape, threshold) if size <= _limit(shape.max_num_batched_tokens)]
    waves = [wave for size in wanted if _fits(wave := _fill(size, whole, shape), whole, shape)]
    for several in _several(shape, threshold):
        waves += _first_that_fits(whole, shape, [several, [1] * len(several)])
    if plan.prefix_caching and shape.block_size is not None:
        beyond = shape.block_size + shape.tensor_parallel_size + 1
        waves += _first_that_fits(whole, shape, [[beyond, SEVERAL[0]], [shape.block_size + 1]])
    if largest is not None and sum(largest) not in map(sum, waves):
        waves.append(largest)
    return [list(wave) for wave in dict.fromkeys(map(tuple, waves))]


def _several(shape: Shape, threshold: int | None) -> Iterator[Wave]:
    """Waves whose decode steps have several tokens: one more than ranks, and exactly the threshold."""
    counts = {shape.tensor_parallel_size + 1}
    if threshold is not None and 1 < threshold <= MOST_DECODES:
        counts.add(threshold)
    for count in sorted(counts):
        yield [SEVERAL[number % len(SEVERAL)] for number in range(count)]
    yield PAIR


def _fill(size: int, plan: BatchPlan, shape: Shape) -> Wave:
    """Prompts of ``size`` tokens in all, as few as the model's length allows.

    The short one comes first, so that borders between requests are not borders between equal parts.
    """
    longest = _longest(plan, shape)
    if longest < 1:
        return []
    full, rest = divmod(size, longest)
    return [rest] * bool(rest) + [longest] * full


def _largest(plan: BatchPlan, shape: Shape) -> Wave | None:
    """The largest wave that is one step; ``None`` where it is not known how much a batch holds, or nothing fits."""
    longest = _longest(plan, shape)
    if shape.max_num_batched_tokens is None or longest < 1:
        return None
    block = shape.block_size or 1
    cached, slots = _limit(shape.kv_tokens), _limit(shape.max_num_seqs)
    full = min(shape.max_num_batched_tokens // longest, slots, cached // _kv_need([longest], plan, shape))
    room = (cached - full * _kv_need([longest], plan, shape)) // block * block - plan.max_tokens
    rest = min(shape.max_num_batched_tokens - full * longest, room, longest)
    wave = [rest] * (rest > 0 and full < slots) + [longest] * full
    return wave or None


def _chunked(plan: BatchPlan, shape: Shape) -> Wave | None:
    """A prompt that is longer than a batch, behind a short one that decodes beside the rest of it.

    Where a pipeline has several stages the long prompt is alone: its parts would be in the pipeline at once there, and
    not in the reference, so that the steps of the two arms would differ. Where the model is too short for such a
    prompt, and only if chunked prefill was asked for, several prompts that do not fit in one batch.
    """
    if not shape.chunked_prefill or shape.max_num_batched_tokens is None:
        return None
    cut = plan.model_copy(update={"chunked_prefill": True})
    beyond = shape.max_num_batched_tokens + shape.tensor_parallel_size + 1
    candidates = [[beyond]] if shape.pipeline_parallel_size > 1 else [[SEVERAL[3], beyond], [beyond]]
    if plan.chunked_prefill:
        candidates.append(_fill(beyond, cut, shape))
    return next((wave for wave in candidates if _fits(wave, cut, shape)), None)
