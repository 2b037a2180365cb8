"""From a stack to the likely cause in words. What matches no signature is called unknown, never guessed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from workers.watchdog.frames import Frame, Stack


class Cause(StrEnum):
    """The likely causes, in the words of a report."""

    FORMATTING = "formatting of the arguments of fallback ops for a log line"
    BROADCAST = "waiting for another process's broadcast"
    COLLECTIVE = "waiting for other ranks in a collective"
    DEVICE = "waiting for the device"
    COMPILER = "waiting for the C++ compiler"
    AUTOTUNING = "autotuning of kernels"
    LOCK = "waiting for the lock of a shared cache"
    NETWORK = "waiting for the network"
    UNKNOWN = "unknown"


WAITS_FOR_OTHERS = frozenset({Cause.BROADCAST, Cause.COLLECTIVE, Cause.DEVICE})
"""Causes that lie in another process. The device is one: a collective waits there for the other ranks."""

COMPILERS = re.compile(r"^(?:cc1plus|c\+\+|g\+\+|gcc|clang\+\+|clang|nvcc|ptxas|ninja)(?:-\d+)?$")


@dataclass(frozen=True)
class Reading:
    """``where``: the frame that tells, or the innermost one of an unknown stack. ``None``: there is no stack."""

    cause: Cause
    where: Frame | None

    @property
    def waits(self) -> bool:
        return self.cause in WAITS_FOR_OTHERS

    def __str__(self) -> str:
        return str(self.cause) if self.where is None else f"{self.cause}, in {self.where.short()}"


@dataclass(frozen=True)
class _Signature:
    """A frame of ``file`` and ``function`` means ``cause``.

    ``inside``: one of the frames that it called is of this file. ``only``: all of them are.
    """

    cause: Cause
    file: re.Pattern[str]
    function: re.Pattern[str] = re.compile("")
    inside: re.Pattern[str] | None = None
    only: re.Pattern[str] | None = None

    def fits(self, frame: Frame, called: Sequence[Frame]) -> bool:
        if not (self.file.search(frame.file) and self.function.search(frame.function)):
            return False
        if self.inside is not None and not any(self.inside.search(inner.file) for inner in called):
            return False
        return self.only is None or all(self.only.search(inner.file) for inner in called)


def _signature(cause: Cause, file: str, function: str = "", **inner: str) -> _Signature:
    patterns = {name: re.compile(pattern) for name, pattern in inner.items()}
    return _Signature(cause, re.compile(file), re.compile(function), **patterns)


_LIBRARY = r"/lib/python\d[^/]*/"
_SUBPROCESS = rf"{_LIBRARY}subprocess\.py$"
_PLUMBING = (
    rf"/torch/distributed/|/torch/_ops\.py$|/vllm/distributed/|/zmq/|"
    rf"{_LIBRARY}(?:threading|selectors|contextlib|multiprocessing/[a-z_]+)\.py$"
)
"""Files that a process passes through while it waits for others; in any other frame it would be doing something."""

_SIGNATURES = (
    _signature(Cause.FORMATTING, r"/torch/_inductor/exc\.py$", r"\boperator_str$"),
    _signature(Cause.FORMATTING, r"/torch/_inductor/ir\.py$", r"\b(?:__str__|__repr__|str_helper)$"),
    _signature(Cause.BROADCAST, r"/shm_broadcast\.py$", only=_PLUMBING),
    _signature(Cause.COLLECTIVE, r"/torch/distributed/", only=_PLUMBING),
    _signature(Cause.COLLECTIVE, r"/vllm/distributed/", only=_PLUMBING),
    _signature(Cause.DEVICE, r"/torch/(?:cuda|accelerator)/", r"^(?:synchronize|wait|wait_event)$"),
    _signature(
        Cause.COMPILER,
        r"/torch/(?:_inductor/(?:cpp_builder|codecache|cpu_vec_isa)|utils/cpp_extension)\.py$",
        inside=_SUBPROCESS,
    ),
    _signature(Cause.AUTOTUNING, r"/torch/_inductor/select_algorithm\.py$", r"autotune|benchmark"),
    _signature(Cause.AUTOTUNING, r"/torch/_inductor/(?:autotune_process|runtime/benchmarking)\.py$"),
    _signature(Cause.AUTOTUNING, r"/torch/_inductor/runtime/triton_heuristics\.py$", r"bench|autotune|coordinate"),
    _signature(Cause.AUTOTUNING, r"/triton/(?:runtime/autotuner|testing)\.py$"),
    _signature(Cause.LOCK, r"/filelock/|/torch/utils/_filelock\.py$", r"acquire|^__enter__$"),
    _signature(Cause.NETWORK, r"/(?:requests|urllib3|httpx|httpcore|huggingface_hub)/"),
    _signature(Cause.NETWORK, rf"{_LIBRARY}(?:ssl|http/client)\.py$"),
    _signature(Cause.NETWORK, rf"{_LIBRARY}socket\.py$", r"^(?:create_connection|getaddrinfo|readinto)$"),
)

_WAITS_FOR_A_THREAD = re.compile(rf"{_LIBRARY}(?:threading|concurrent/futures/[a-z_]+)\.py$")


def read(stack: Stack, others: Iterable[Stack] = ()) -> Reading:
    """What the process does. ``others``: stacks of the same tree; a compiler among its children tells something too.

    The main thread tells. Where it waits for another one of its process, that one may.
    """
    frames = stack.main
    found = _reading(frames)
    if found.cause is not Cause.UNKNOWN or not frames:
        return found
    if any(re.search(_SUBPROCESS, frame.file) for frame in frames[:4]) and _compiles(stack, others):
        return Reading(Cause.COMPILER, frames[0])
    if _WAITS_FOR_A_THREAD.search(frames[0].file):
        working = [_reading(thread.frames) for thread in stack.threads if not thread.main]
        told = [reading for reading in working if reading.cause is not Cause.UNKNOWN and not reading.waits]
        return told[0] if told else found
    return found


def _reading(frames: Sequence[Frame]) -> Reading:
    """The innermost frame that any signature fits tells."""
    for depth, frame in enumerate(frames):
        for signature in _SIGNATURES:
            if signature.fits(frame, frames[:depth]):
                return Reading(signature.cause, frame)
    return Reading(Cause.UNKNOWN, frames[0] if frames else None)


def _compiles(stack: Stack, others: Iterable[Stack]) -> bool:
    children = (other.command.partition(" ")[0] for other in others if other.parent == stack.pid)
    return any(COMPILERS.match(command.rpartition("/")[2]) for command in children)
