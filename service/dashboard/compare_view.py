"""What differs between two cells: settings, versions, phases, side by side. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service.dashboard.amounts import amount, ratio
from service.dashboard.formats import NOTHING, value

Json = Mapping[str, Any]

VERSIONS = ("name", "address", "vllm", "torch", "ray", "python", "device", "devices", "cores")
"""Of a cell's environment, in the order that they are shown."""

_STARTS = ("cold", "warm")


@dataclass(frozen=True)
class Pair:
    """Something that both have, or one of them, as text."""

    name: str
    a: str
    b: str

    @property
    def differs(self) -> bool:
        return self.a != self.b


@dataclass(frozen=True)
class TimedPair:
    """``by``: how much longer or more B is than A; ``change``: in hundredths of A."""

    name: str
    a: str
    b: str
    by: str
    change: str


@dataclass(frozen=True)
class Times:
    """One kind of start."""

    title: str
    total: TimedPair
    phases: Sequence[TimedPair]


@dataclass(frozen=True)
class Comparison:
    """``same``: so many settings that are alike, and are shown only on demand."""

    a: Json
    b: Json
    settings: Sequence[Pair]
    same: int
    versions: Sequence[Pair]
    figures: Sequence[TimedPair]
    times: Sequence[Times]


def comparison(a: Json, b: Json, everything: bool = False) -> Comparison:
    """Two cells of reports side by side. ``everything``: with what is alike."""
    settings = _settings(a, b)
    differing = [pair for pair in settings if pair.differs]
    return Comparison(
        a=a,
        b=b,
        settings=settings if everything else differing,
        same=len(settings) - len(differing),
        versions=_versions(a, b),
        figures=_figures(a, b),
        times=[times for kind in _STARTS for times in _times(kind, a["compile"][kind], b["compile"][kind])],
    )


def _settings(a: Json, b: Json) -> list[Pair]:
    of_a, of_b = _resolved(a), _resolved(b)
    return [Pair(key, _shown(of_a, key), _shown(of_b, key)) for key in sorted({*of_a, *of_b})]


def _resolved(cell: Json) -> Json:
    """As the engine resolved them; of a cell that was never audited, as they were asked for."""
    settings: Json = cell["requested"] if cell["effective"] is None else cell["effective"]
    return settings


def _shown(settings: Json, key: str) -> str:
    return value(settings[key]) if key in settings else NOTHING


def _versions(a: Json, b: Json) -> list[Pair]:
    one, other = a["environment"], b["environment"]
    named = [Pair(name, _word(one.get(name)), _word(other.get(name))) for name in VERSIONS]
    patches = [
        Pair(f"patch {name}", _word(one["patches"].get(name)), _word(other["patches"].get(name)))
        for name in sorted({*one["patches"], *other["patches"]})
    ]
    return [pair for pair in [*named, *patches] if (pair.a, pair.b) != (NOTHING, NOTHING)]


def _word(item: object) -> str:
    return NOTHING if item is None else str(item)


def _times(kind: str, a: Json | None, b: Json | None) -> Iterable[Times]:
    if a is None and b is None:
        return
    of_a, of_b = _phases(a), _phases(b)
    names = list(dict.fromkeys([*of_a, *of_b]))
    # What differs most comes first; a phase that one of them lacks took no time there.
    names.sort(key=lambda name: -abs(of_b.get(name, 0.0) - of_a.get(name, 0.0)))
    yield Times(
        title=f"{kind} start",
        total=_pair("total", _total(a), _total(b)),
        phases=[_pair(name.replace("_", " "), of_a.get(name), of_b.get(name)) for name in names],
    )


def _total(times: Json | None) -> float | None:
    return None if times is None else float(times["total_s"])


def _phases(times: Json | None) -> dict[str, float]:
    """Seconds of each phase on the rank that spent most on it."""
    longest: dict[str, float] = {}
    for rank in [] if times is None else times["ranks"]:
        spent: dict[str, float] = {"unaccounted": rank["unaccounted_s"]}
        for phase in rank["phases"]:
            spent[phase["name"]] = spent.get(phase["name"], 0.0) + phase["s"]
        for name, taken in spent.items():
            longest[name] = max(longest.get(name, 0.0), taken)
    return longest


def _figures(a: Json, b: Json) -> list[TimedPair]:
    pairs = [
        _pair(f"peak memory of a rank, {kind}", _peak(a["compile"][kind]), _peak(b["compile"][kind]), "B")
        for kind in _STARTS
    ]
    pairs.append(_pair("what was compiled", _compiled(a), _compiled(b), "B"))
    return [pair for pair in pairs if (pair.a, pair.b) != (NOTHING, NOTHING)]


def _compiled(cell: Json) -> float | None:
    times: Json | None = cell["compile"]["cold"]
    return None if times is None else times.get("artifact_bytes")


def _peak(times: Json | None) -> float | None:
    peaks = [item["peak_rss_bytes"] for item in ([] if times is None else times["resources"])]
    known = [peak for peak in peaks if peak is not None]
    return max(known) if known else None


def _pair(name: str, a: float | None, b: float | None, unit: str = "s") -> TimedPair:
    return TimedPair(name, amount(a, unit), amount(b, unit), _by(a, b, unit), ratio(b, a))


def _by(a: float | None, b: float | None, unit: str) -> str:
    if a is None or b is None:
        return NOTHING
    sign = "" if a == b else "+" if b > a else "\N{MINUS SIGN}"
    return f"{sign}{amount(abs(b - a), unit)}"
