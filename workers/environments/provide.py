"""Have an engine environment: find it by what it is made of, or build it, one builder at a time."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from workers.environments import ours
from workers.environments.build import build, overlay, packages_of, write_mark
from workers.environments.failure import EnvironmentFailure
from workers.environments.interpreter import Interpreter, look
from workers.environments.lock import Lock, opened
from workers.protocol import EnvironmentSpec
from workers.protocol.environments import MARK

LAYOUT = 1
"""Goes up when environments are built otherwise than before."""


@dataclass(frozen=True)
class Provided:
    """``python``: its interpreter. ``description``: what the mark in its folder says, see ``docs/environments.md``."""

    python: str
    folder: Path
    description: dict[str, Any]


@contextlib.contextmanager
def provided(spec: EnvironmentSpec, base: str, building: Callable[[], None] = lambda: None) -> Iterator[Provided]:
    """The environment ``spec``, built if it is not there yet. Inside the block nobody takes it away.

    Args:
        spec: what is wanted.
        base: the default interpreter of this machine.
        building: called before a build, which takes from seconds to minutes.

    Raises:
        EnvironmentFailure: it cannot be had, or no engine can run in it.
    """
    with contextlib.ExitStack() as held:
        try:
            found = _have(spec, base, building, held)
        except EnvironmentFailure as failure:
            raise EnvironmentFailure(f"environment {spec.name}: {failure}") from failure
        except OSError as error:
            raise EnvironmentFailure(f"environment {spec.name}: {error}") from error
        yield found


def _have(spec: EnvironmentSpec, base: str, building: Callable[[], None], held: contextlib.ExitStack) -> Provided:
    source = look(base if spec.interpreter is None else spec.interpreter)
    if spec.interpreter is not None:
        _check(source.missing, f"{source.path} has")
    folder = Path(spec.root, address(spec, source))
    lock = held.enter_context(opened(folder.with_suffix(".lock")))
    description = _ready(folder, lock) or _built(spec, source, folder, lock, building)
    lock.touch()
    _check(description["missing"], "its requirements bring")
    return Provided(str(folder / "bin" / "python"), folder, description)


def address(spec: EnvironmentSpec, source: Interpreter) -> str:
    """Equal for environments of the same content: what is asked for, the interpreter below, the platform, our part.

    An interpreter that was only pointed at is asked for as it is now: with other packages it is another one.
    """
    requirements = None if spec.requirements is None else sorted({str(Requirement(text)) for text in spec.requirements})
    content = {
        "layout": LAYOUT,
        "requirements": requirements,
        "interpreter": None if spec.interpreter is None else [source.path, *source.sites, packages_of(source)],
        "python": [source.implementation, source.version, source.platform],
        "shardproof": [str(ours.code()), ours.version(), ours.NEEDS, ours.ENTRY_POINTS],
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _ready(folder: Path, lock: Lock) -> dict[str, Any] | None:
    """What the mark of ``folder`` says; without a mark it is no environment. The lock is then shared."""
    lock.share()
    return read_mark(folder)


def read_mark(folder: Path) -> dict[str, Any] | None:
    try:
        return dict(json.loads((folder / MARK).read_text()))
    except (OSError, ValueError):
        return None


def _built(
    spec: EnvironmentSpec, source: Interpreter, folder: Path, lock: Lock, building: Callable[[], None]
) -> dict[str, Any]:
    while True:
        lock.alone()
        if read_mark(folder) is None:
            building()
            _build(spec, source, folder)
        # To share a lock is to let go of it first: somebody may collect the environment in between.
        description = _ready(folder, lock)
        if description is not None:
            return description


def _build(spec: EnvironmentSpec, source: Interpreter, folder: Path) -> None:
    # Its builder was killed, or it was taken away in part.
    shutil.rmtree(folder, ignore_errors=True)
    log = folder.with_suffix(".log")
    log.unlink(missing_ok=True)
    begin = time.monotonic()
    try:
        found = (
            overlay(folder, source, log) if spec.requirements is None else build(folder, spec.requirements, source, log)
        )
        finished = look(str(folder / "bin" / "python"))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    content = {
        "name": spec.name,
        "address": folder.name,
        "requirements": spec.requirements,
        "interpreter": spec.interpreter,
        "python": finished.version,
        "platform": finished.platform,
        "missing": finished.missing,
        "seconds": round(time.monotonic() - begin, 3),
        **asdict(found),
    }
    write_mark(folder / MARK, content)


def _check(missing: list[str], who: str) -> None:
    if missing:
        what = "vLLM" if "vllm" in missing else ", ".join(missing)
        raise EnvironmentFailure(f"{who} no {what}: no engine can run there")
