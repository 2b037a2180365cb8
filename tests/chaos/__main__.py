"""``python -m chaos``: kill at random what drives sweeps, until all of them have ended.

A cluster of two Ray nodes, a served controller, the null engine. Killed are, by their process ids and only of this
test's own processes: the controller, actors, engines (main process or rank), and the raylet of the second node. A
controller is served anew, a node added anew; whatever else is needed the controller has to do. The order of the
kinds and the waits between are drawn from the seed. Which process of a kind is hit hangs on what runs at that moment.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from chaos.own import left, processes
from chaos.scene import Scene

DECK = ["engine"] * 4 + ["actor"] * 4 + ["controller", "raylet"]
"""Of ten kills. A controller or a node takes seconds to come back, an engine or an actor is one of many."""

MARKS = {"engine": "workers.null_engine", "actor": "RunActor", "controller": "service.launch serve"}
"""In command lines. The command that a user types is not the controller: that runs below its supervisor."""

LONGEST_WAIT_S = 0.8
PATIENCE_S = 120.0
LAST_PATIENCE_S = 900.0
GONE_S = 60.0


def kinds(seed: int, kills: int) -> Iterator[tuple[str, float]]:
    """What is killed next, and after how many seconds."""
    draw = random.Random(seed)
    while kills > 0:
        for kind in draw.sample(DECK, len(DECK))[:kills]:
            yield kind, draw.uniform(0.0, LONGEST_WAIT_S)
        kills -= len(DECK)


def find(kind: str, scratch: Path, draw: random.Random, struck: set[int]) -> psutil.Process | None:
    """A process of that kind that runs now, if there is one. Those that were ``struck`` may take a while to go."""
    found = [
        process
        for process, line in processes(scratch)
        if MARKS[kind] in line and "workers.supervisor" not in line and process.pid not in struck
    ]
    return draw.choice(sorted(found, key=lambda process: process.pid)) if found else None


def strike(kind: str, scene: Scene, draw: random.Random, struck: set[int]) -> int:
    """Kill a process of that kind as soon as there is one; its id."""
    if kind == "raylet":
        return scene.kill_raylet()
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        scene.keep_busy()
        victim = find(kind, scene.scratch, draw, struck)
        if victim is not None:
            try:
                victim.kill()
            except psutil.NoSuchProcess:
                continue
            return victim.pid
        time.sleep(0.05)
    raise TimeoutError(f"no {kind} to be killed for {PATIENCE_S:g} s")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    for name, default in (("seed", 0), ("kills", 200), ("cells", 300)):
        parser.add_argument(f"--{name}", type=int, default=default)
    for name in ("home", "recording", "reply"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    asked = parser.parse_args()
    scratch = Path(tempfile.gettempdir())
    draw = random.Random(asked.seed)
    killed = []
    began = time.monotonic()
    with Scene(asked.home, scratch, asked.cells, asked.recording) as scene:
        for kind, wait in kinds(asked.seed, asked.kills):
            time.sleep(wait)
            pid = strike(kind, scene, draw, {kill["pid"] for kill in killed})
            killed.append({"kind": kind, "pid": pid, "at_s": round(time.monotonic() - began, 2)})
            print(killed[-1], flush=True)
            if kind == "controller":
                scene.serve()
        scene.submit_the_rest()
        scene.wait_for_the_end(LAST_PATIENCE_S)
    reply = {
        "killed": killed,
        "sweeps": scene.submitted,
        "unasked": scene.unasked,
        "left": left(scratch, GONE_S),
        "seconds": time.monotonic() - began,
    }
    asked.reply.write_text(json.dumps(reply, indent=1))


if __name__ == "__main__":
    main()
