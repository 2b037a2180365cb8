"""What it costs to compile the whole graph, as vLLM does without asking when SP is on.

Each configuration is started cold and then warm, from the same cache root, one engine at a time, as the timed arms of a
run are. Counts are vLLM's own, rank by rank: what they mean stands in ``row``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.bench import LESS, Measured
from workers.bench.engines import BenchFailed, Started, start
from workers.protocol import ArmSpec, BatchPlan, Patch, PatchMode, Role, Settings
from workers.start_times import Result

RANKS = 2
COMPILATION = "compilation_config"
ENGINE: Settings = {
    "dtype": "float32",
    "tensor_parallel_size": RANKS,
    # Without a threshold vLLM turns SP off for a model as small as this.
    f"{COMPILATION}.pass_config.sp_min_token_num": 1,
}
SP = f"{COMPILATION}.pass_config.enable_sp"
PIECEWISE, FULL = "SP off, piecewise", "SP off, full graph"
CONFIGURATIONS: dict[str, Settings] = {
    PIECEWISE: {SP: False},
    FULL: {SP: False, f"{COMPILATION}.splitting_ops": []},
    "SP on, full graph": {SP: True, f"{COMPILATION}.splitting_ops": []},
    "SP on, Inductor partition": {SP: True, f"{COMPILATION}.use_inductor_graph_partition": True},
}
COMPILING = "profile"
"""The phase of a rank in which it compiles, or loads what was compiled."""

MIB = 1 << 20

Row = dict[str, Any]


@dataclass(frozen=True)
class Extent:
    """``layers``: of the models, each of which is compiled in every one of ``configurations``."""

    layers: tuple[int, ...] = (2, 4)
    configurations: tuple[str, ...] = tuple(CONFIGURATIONS)


QUICK = Extent(layers=(2,), configurations=(PIECEWISE, FULL))


def measure(models: Path, quick: bool) -> Measured:
    """A row for each depth and configuration: 16 engines, some 10 minutes; ``quick``: 4.

    The figure is the cold start of the full graph, SP off, in units of that of piecewise compilation, for the deepest
    model. No goal is set for it: it is what a user pays.

    Raises:
        BenchFailed: when an engine did not come through, or compiled something else than it was to compile.
    """
    extent = QUICK if quick else Extent()
    with tempfile.TemporaryDirectory(prefix="shardproof-bench-") as folder:
        rows = list(_rows(Path(folder), models, extent))
    return Measured(
        figure=ratio(rows, max(extent.layers)),
        unit=f"times the cold start of piecewise compilation, SP off, {max(extent.layers)} layers",
        goal=None,
        threads=RANKS,
        rows=rows,
        better=LESS,
    )


def ratio(rows: Sequence[Row], layers: int) -> float:
    """Cold seconds of the full graph in units of those of piecewise compilation, SP off."""
    cold = {row["configuration"]: row["cold_s"] for row in rows if row["layers"] == layers}
    return float(round(cold[FULL] / cold[PIECEWISE], 3))


def _rows(folder: Path, models: Path, extent: Extent) -> Iterator[Row]:
    for layers in extent.layers:
        for number, name in enumerate(extent.configurations):
            cold, warm = (
                start(_spec(folder / f"{layers}-{number}", models, layers, name, role), RANKS)
                for role in (Role.COLD, Role.WARM)
            )
            check(name, cold.result, warm.result)
            yield row(layers, name, cold, warm)


def _spec(folder: Path, models: Path, layers: int, name: str, role: Role) -> ArmSpec:
    """Timed as a run times it: no taps, and nothing taken over from another arm."""
    return ArmSpec(
        role=role,
        key=f"{name}, {layers} layers, {role}",
        engine=ENGINE | {"model": f"tiny:llama?layers={layers}"} | CONFIGURATIONS[name],
        patches=dict.fromkeys(Patch, PatchMode.ON),
        env={},
        batch=BatchPlan(),
        taps=False,
        folder=str(folder / role),
        cache_root=str(folder / "cache"),
        models_dir=str(models),
        timeout_s=600.0,
    )


def check(name: str, cold: Result, warm: Result) -> None:
    """Both engines measured what the row will say.

    Raises:
        BenchFailed: when the graph was cut otherwise, a start was not cold or not warm, or SP rewrote nothing.
    """
    pieces, saved = _most(cold, "num_piecewise_capturable_graphs_seen"), _most(cold, "num_compiled_artifacts_saved")
    wrong = {
        f"compiled {pieces} subgraphs": (pieces > 1) is not (name == PIECEWISE),
        "saved nothing as it was started cold": saved == 0,
        "loaded something as it was started cold": _most(cold, "num_compiled_artifacts_loaded") > 0,
        "loaded nothing as it was started warm": _least(warm, "num_compiled_artifacts_loaded") == 0,
        "compiled as it was started warm": _most(warm, "num_inductor_compiles") > 0,
        "has SP and rewrote no all-reduce": CONFIGURATIONS[name][SP] and _rewritten(cold) == 0,
    }
    found = [what for what, is_so in wrong.items() if is_so]
    if found:
        raise BenchFailed(f"the engine with {name} {' and '.join(found)}")


def row(layers: int, name: str, cold: Started, warm: Started) -> Row:
    """One configuration. Seconds, MiB, and vLLM's counters of the rank that has most.

    ``pieces``: parts that vLLM cut the graph into, those left to be run as they are included
    (``num_piecewise_graphs_seen``, vllm/compilation/backends.py). ``subgraphs``: those of them that are compiled
    (``num_piecewise_capturable_graphs_seen``). ``compiles``: each for each compile range
    (``num_backend_compilations``); vLLM asks Inductor for as many, and gives up at the cache key where an equal one is
    there already. ``unique``: different ones (``num_compiled_artifacts_saved``): vLLM keeps each once, by a hash of its
    bytes (``StandaloneCompiledArtifacts``, vllm/compilation/caching.py). ``inductor_pieces``: parts that Inductor's own
    partition has cut, for CUDA graphs: there are none on CPU. ``compile_s``, ``load_s``: the slowest rank's profiling
    run, within which all is compiled, or loaded. ``peak_mib``: resident memory of each rank of the cold engine.
    """
    return {
        "layers": layers,
        "configuration": name,
        "cold_s": round(cold.report.wall_s, 2),
        "warm_s": round(warm.report.wall_s, 2),
        "compile_s": profiled_s(cold.arm.events),
        "load_s": profiled_s(warm.arm.events),
        "peak_mib": _peaks(cold.result),
        "pieces": _most(cold.result, "num_piecewise_graphs_seen"),
        "subgraphs": _most(cold.result, "num_piecewise_capturable_graphs_seen"),
        "compiles": _most(cold.result, "num_backend_compilations"),
        "unique": _most(cold.result, "num_compiled_artifacts_saved"),
        "loaded": _most(warm.result, "num_compiled_artifacts_loaded"),
        "inductor_pieces": max((rank["partitions"] for rank in cold.result["ranks"]), key=lambda n: n or 0),
        "sp_matched": _rewritten(cold.result) if CONFIGURATIONS[name][SP] else None,
    }


def profiled_s(events: Sequence[Mapping[str, Any]]) -> float:
    """Seconds of the rank that took longest to compile, or to load.

    Raises:
        BenchFailed: when no rank said so.
    """
    begun, taken = dict[int, float](), []
    for event in events:
        if event.get("name") != COMPILING or event.get("rank") is None:
            continue
        if event["kind"] == "phase-begin":
            begun[event["rank"]] = event["t"]
        elif event["kind"] == "phase-end" and event["rank"] in begun:
            taken.append(event["t"] - begun[event["rank"]])
    if not taken:
        raise BenchFailed(f"no rank told how long its phase {COMPILING!r} took")
    return float(round(max(taken), 2))


def _most(result: Result, counter: str) -> int:
    return max(int(rank["counters"][counter]) for rank in result["ranks"])


def _least(result: Result, counter: str) -> int:
    return min(int(rank["counters"][counter]) for rank in result["ranks"])


def _rewritten(result: Result) -> int:
    """All-reduces that the SP pass has rewritten, on the rank where they are fewest."""
    return min(
        sum(int(graph["all_reduce_before"]) - int(graph["all_reduce_after"]) for graph in rank["census"])
        for rank in result["ranks"]
    )


def _peaks(result: Result) -> list[int]:
    """Rank by rank."""
    return [rank["peak_rss_bytes"] // MIB for rank in result["ranks"]]
