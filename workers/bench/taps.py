"""What the taps cost per step: the same requests put to engines with and without them.

Engines are started in turn, one at a time: without taps, with, and both once more. The second time their compiled code
is taken from the first, and what differs between two engines of a kind is the noise of the machine.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.bench.engines import BenchFailed, start
from workers.protocol import ArmSpec, BatchPlan, Patch, PatchMode, Role, Settings

RANKS = 2
LAYERS = 4
HIDDEN = 1024
STARTS = 2
"""Of each kind of engine."""

PASSES = "compilation_config.pass_config"
ENGINE: Settings = {
    "model": f"tiny:llama?layers={LAYERS}&hidden={HIDDEN}&heads=16&kv_heads=8",
    "dtype": "float32",
    "tensor_parallel_size": RANKS,
    f"{PASSES}.enable_sp": True,
    f"{PASSES}.sp_min_token_num": 1,
    # Else a step returns before the model is through.
    "async_scheduling": False,
}


@dataclass(frozen=True)
class Load:
    """``waves`` times ``requests`` prompts of ``prompt`` tokens at once, each answered with ``answer`` tokens.

    A wave is one step over all of its prompts, and one per further token. The first wave is not counted.
    """

    waves: int = 9
    requests: int = 8
    prompt: int = 32
    answer: int = 17

    @property
    def plan(self) -> BatchPlan:
        return BatchPlan(waves=[[self.prompt] * self.requests] * self.waves, max_tokens=self.answer, logprobs=1)


@dataclass(frozen=True)
class Times:
    """Seconds of the steps of one engine."""

    prefill: list[float]
    decode: list[float]


def cost(folder: Path, models: Path, load: Load | None = None) -> list[dict[str, Any]]:
    """A row for prefill and one for decode. Starts four engines, which takes two minutes or three.

    Raises:
        BenchFailed: when an engine did not come through.
    """
    load = load or Load()
    found: dict[bool, list[Times]] = {False: [], True: []}
    for number in range(STARTS):
        for taps, times in found.items():
            times.append(split(_step_seconds(_spec(folder, models, load.plan, taps, number)), load))
    return rows(found[False], found[True], load)


def rows(untapped: list[Times], tapped: list[Times], load: Load) -> list[dict[str, Any]]:
    """Medians over all steps of all engines; ``lowest`` and ``highest`` are ratios of one engine's to another's.

    ``untapped_to_itself`` is ``None`` where there was one engine of a kind.
    """
    return [
        _row("prefill step", load.requests * load.prompt, [t.prefill for t in untapped], [t.prefill for t in tapped]),
        _row("decode step", load.requests, [t.decode for t in untapped], [t.decode for t in tapped]),
    ]


def _row(what: str, tokens: int, untapped: list[list[float]], tapped: list[list[float]]) -> dict[str, Any]:
    ratios = [_median([one]) / _median([other]) for one, other in itertools.product(tapped, untapped)]
    again = [_median([one]) / _median([other]) for one, other in itertools.permutations(untapped, 2)]
    return {
        "what": what,
        "hidden": HIDDEN,
        "dtype": ENGINE["dtype"],
        "layers": LAYERS,
        "tokens": tokens,
        "untapped_ms": round(_median(untapped) * 1e3, 3),
        "tapped_ms": round(_median(tapped) * 1e3, 3),
        "tapped_to_untapped": round(_median(tapped) / _median(untapped), 3),
        "lowest": round(min(ratios), 3),
        "highest": round(max(ratios), 3),
        "untapped_to_itself": round(max(again), 3) if again else None,
        "times": sum(map(len, tapped)),
    }


def _median(engines: list[list[float]]) -> float:
    return statistics.median(itertools.chain.from_iterable(engines))


def split(seconds: list[float], load: Load) -> Times:
    """Sort the steps of one engine by what they did.

    Raises:
        BenchFailed: when they are not as many as the load takes.
    """
    if len(seconds) != load.waves * load.answer:
        raise BenchFailed(f"the engine did {len(seconds)} steps where the load takes {load.waves * load.answer}")
    waves = list(_waves(seconds, load))[1:]
    return Times([wave[0] for wave in waves], [step for wave in waves for step in wave[1:]])


def _waves(seconds: list[float], load: Load) -> Iterator[list[float]]:
    for first in range(0, len(seconds), load.answer):
        yield seconds[first : first + load.answer]


def _spec(folder: Path, models: Path, plan: BatchPlan, taps: bool, number: int) -> ArmSpec:
    kind = "tapped" if taps else "untapped"
    return ArmSpec(
        role=Role.PROBE,
        key=kind,
        engine=ENGINE,
        patches=dict.fromkeys(Patch, PatchMode.ON),
        env={},
        batch=plan,
        taps=taps,
        folder=str(folder / f"{kind}-{number}"),
        cache_root=str(folder / f"{kind}-cache"),
        models_dir=str(models),
        timeout_s=600.0,
        toolchain=str(folder / "toolchain"),
    )


def _step_seconds(spec: ArmSpec) -> list[float]:
    return list(start(spec, RANKS).result["step_seconds"])
