"""Shardproof's own part of an engine environment: the code of engine processes, and the hooks that vLLM looks for."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import workers

NEEDS = ("numpy>=2", "psutil>=6", "pydantic>=2.12")
"""What the code of engine processes imports, as Shardproof itself requires it."""

ENTRY_POINTS = {
    "vllm.platform_plugins": "shardproof = workers.platforms:register",
    "vllm.general_plugins": "shardproof = workers.engine.plugin:register",
}


ISOLATION = "00-shardproof.pth"
"""Python runs such a file as it starts, in the order of their names: this one before any that adds folders."""

_ISOLATE = """\
import os, sys; [sys.path.remove(p) for p in os.environ.pop("PYTHONPATH", "").split(os.pathsep) if p in sys.path]
"""


def code() -> Path:
    """The package ``workers`` as it runs here. Engines everywhere run the code of who starts them."""
    (folder,) = workers.__path__
    return Path(folder).resolve()


def version() -> str:
    try:
        return metadata.version("shardproof")
    except metadata.PackageNotFoundError:
        return "0"


def put_into(site: Path) -> None:
    """Let the folder of packages ``site`` have Shardproof: a link to its code, and metadata with its hooks.

    Its interpreter then sees no packages by way of ``PYTHONPATH``, which were meant for another one.
    """
    (site / ISOLATION).write_text(_ISOLATE)
    (site / code().name).symlink_to(code(), target_is_directory=True)
    folder = site / f"shardproof-{version()}.dist-info"
    folder.mkdir()
    files = {
        "METADATA": f"Metadata-Version: 2.1\nName: shardproof\nVersion: {version()}\n",
        "INSTALLER": "shardproof\n",
        "entry_points.txt": "".join(f"[{group}]\n{entry}\n\n" for group, entry in ENTRY_POINTS.items()),
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    (folder / "RECORD").write_text("".join(f"{folder.name}/{name},,\n" for name in (*files, "RECORD")))
