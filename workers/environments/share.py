"""Packages that an environment has in common with the default one: one file on disk, two names.

pip resolves with the default interpreter's packages in view, so it installs only what has to differ. What else is
needed is then linked file by file. A link is no copy and no reference: the environment keeps its files whatever becomes
of the other one. pip never writes into a file that is there, it unlinks it first.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from workers.environments.vllm_cpu import LEFT_OUT, applies

Distributions = dict[str, metadata.Distribution]


def distributions(sites: Iterable[str]) -> Distributions:
    """What is installed in folders of packages, by canonical name; of two the first, as Python imports it."""
    found: Distributions = {}
    for distribution in metadata.distributions(path=list(sites)):
        name = distribution.metadata["Name"]
        if name:
            found.setdefault(canonicalize_name(name), distribution)
    return found


def closure(roots: Iterable[Requirement], installed: Distributions, markers: Mapping[str, str]) -> set[str]:
    """Canonical names of all that ``roots`` lead to among what is ``installed``."""
    reached: set[str] = set()
    seen: set[tuple[str, str]] = set()
    queue = [(canonicalize_name(root.name), extra) for root in roots for extra in ("", *root.extras)]
    while queue:
        name, extra = queue.pop()
        if (name, extra) in seen or name not in installed:
            continue
        seen.add((name, extra))
        reached.add(name)
        for needed in map(Requirement, installed[name].requires or []):
            child = canonicalize_name(needed.name)
            if child not in LEFT_OUT and applies(needed, [extra] if extra else [], markers):
                queue += [(child, inner) for inner in ("", *needed.extras)]
    return reached


def link(distribution: metadata.Distribution, prefix: Path, folder: Path) -> bool:
    """Give the environment at ``folder`` the files of ``distribution``, which lies in the one at ``prefix``.

    Returns:
        ``False``, and nothing is done, where it has no list of its files.
    """
    files = distribution.files
    if files is None or not files:
        return False
    for file in files:
        source = Path(os.path.normpath(str(distribution.locate_file(file))))
        if source.is_relative_to(prefix) and source.is_file():
            _link(source, folder / source.relative_to(prefix), prefix)
    return True


def _link(source: Path, target: Path, prefix: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    named = _interpreter_of(source, prefix) if target.parent.name == "bin" else None
    if named is not None:
        shutil.copy2(source, target)
        _let_start(target, named)
        return
    try:
        os.link(source, target)
    except OSError:  # another file system, or another owner
        shutil.copy2(source, target)


def _interpreter_of(script: Path, prefix: Path) -> bytes | None:
    """The name of its environment by which ``script`` starts an interpreter; ``None`` where it starts none of there."""
    with script.open("rb") as file:
        first = file.readline(1000)
    names = (os.fsencode(path) for path in (prefix, prefix.resolve()))
    return next((name for name in names if first.startswith(b"#!" + name + b"/")), None)


def _let_start(script: Path, named: bytes) -> None:
    """Start the interpreter of the environment that ``script`` is in now."""
    first, newline, rest = script.read_bytes().partition(b"\n")
    own = os.fsencode(script.parent.parent)
    script.write_bytes(first.replace(named, own) + newline + rest)


def size(folder: Path) -> tuple[int, int]:
    """(bytes that go when ``folder`` goes, bytes that it shares with others)."""
    own = shared = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                status = os.lstat(os.path.join(root, name))
                own += status.st_size if status.st_nlink == 1 else 0
                shared += status.st_size if status.st_nlink > 1 else 0
    return own, shared
