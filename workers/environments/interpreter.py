"""What an interpreter says of itself. It is asked in a process of its own, and need not be one of ours."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from dataclasses import dataclass

from workers.environments.failure import EnvironmentFailure

OLDEST = (3, 11)
ENGINE_MODULES = ("vllm", "torch", "numpy", "psutil", "pydantic")
"""What an engine process imports, apart from what comes with Shardproof."""

NOT_INHERITED = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__")
"""Variables by which one interpreter would see another one's packages."""

LONGEST_ANSWER = 1 << 20
PATIENCE_S = 60.0

_QUESTION = f"""
import importlib.util, json, os, platform, sys, sysconfig
version = ".".join(map(str, sys.version_info[:3]))
print(json.dumps({{
    "version": version,
    "implementation": sys.implementation.name,
    "platform": sysconfig.get_platform(),
    "prefix": sys.prefix,
    "sites": [p for p in sys.path if os.path.basename(p) in ("site-packages", "dist-packages") and os.path.isdir(p)],
    "purelib": sysconfig.get_paths()["purelib"],
    "modules": [n for n in {(*ENGINE_MODULES, "pip")!r} if importlib.util.find_spec(n) is not None],
    "markers": {{
        "implementation_name": sys.implementation.name,
        "implementation_version": version,
        "os_name": os.name,
        "platform_machine": platform.machine(),
        "platform_python_implementation": platform.python_implementation(),
        "platform_release": platform.release(),
        "platform_system": platform.system(),
        "platform_version": platform.version(),
        "python_full_version": platform.python_version(),
        "python_version": ".".join(platform.python_version_tuple()[:2]),
        "sys_platform": sys.platform,
    }},
}}))
"""


@dataclass(frozen=True)
class Interpreter:
    """``sites``: folders of packages, first the one that wins; ``modules``: which of those we look for can be found.

    ``purelib``: where packages are installed. ``markers``: by which requirements tell machines apart (PEP 508).
    """

    path: str
    version: str
    implementation: str
    platform: str
    prefix: str
    purelib: str
    sites: tuple[str, ...]
    modules: frozenset[str]
    markers: dict[str, str]

    @property
    def missing(self) -> list[str]:
        """What an engine would miss here."""
        return [name for name in ENGINE_MODULES if name not in self.modules]


def look(path: str) -> Interpreter:
    """Ask the interpreter at ``path``.

    Raises:
        EnvironmentFailure: it is not there, cannot be started, or is no Python that is new enough.
    """
    status, printed = _answer([path, "-c", _QUESTION])
    try:
        said = json.loads(printed.splitlines()[-1])
        found = Interpreter(
            path=path, **(said | {"sites": tuple(said["sites"]), "modules": frozenset(said["modules"])})
        )
    except (IndexError, ValueError, TypeError, KeyError):
        last = printed.strip().splitlines()[-1][:200] if printed.strip() else "nothing"
        raise EnvironmentFailure(f"{path} is not a Python interpreter: exit status {status}, it said: {last}") from None
    if tuple(map(int, found.version.split(".")[:2])) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise EnvironmentFailure(f"{path} is Python {found.version}; Shardproof's engines need {oldest} or later")
    return found


def _clean() -> dict[str, str]:
    """This process's variables, without those that lead to this interpreter's packages."""
    return {name: value for name, value in os.environ.items() if name not in NOT_INHERITED}


def _answer(command: list[str]) -> tuple[int, str]:
    """Exit status and what was printed. What is no interpreter may run, or print, for ever."""
    try:
        process = subprocess.Popen(
            command,
            env=_clean(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    except OSError as error:
        raise EnvironmentFailure(f"{command[0]} cannot be started: {error.strerror or error}") from error
    with process:
        patience = threading.Timer(PATIENCE_S, process.kill)
        patience.start()
        try:
            assert process.stdout is not None
            printed = process.stdout.read(LONGEST_ANSWER)
            if len(printed) == LONGEST_ANSWER:
                process.kill()
            return process.wait(), printed.decode(errors="replace")
        finally:
            patience.cancel()
