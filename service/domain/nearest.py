"""Which known word did somebody mean?"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher

_LONGEST = 100


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word most like ``word``; ``None`` only if none is known.

    Dotted words are compared as a whole and by their last part, whichever is more alike, so that a key that was written
    without its parents is found. Case, and ``-`` for ``_``, do not count.
    """
    written = _plain(word)
    matchers = (SequenceMatcher(b=written, autojunk=False), SequenceMatcher(b=_last(written), autojunk=False))
    best: str | None = None
    best_score = (-1.0, -1.0)
    for candidate in known:
        score = _score(matchers, _plain(candidate), best_score)
        if score > best_score:
            best, best_score = candidate, score
    return best


def _score(
    matchers: tuple[SequenceMatcher[str], SequenceMatcher[str]], candidate: str, best: tuple[float, float]
) -> tuple[float, float]:
    """The higher of both likenesses, then that of the whole; no better than ``best`` where it is not worth knowing."""
    whole_matcher, last_matcher = matchers
    last = _ratio(last_matcher, _last(candidate), best[0])
    beaten, whole_to_beat = best
    if last > beaten:
        whole_to_beat = 0.0
    elif last < beaten:
        whole_to_beat = beaten
    whole = _ratio(whole_matcher, candidate, whole_to_beat)
    return max(whole, last), whole


def _ratio(matcher: SequenceMatcher[str], candidate: str, at_least: float) -> float:
    """The likeness from 0 to 1, or 0 where cheap upper bounds tell that it is below ``at_least``."""
    matcher.set_seq1(candidate)
    if matcher.real_quick_ratio() < at_least or matcher.quick_ratio() < at_least:
        return 0.0
    return matcher.ratio()


def _plain(word: str) -> str:
    return word[-_LONGEST:].lower().lstrip("-").replace("-", "_")


def _last(word: str) -> str:
    return word.rpartition(".")[2]
