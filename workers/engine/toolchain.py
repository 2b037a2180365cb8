"""What the C++ compiler needs and no model changes, made once for all arms that are not timed.

PyTorch compiles its headers, and small programs that tell which vector instructions work: a large part of a start on
CPU. A cold arm makes them itself, as a user's first engine would, and a warm one finds its headers. The headers' folder
is a variable of the arm's environment, see ``workers.environment``; what is known of vectors is kept here.
"""

from __future__ import annotations

import os
from pathlib import Path

from workers.engine import internals

VECTORS_WORK = "vector-instructions-work"
VECTORS_ENV = "TORCHINDUCTOR_VEC_ISA_OK"


def share(folder: str) -> None:
    """Let this process and the ranks it will start use what ``folder`` knows of vectors."""
    if (Path(folder) / VECTORS_WORK).exists():
        os.environ[VECTORS_ENV] = "1"
        internals.take_vectors_for_granted()


def remember(folder: str, works_on_ranks: list[bool]) -> None:
    """Note that all vector instructions this processor claims work with this compiler, if every rank found so."""
    if works_on_ranks and all(works_on_ranks):
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / VECTORS_WORK).touch()
