"""Why a warm start did not find what a cold one had saved: the factors of vLLM's cache key, compared.

vLLM keeps what it compiles under ``torch_compile_cache/HASH/rank_RANK_DATA/PART/`` in its cache root, and notes there
in ``cache_key_factors.json`` what the hash was made of: its environment variables one by one (``env``), and the hashes
of the configuration, the model's code and the compiler. A start whose key is another writes another folder.

The actor uses this module, so it imports nothing of the engine.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from workers.protocol import KeyDifference, KeyFactor

KEPT = "cache-keys"
"""Folder beside an arm's log with the keys that the arm added."""

COMPILED = "torch_compile_cache"
FACTORS = "cache_key_factors.json"
LONGEST = 60

_ABSENT = "absent"


def keep(cache_root: Path, folder: Path, earlier: Iterable[Path] = ()) -> None:
    """Copy the keys in ``cache_root`` that no arm of the folders ``earlier`` had added to ``folder``.

    A key that cannot be copied is left out: a full disk costs the explanation and nothing else.
    """
    compiled = cache_root / COMPILED
    known = {path for other in earlier for path in _relative(other / KEPT)}
    for path in [path for path in _relative(compiled) if path not in known]:
        target = folder / KEPT / path
        with contextlib.suppress(OSError):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(compiled / path, target)


def key_files(cache_root: Path) -> list[Path]:
    """The files in ``cache_root`` that say what its keys were made of."""
    return [cache_root / COMPILED / path for path in _relative(cache_root / COMPILED)]


def _relative(root: Path) -> list[Path]:
    return sorted(path.relative_to(root) for path in root.glob(f"*/rank_*/**/{FACTORS}"))


def differences(cold: Path, warm: Path, ranks: Iterable[int]) -> list[KeyDifference]:
    """The factors in which the keys kept in the arm folder ``warm`` differ from those in ``cold``, for each rank.

    A rank that added no key of its own used the cold start's: nothing in it changed.
    """
    before, after = _by_rank(cold / KEPT), _by_rank(warm / KEPT)
    return [found for rank in ranks for found in _of_rank(rank, before.get(rank, {}), after.get(rank, {}))]


def _by_rank(kept: Path) -> dict[int, dict[str, Path]]:
    """Rank → part of the model that was compiled by itself → file."""
    found: dict[int, dict[str, Path]] = {}
    for path in _relative(kept):
        _, rank, *part, _ = path.parts
        found.setdefault(int(rank.split("_")[1]), {})["/".join(part)] = kept / path
    return found


def _of_rank(rank: int, before: Mapping[str, Path], after: Mapping[str, Path]) -> Iterator[KeyDifference]:
    if not before:
        yield KeyDifference(rank=rank, problem="the cold start left no cache key to compare with")
    elif not after:
        yield KeyDifference(rank=rank)
    for part, path in after.items() if before else ():
        if part in before:
            yield _of_part(rank, part, before[part], path)
        else:
            yield KeyDifference(rank=rank, part=part, problem="the cold start did not compile this part")


def _of_part(rank: int, part: str, cold: Path, warm: Path) -> KeyDifference:
    try:
        factors = [dict(_flat(json.loads(path.read_text()))) for path in (cold, warm)]
    except (OSError, ValueError) as error:
        return KeyDifference(rank=rank, part=part, problem=f"a cache key cannot be read: {error}")
    return KeyDifference(rank=rank, part=part, changed=changed(*factors))


def changed(cold: Mapping[str, str], warm: Mapping[str, str]) -> list[KeyFactor]:
    """The entries that differ, in order of their names; long values cut to where they do."""
    names = sorted(cold.keys() | warm.keys())
    pairs = [(name, cold.get(name, _ABSENT), warm.get(name, _ABSENT)) for name in names]
    return [KeyFactor(name=name, cold=_cut(a, b), warm=_cut(b, a)) for name, a, b in pairs if a != b]


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Dotted path → value as JSON."""
    if isinstance(value, dict) and (value or not path):
        for key, item in value.items():
            yield from _flat(item, f"{path}.{key}" if path else key)
    else:
        yield path, json.dumps(value, sort_keys=True)


def _cut(text: str, other: str) -> str:
    """``text``, or the part of it around the first character in which it differs from ``other``."""
    if len(text) <= LONGEST:
        return text
    pairs = enumerate(zip(text, other, strict=False))
    place = next((n for n, (a, b) in pairs if a != b), min(len(text), len(other)))
    begin = max(0, min(place - LONGEST // 2, len(text) - LONGEST))
    end = begin + LONGEST
    return f"{'…' if begin else ''}{text[begin:end]}{'…' if end < len(text) else ''}"
