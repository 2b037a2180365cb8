"""What people hear of, in words; and which measurements belong together."""

from __future__ import annotations

from typing import Any

import pytest
from store.samples import SHAPE

from service.domain.figures import COLD_S, PEAK_RSS, WARM_S, figure_of
from service.domain.notices import change_words, shortened, since_words, versions_words
from service.domain.series import identity
from workers.protocol import Environment

MACHINE = Environment(vllm="0.30.0", torch="2.10", ray="2", python="3.11", device="NVIDIA H200", devices=8, cores=64)
REQUESTED = {"model": "tiny:llama", "tensor_parallel_size": 2, "block_size": "auto", "env.HF_TOKEN": "hf_abc"}
EFFECTIVE = {"model": "/models/tiny", "tensor_parallel_size": 2, "block_size": 128, "seed": 0}


def test_a_change_is_told_in_the_figure_s_unit() -> None:
    assert change_words(COLD_S, 20.06, 23.44) == "cold start 23.4 s, baseline 20.1 s (+17 %)"
    assert change_words(WARM_S, 200.0, 150.0) == "warm start 150 s, baseline 200 s (-25 %)"
    assert change_words(PEAK_RSS, 2**30, 2**31) == "memory of a cold start 2,048 MiB, baseline 1,024 MiB (+100 %)"
    assert change_words(WARM_S, 0.0, 1.0) == "warm start 1 s, baseline 0 s"


def test_versions_are_told_where_they_differ() -> None:
    before, after = {"vllm": "0.30.0", "torch": "2.10"}, {"vllm": "0.31.0", "torch": "2.10", "driver": "570.1"}
    assert versions_words(before, after) == "vllm 0.30.0 → 0.31.0"
    newer = {**after, "torch": "2.11", "driver": "580"}
    assert versions_words(after, newer) == "torch 2.10 → 2.11 and driver 570.1 → 580"
    assert versions_words(before, before) == "with the same versions"
    assert versions_words({}, after) == "the versions before are not known"


def test_a_sentence_has_an_end_and_a_time_a_day() -> None:
    assert shortened("x" * 1000) == "x" * 1000
    assert len(shortened("x" * 1001)) == 1000
    assert shortened("x" * 1001).endswith("...")
    assert since_words("s1", 1793500200.0) == "since sweep s1 of 2026-11-01"


def test_phases_are_figures_that_are_not_judged() -> None:
    assert figure_of("cold_s") is COLD_S
    assert (figure_of("warm.cache_load").words, figure_of("warm.cache_load").judged) == (
        "cache_load in a warm start",
        False,
    )
    with pytest.raises(KeyError):
        figure_of("nope")


def key(
    requested: dict[str, Any] | None = None,
    effective: dict[str, Any] | None = None,
    shape: dict[str, Any] | None = None,
    machine: dict[str, Any] | None = None,
    preload: bool = True,
    machines: int = 1,
) -> str:
    return identity(
        REQUESTED | (requested or {}),
        EFFECTIVE | (effective or {}),
        SHAPE.model_copy(update=shape or {}),
        MACHINE.model_copy(update=machine or {}),
        preload,
        machines,
    ).id


@pytest.mark.parametrize(
    "same",
    [
        {"machine": {"vllm": "0.31.0", "torch": "2.11", "driver": "570"}},
        {"effective": {"model": "/elsewhere/tiny", "seed": 1, "a_new_setting": True}},
        {"shape": {"sp_min_token_num": 16, "kv_tokens": 5}},
        {"requested": {"eval.tasks": ["gsm8k"]}},
        {"requested": {"env.HF_TOKEN": "renewed"}},
    ],
    ids=str,
)
def test_what_a_version_brings_begins_no_series(same: dict[str, Any]) -> None:
    assert key(**same) == key()


@pytest.mark.parametrize(
    "other",
    [
        {"effective": {"block_size": 64}},
        {"requested": {"model": "tiny:qwen3"}},
        {"requested": {"env.OMP_NUM_THREADS": "4"}},
        {"requested": {"environment": "newest"}},
        {"shape": {"full_graph": False}},
        {"machine": {"devices": 4}},
        {"machine": {"device": "cpu"}},
        {"preload": False},
        {"machines": 2},
    ],
    ids=str,
)
def test_another_configuration_or_machine_is_another_series(other: dict[str, Any]) -> None:
    assert key(**other) != key()


def test_the_settings_of_a_series_are_shown_without_secrets() -> None:
    found = identity(REQUESTED, EFFECTIVE, SHAPE, MACHINE, preload=True)
    assert found.settings == {
        "model": "tiny:llama", "tensor_parallel_size": 2, "block_size": 128, "env.HF_TOKEN": "(secret)",
    }  # fmt: skip
    assert (found.environment, found.device, found.devices, found.cores) == ("default", "NVIDIA H200", 8, 64)


def test_the_device_of_a_series_says_over_how_many_machines_it_ran() -> None:
    one, two = (identity(REQUESTED, EFFECTIVE, SHAPE, MACHINE, preload=True, machines=count) for count in (1, 2))
    assert (one.device, two.device) == ("NVIDIA H200", "NVIDIA H200 on 2 machines")
    assert one.id != two.id
