"""The portions of an arm that other machines have: begun, listened to, ended. The engine that leads is on this one.

Their events go through the arm's own pipe and their files into the arm's folder, as if all ranks were here.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections import Counter
from collections.abc import Iterator, Sequence

import ray

from workers.arms import Arm
from workers.machines.followers import Follower, meet, portion_of
from workers.machines.listener import LOOK_S, Listener
from workers.protocol import ArmSpec, EnvironmentSpec, Machine
from workers.watchdog.frames import Stack

ENDING_S = 120.0
"""How long the followers may take to end their portions and to hand over their files, before they count as lost."""


class Elsewhere:
    """All of them; there may be none. Every machine has equally many of the arm's ``ranks``, in order.

    ``leading``: what this machine has. ``ranks``: how many of them each machine has. ``sizes``: bytes of what the ranks
    of the others keep compiled, by rank, once they have ended.

    Args:
        python: interpreter of the default engine environment there.
        environment: the one that is wanted in its place.
    """

    def __init__(
        self,
        spec: ArmSpec,
        ranks: int,
        followers: Sequence[Follower],
        python: str,
        environment: EnvironmentSpec | None,
    ) -> None:
        self.sizes: Counter[int | None] = Counter()
        self.ranks = ranks // (1 + len(followers))
        self._followers = followers
        portions = meet(1 + len(followers)) if followers else []
        self.leading = portion_of(spec, portions[0]) if portions else spec
        how = (self.ranks, python, None if environment is None else environment.model_dump_json())
        self._listeners = [
            Listener(follower, spec, portion_of(spec, portions[follower.number]), how) for follower in followers
        ]

    def machines(self) -> list[Machine]:
        """Which ranks ran where; empty where all were here."""
        if not self._followers:
            return []
        here = (socket.gethostname(), ray.get_runtime_context().get_node_id())
        places = [here, *((follower.host, follower.node) for follower in self._followers)]
        return [
            Machine(host=host, node=node, ranks=list(range(number * self.ranks, (number + 1) * self.ranks)))
            for number, (host, node) in enumerate(places)
        ]

    @contextlib.contextmanager
    def following(self, arm: Arm) -> Iterator[None]:
        """Have them run inside the block; ``arm`` is told of them. What still runs in the end is ended."""
        try:
            for listener in self._listeners:
                listener.begin(arm)
            yield
        finally:
            for listener in self._listeners:
                listener.ask_to_end()

    def stacks(self) -> list[Stack]:
        """Those of their processes, as far as they can be had."""
        return [stack for listener in self._listeners for stack in listener.stacks()]

    def end(self, arm: Arm) -> None:
        """``arm`` has ended: have them end too, and all that they left be there.

        Raises:
            MachineLost: if one of them is gone, or does not come to an end.
            RayTaskError: if one made an error of its own.
        """
        for listener in self._listeners:
            listener.ask_to_end()
        deadline = time.monotonic() + ENDING_S
        while any(listener.is_alive() for listener in self._listeners) and time.monotonic() < deadline:
            arm.listen()
            for listener in self._listeners:
                listener.join(LOOK_S)
        arm.listen()
        for listener in self._listeners:
            listener.conclude()
            self.sizes.update(listener.sizes)
