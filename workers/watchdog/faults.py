"""Where a process died of a fault in its memory, by what its crash handler wrote into the engine's log.

Two handlers are known: that of TVM's foreign function interface, which vLLM's grammars load, and Python's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

_SAID = re.compile(r"!!! Segfault encountered !!!|^Fatal Python error: (?:Segmentation fault|Bus error)")
_FRAME = re.compile(r'^\s+File "(?P<file>[^"]+)", line (?P<line>\d+),? in ')
_GENERATED = re.compile(r"/(?:inductor_cache|torchinductor[^/]*|inductor)/.+\.(?:cpp|py)$")
_HANDLER = re.compile(r"/(?:sigaction|libc_sigaction)\.c$|^<unknown>$")


def memory_fault(log: Path) -> str | None:
    """The place of the first memory fault that ``log`` tells of, in words; ``None`` when it tells of none."""
    try:
        with log.open(errors="replace") as lines:
            said = any(map(_SAID.search, lines))
            return _place(lines) if said else None
    except FileNotFoundError:
        return None


def _place(lines: Iterable[str]) -> str:
    """Of code that was generated for this engine rather than of what it calls, if any is among the frames."""
    innermost = None
    for line in lines:
        if (frame := _FRAME.match(line)) is None:
            if innermost is not None:
                break
            continue
        where = f"{PurePosixPath(frame['file']).name}, line {frame['line']}"
        if _GENERATED.search(frame["file"]):
            return f"a memory fault in code that Inductor generated ({where})"
        if innermost is None and not _HANDLER.search(frame["file"]):
            innermost = where
    return "a memory fault" if innermost is None else f"a memory fault ({innermost})"
