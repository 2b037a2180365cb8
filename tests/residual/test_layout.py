"""Where each rank holds all tokens although SP is on, by what the graphs say that ran."""

from __future__ import annotations

from typing import Any

import pytest

from workers.protocol import Shape
from workers.residual.layout import graphs_of, rewritable, rewritten, whole_places
from workers.residual.taps import Step

SITES = 5


def shape(threshold: int | None = 8) -> Shape:
    return Shape(
        tensor_parallel_size=2, pipeline_parallel_size=1, layers=2, hidden_size=8, dtype="float32",
        sequence_parallelism=True, full_graph=True, compiled=True, sp_min_token_num=threshold,
    )  # fmt: skip


def graph(first: int, last: int, before: int = 5, after: int = 0, **fields: Any) -> dict[str, Any]:
    applicable = fields.pop("applicable", after < before)
    return {
        "compile_range": [first, last], "applicable": applicable, "all_reduce_before": before,
        "all_reduce_after": after, "reduce_scatter_after": before - after, "all_gather_after": before - after, **fields,
    }  # fmt: skip


BELOW, ABOVE = graph(1, 7, after=5), graph(8, 64)
STEPS = [Step(6, 6), Step(9, 10), Step(2, 2)]


def whole_steps(*arguments: Any, steps: list[Step] = STEPS, threshold: int | None = 8) -> set[int]:
    found = whole_places(shape(threshold), steps, list(arguments), SITES)
    by_step = {step: {site for number, site in found if number == step} for step, _ in found}
    assert all(sites == set(range(SITES)) for sites in by_step.values())
    return set(by_step)


def test_the_range_that_takes_the_padded_tokens_decides() -> None:
    assert whole_steps([BELOW, ABOVE]) == {0, 2}
    assert whole_steps([graph(1, 64)]) == set()
    # Seven tokens are padded to eight, for which a rewritten graph runs.
    assert whole_steps([BELOW, ABOVE], steps=[Step(7, 8)]) == set()


def test_a_graph_compiled_for_one_size_runs_for_it() -> None:
    single = graph(10, 10, after=5)
    assert graphs_of(STEPS[1], [ABOVE, single, BELOW]) == [single]
    assert whole_steps([BELOW, ABOVE, single]) == {0, 1, 2}


@pytest.mark.parametrize(("threshold", "whole"), [(8, {0, 2}), (1, set()), (None, set()), (100, {0, 1, 2})])
def test_without_a_census_the_threshold_has_to_do(threshold: int | None, whole: set[int]) -> None:
    assert whole_steps([], threshold=threshold) == whole
    assert whole_steps([graph(200, 300)], threshold=threshold) == whole


def test_what_the_step_itself_tells_comes_first() -> None:
    told = [Step(6, 6, scattered=dict.fromkeys(range(SITES), True)), Step(9, 10, scattered={0: False})]
    assert whole_places(shape(), told, [[BELOW, ABOVE]], SITES) == {(1, 0)}


def test_the_census_tells_site_by_site_over_the_stages() -> None:
    """Embeddings given from outside, and the first norm of a later stage, are whole: no all-reduce precedes them."""
    first = graph(1, 64, scattered=[False, True])
    second = graph(1, 64, scattered=[False, True, True])
    assert whole_places(shape(), STEPS[:1], [[first], [second]], SITES) == {(0, 0), (0, 2)}
    # Too few sites to be told apart: the graph was rewritten, so all of them are scattered.
    assert whole_places(shape(), STEPS[:1], [[first]], SITES) == set()


def test_a_product_that_swallowed_the_scatter_counts_as_rewritten() -> None:
    fused = graph(1, 64, claimed=5) | {"reduce_scatter_after": 0, "all_gather_after": 0}
    assert rewritten(fused) == 5
    assert rewritten(fused | {"all_reduce_after": 5}) == 0
    assert rewritten(fused | {"applicable": False}) == 0
    assert rewritten(graph(1, 64)) == 5


def test_what_should_be_rewritten() -> None:
    assert rewritable(ABOVE) == 5
    assert rewritable(graph(1, 64, rewritable=4)) == 4
    assert rewritable(BELOW) == 0
