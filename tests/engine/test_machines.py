"""What vLLM is told of an engine on several machines, and what that changes: not what is compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from vllm.platforms import current_platform

from workers.engine.machines import settings
from workers.engine.settings import engine_config, executor
from workers.protocol import Portion

PAIR = {"model": "tiny:llama", "dtype": "float32", "tensor_parallel_size": 2}


def portion(number: int, count: int = 2, address: str = "127.0.0.1", port: int = 29511) -> Portion:
    return Portion(number=number, count=count, address=address, port=port)


def config(models_dir: Path, of: Portion | None, **more: Any) -> Any:
    return engine_config(PAIR | more | settings(of), str(models_dir))


@pytest.fixture(scope="module")
def alone(models_dir: Path) -> Any:
    return config(models_dir, None)


@pytest.mark.slow
@pytest.mark.parametrize("of", [portion(0), portion(1), portion(0, address="10.0.0.7", port=4000)])
def test_where_an_engine_runs_does_not_enter_the_cache_key(models_dir: Path, alone: Any, of: Portion) -> None:
    found = config(models_dir, of)
    assert (found.parallel_config.nnodes, found.parallel_config.node_rank) == (2, of.number)
    assert found.parallel_config.local_world_size == 1
    assert found.compute_hash() == alone.compute_hash()


@pytest.mark.slow
def test_how_many_ranks_it_has_does(models_dir: Path, alone: Any) -> None:
    assert config(models_dir, portion(0), tensor_parallel_size=4).compute_hash() != alone.compute_hash()


def test_on_one_machine_nothing_is_said() -> None:
    assert settings(None) == {}


def test_a_machine_says_how_many_ranks_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM divides a rank's number by this to find out with which others it shares a machine."""
    monkeypatch.delenv("SHARDPROOF_LOCAL_RANKS", raising=False)
    assert current_platform.device_count() == 1
    monkeypatch.setenv("SHARDPROOF_LOCAL_RANKS", "2")
    assert current_platform.device_count() == 2


@pytest.mark.parametrize(
    ("asked", "devices", "expected"),
    [
        ({"tensor_parallel_size": 4, "pipeline_parallel_size": 2}, 4, {"distributed_executor_backend": "mp"}),
        ({"tensor_parallel_size": 4}, 4, {}),
        ({"tensor_parallel_size": None}, 1, {}),
        ({"tensor_parallel_size": 4}, 0, {}),
    ],
)
def test_more_ranks_than_this_machine_has_gpus_are_no_reason_to_refuse(
    asked: dict[str, Any], devices: int, expected: dict[str, str]
) -> None:
    assert executor(asked, devices) == expected
