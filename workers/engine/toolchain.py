"""What the C++ compiler needs and no model changes, made once for all arms that are not timed.

PyTorch compiles its headers, and small programs that tell which vector instructions work, anew in each temporary
folder: a large part of a start on CPU. An arm that is timed makes them itself, as a user's engine would.
"""

from __future__ import annotations

import os
from pathlib import Path

from workers.engine import internals

HEADERS = "precompiled_headers"
VECTORS_WORK = "vector-instructions-work"
VECTORS_ENV = "TORCHINDUCTOR_VEC_ISA_OK"


def share(folder: str) -> None:
    """Let this process and the ranks it will start use the headers in ``folder``, and what is known of vectors."""
    headers = Path(folder) / HEADERS
    headers.mkdir(parents=True, exist_ok=True)
    wanted = internals.header_folder()
    wanted.parent.mkdir(parents=True, exist_ok=True)
    if not wanted.exists():
        wanted.symlink_to(headers, target_is_directory=True)
    if (Path(folder) / VECTORS_WORK).exists():
        os.environ[VECTORS_ENV] = "1"


def remember(folder: str, works_on_ranks: list[bool]) -> None:
    """Note that all vector instructions this processor claims work with this compiler, if every rank found so."""
    if works_on_ranks and all(works_on_ranks):
        (Path(folder) / VECTORS_WORK).touch()
