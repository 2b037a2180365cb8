"""Small packages that pip builds for real, without any network. Each says when it is built, and can be told to wait."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

BACKEND = """
import os, pathlib, zipfile
HERE = pathlib.Path(__file__).parent

def get_requires_for_build_wheel(config_settings=None):
    return []

def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    with (HERE / "built").open("a") as log:
        log.write("built\\n")
    if (HERE / "started").exists():
        (HERE / "started").write_text("x")
        (HERE / "go_on").read_text()
    name = "{name}-{version}-py3-none-any.whl"
    info = "{name}-{version}.dist-info"
    files = {{
        info + "/METADATA": "Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n",
        info + "/WHEEL": "Wheel-Version: 1.0\\nGenerator: tests\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
        **{{module + ".py": "version = '{version}'\\n" for module in {modules!r}}},
    }}
    record = "".join(f + ",,\\n" for f in files) + info + "/RECORD,,\\n"
    with zipfile.ZipFile(os.path.join(wheel_directory, name), "w") as archive:
        for path, text in (files | {{info + "/RECORD": record}}).items():
            archive.writestr(path, text)
    return name
"""

ENGINE = ("vllm", "torch")
"""Modules without which no engine runs; here they hold a version and no more."""

PROVIDE = """
import sys
from workers.environments.lock import Lock
from workers.environments.provide import provided
from workers.protocol import EnvironmentSpec
if sys.argv[2] == "unlocked":
    Lock.share = Lock.alone = lambda self: None
with provided(EnvironmentSpec.model_validate_json(sys.argv[1]), sys.executable) as found:
    print(found.python)
"""


@dataclass(frozen=True)
class Project:
    """``name`` is the distribution's; ``held``: a build says so, and waits until it is let go on."""

    folder: Path
    name: str

    @property
    def requirement(self) -> str:
        return f"{self.name} @ {self.folder.as_uri()}"

    @property
    def builds(self) -> int:
        log = self.folder / "built"
        return len(log.read_text().splitlines()) if log.exists() else 0

    def hold(self) -> None:
        for name in ("started", "go_on"):
            os.mkfifo(self.folder / name)

    def wait_until_held(self) -> None:
        (self.folder / "started").read_text()

    def go_on(self) -> None:
        """Let the build that waits end, and later ones not wait."""
        (self.folder / "started").unlink()
        # Open for reading too, this does not wait for somebody who may have been killed.
        pipe = os.open(self.folder / "go_on", os.O_RDWR)
        os.write(pipe, b"x")
        os.close(pipe)


def make(folder: Path, name: str = "tiny", version: str = "1.0", modules: tuple[str, ...] = ENGINE) -> Project:
    folder.mkdir(parents=True)
    (folder / "backend.py").write_text(BACKEND.format(name=name, version=version, modules=modules))
    (folder / "pyproject.toml").write_text(
        f'[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        f'[project]\nname = "{name}"\nversion = "{version}"\n'
    )
    return Project(folder, name)


def provide(spec: str, *, locked: bool = True) -> subprocess.Popen[str]:
    """Have an environment in a process of its own, which prints its interpreter."""
    return subprocess.Popen(
        [sys.executable, "-c", PROVIDE, spec, "locked" if locked else "unlocked"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
