"""The algebra of axes, exclude and include, as GitHub Actions defines it for ``strategy.matrix``.

It works on flat settings: an axis value that is a mapping counts as the settings in it, so ``{"a": {"b": 1}}`` in an
include or exclude entry means the same as ``{"a.b": 1}``.

Source: https://docs.github.com/en/actions/using-jobs/using-a-matrix-for-your-jobs
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from service.domain.setting import Entry, Setting


@dataclass
class Combination:
    """``original``: what the axes gave; nothing overwrites it. ``added``: what include entries gave, later ones last.

    ``include``: index of the include entry that the combination was made of; ``None`` when the axes made it.
    """

    original: Entry
    added: dict[str, Setting] = field(default_factory=dict)
    include: int | None = None


def product(axes: Sequence[Sequence[Entry]]) -> list[Entry]:
    """Every choice of one value per axis, the first axis slowest. Without axes there is none.

    The caller has made sure that the lengths multiply to something that fits in memory.
    """
    if not axes:
        return []
    return [_union(choice) for choice in itertools.product(*axes)]


def exclude(originals: Iterable[Entry], entries: Sequence[Entry]) -> list[Entry]:
    """The combinations that no entry matches. An entry matches when all of its settings are in the combination."""
    return [original for original in originals if not any(_matches(entry, original) for entry in entries)]


def include(originals: Iterable[Entry], entries: Sequence[Entry]) -> list[Combination]:
    """Add each entry to every combination of the axes that it does not contradict, or else as one of its own.

    What earlier entries added may be overwritten. Combinations of its own take nothing from later entries.
    """
    combinations = [Combination(original) for original in originals]
    own: list[Combination] = []
    for index, entry in enumerate(entries):
        hosts = [combination for combination in combinations if _agrees(entry, combination.original)]
        for host in hosts:
            host.added.update(entry)
        if not hosts:
            own.append(Combination({}, dict(entry), index))
    return combinations + own


def _union(choice: Iterable[Entry]) -> Entry:
    return {key: setting for entry in choice for key, setting in entry.items()}


def _matches(entry: Entry, original: Entry) -> bool:
    return all(key in original and original[key].form == setting.form for key, setting in entry.items())


def _agrees(entry: Entry, original: Entry) -> bool:
    return all(key not in entry or entry[key].form == setting.form for key, setting in original.items())
