"""Which operations Inductor falls back for by way of its log line, and what making the text for it costs.

Inductor makes a fallback once per operation and process. On the slow path it describes the operation and its inputs
for a log line; an operation on the allow list goes past that. Both are wrapped where the lowering looks them up. Before
the counts are told, a call of our own is put through it: where that is not seen, the counts are unknown, not zero.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch

from workers.engine.internals import (
    ALLOW_LIST,
    CALL_FUNCTION,
    GRAPH,
    MAKE_FALLBACK,
    OPERATOR_ISSUES,
    OPERATOR_STR,
    TargetMissing,
    resolve,
)
from workers.protocol import FallbackOp, RankFallback

PURPOSE = "count the fallbacks that take the slow path"
NOT_INSTALLED = "the probe was not installed in this process"

torch.library.define("shardproof::never_lowered", "(Tensor x) -> Tensor")


class _Reached(Exception):
    """Our own call came to where a fallback would be made for it, and stops there."""


class Unseen(RuntimeError):
    """Inductor makes fallbacks by another way than the one that is wrapped."""

    def __init__(self, what: str) -> None:
        super().__init__(f"fallbacks cannot be counted in this version of PyTorch: a call of our own {what}")


class _Witness:
    """An input that knows whether it was formatted."""

    formatted = False

    def __repr__(self) -> str:
        self.formatted = True
        return type(self).__name__


@dataclass
class _Count:
    calls: int = 0
    seconds: float = 0.0
    characters: int = 0


class FallbackProbe:
    """The counts of this process, from ``install`` on."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []
        self._problem = NOT_INSTALLED
        self._trying = False
        self.forget()

    def forget(self) -> None:
        """Begin to count anew."""
        self._slow: dict[str, _Count] = {}
        self._fast = 0

    def install(self) -> None:
        """Count from now on. Where a name is gone, that is the reason why nothing is counted."""
        if self._undo:
            return
        try:
            make = resolve(f"{GRAPH}:{MAKE_FALLBACK}", PURPOSE)
            resolve(f"{GRAPH}:{ALLOW_LIST}", PURPOSE)
            issues = [(resolve(path, PURPOSE), resolve(f"{path}.{OPERATOR_STR}", PURPOSE)) for path in OPERATOR_ISSUES]
        except TargetMissing as missing:
            self._problem = str(missing)
            return
        self._put(importlib.import_module(GRAPH), MAKE_FALLBACK, self._counted(make))
        for issue, formatter in issues:
            self._put(issue, OPERATOR_STR, staticmethod(self._timed(formatter)))

    def remove(self) -> None:
        """Give back what ``install`` replaced."""
        while self._undo:
            self._undo.pop()()
        self._problem = NOT_INSTALLED

    def told(self, rank: int) -> RankFallback:
        """What was counted on this rank, or why nothing could be."""
        try:
            eager = self._try()
        except (TargetMissing, Unseen) as missing:
            return RankFallback(rank=rank, reason=str(missing))
        if eager is None:
            return RankFallback(rank=rank, reason=self._problem)
        ops = [
            FallbackOp(op=name, calls=count.calls, slow_path_s=count.seconds, characters=count.characters)
            for name, count in self._slow.items()
        ]
        return RankFallback(
            rank=rank,
            calls=sum(op.calls for op in ops),
            fast_calls=self._fast,
            slow_path_s=sum(op.slow_path_s for op in ops),
            characters=sum(op.characters for op in ops),
            eager=eager,
            ops=ops,
        )

    # --- what is put around the originals ---------------------------------------------------------------------------

    def _counted(self, make: Callable[..., Any]) -> Callable[..., Any]:
        def make_fallback(op: Any, *args: Any, **kwargs: Any) -> Any:
            if self._trying:
                raise _Reached
            # Asked as the lowering asks, of the list that it has just now.
            if _name(op) in resolve(f"{GRAPH}:{ALLOW_LIST}", PURPOSE):
                self._fast += 1
            else:
                self._of(op).calls += 1
            return make(op, *args, **kwargs)

        return make_fallback

    def _timed(self, formatter: Callable[..., str]) -> Callable[..., str]:
        def operator_str(target: Any, *args: Any, **kwargs: Any) -> str:
            begin = time.perf_counter()
            text = formatter(target, *args, **kwargs)
            if not self._trying:
                count = self._of(target)
                count.seconds += time.perf_counter() - begin
                count.characters += len(text)
            return text

        return operator_str

    def _of(self, op: Any) -> _Count:
        return self._slow.setdefault(_name(op), _Count())

    def _put(self, owner: Any, name: str, value: Any) -> None:
        before = vars(owner).get(name)
        setattr(owner, name, value)
        self._undo.append(lambda: delattr(owner, name) if before is None else setattr(owner, name, before))

    # --- the call of our own ----------------------------------------------------------------------------------------

    def _try(self) -> bool | None:
        """Whether this torch formats although nobody reads the log; ``None`` when the probe is not installed.

        Raises:
            TargetMissing: when there is nothing to put our call to.
            Unseen: when it did not come by the places that are wrapped.
        """
        if not self._undo:
            return None
        lower = resolve(CALL_FUNCTION, PURPOSE)
        witness = _Witness()
        graph = SimpleNamespace(get_decomp_fn=None, is_backward=False)
        self._trying = True
        try:
            with _nobody_reads():
                lower(graph, torch.ops.shardproof.never_lowered.default, (witness,), {})
        except _Reached:
            return witness.formatted
        except Exception as error:
            raise Unseen(f"ended as {type(error).__name__}: {error}") from error
        finally:
            self._trying = False
        raise Unseen(f"did not come by {MAKE_FALLBACK}")


def _name(op: Any) -> str:
    """As the allow list has it: without the overload."""
    return str(op.name()).split(".")[0]


@contextlib.contextmanager
def _nobody_reads() -> Iterator[None]:
    """Text that is made for a log line now is made in any case."""
    before = logging.root.manager.disable
    logging.disable(max(before, logging.INFO))
    try:
        yield
    finally:
        logging.disable(before)


PROBE = FallbackProbe()
"""This process's own."""
