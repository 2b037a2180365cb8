"""Files of a run as its cell's page lists them. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from service.artifacts import LOG
from service.dashboard.formats import amount
from service.run_files import Artifact

TOLD = {
    LOG: "log",
    "stacks.txt": "stacks of all processes",
    "events.jsonl": "events",
    "perfetto.json": "trace for Perfetto",
}
"""What a file of an arm is for, by its name."""


@dataclass(frozen=True)
class FileLink:
    """``address``: from the root. ``what``: empty where the name says enough."""

    name: str
    address: str
    size: str
    what: str


@dataclass(frozen=True)
class FilesOfArm:
    """``log``: where the end of the arm's log can be read; empty where it has none. ``first``: what is read most."""

    arm: str
    log: str
    first: Sequence[FileLink]
    others: Sequence[FileLink]


def files_by_arm(run_id: str, artifacts: Sequence[Artifact]) -> list[FilesOfArm]:
    """The arms of a run with what each left, in the order of ``artifacts``."""
    run = f"v1/runs/{quote(run_id, safe='')}"
    arms: dict[str, list[FileLink]] = {}
    for item in artifacts:
        arm, _, name = item.path.partition("/")
        address = f"{run}/artifacts/{quote(item.path)}"
        arms.setdefault(arm, []).append(FileLink(name, address, amount(item.bytes), _what(name)))
    return [_of_arm(run, arm, links) for arm, links in arms.items()]


def _of_arm(run: str, arm: str, links: Sequence[FileLink]) -> FilesOfArm:
    logged = any(link.name == LOG for link in links)
    return FilesOfArm(
        arm=arm,
        log=f"{run}/logs/{quote(arm, safe='')}" if logged else "",
        first=[link for link in links if link.what],
        others=[link for link in links if not link.what],
    )


def _what(name: str) -> str:
    if name in TOLD:
        return TOLD[name]
    if name.endswith("index.html"):
        return "report of tlparse"
    return "trace for Perfetto" if "perfetto" in name else ""
