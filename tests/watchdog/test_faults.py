"""Where an engine died of a memory fault, read from what real crash handlers write."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from workers.watchdog.faults import memory_fault

DIES = """
def reads_beyond_the_end():
    import ctypes
    ctypes.string_at(8)

reads_beyond_the_end()
"""


def log_of(folder: Path, before: str, script: str = DIES) -> Path:
    """The log of a process that runs ``script`` after ``before``, with words of others around it."""
    source, log = folder / "dies.py", folder / "engine.log"
    source.write_text(before + script)
    with log.open("w") as out:
        out.write('Traceback (most recent call last):\n  File "somewhere.py", line 1, in f\n')
        out.flush()
        subprocess.run([sys.executable, source], stdout=out, stderr=out, check=False)
    with log.open("a") as out:
        out.write('RuntimeError: cancelled\n  File "elsewhere.py", line 9, in g\n')
    return log


def test_python_s_own_handler(tmp_path: Path) -> None:
    found = memory_fault(log_of(tmp_path, "import faulthandler; faulthandler.enable()\n"))
    assert found is not None
    assert found.startswith("a memory fault (__init__.py, line ")


@pytest.mark.slow
def test_the_handler_that_vllm_s_grammars_bring(tmp_path: Path) -> None:
    pytest.importorskip("tvm_ffi")
    found = memory_fault(log_of(tmp_path, "import tvm_ffi\n"))
    assert found is not None
    assert found.startswith("a memory fault (")
    assert "sigaction" not in found


@pytest.mark.parametrize("script", ["raise SystemExit(1)", "raise ValueError('Segfault encountered')", ""])
def test_what_ends_otherwise_has_none(tmp_path: Path, script: str) -> None:
    assert memory_fault(log_of(tmp_path, "import faulthandler; faulthandler.enable()\n", script)) is None


def test_no_log(tmp_path: Path) -> None:
    assert memory_fault(tmp_path / "engine.log") is None


TVM = """!!!!!!! Segfault encountered !!!!!!!
  File "./signal/../sysdeps/unix/sysv/linux/x86_64/libc_sigaction.c", line 0, in 0x00007f00
  File "/usr/lib/gcc/include/avx512fintrin.h", line 12600, in _mm512_add_ps(float __vector(16))
{generated}  File "<unknown>", line 0, in GOMP_parallel
  File "Objects/methodobject.c", line 553, in cfunction_call
INFO: another process goes on
  File "/home/run/cold-cache/torch_aot_compile/90/inductor_cache/ab/later.main.cpp", line 1, in kernel
"""
GENERATED = '  File "/home/run/cold-cache/torch_aot_compile/90/inductor_cache/vr/cvr.main.cpp", line 29, in kernel\n'


@pytest.mark.parametrize(
    ("generated", "place"),
    [
        (GENERATED, "a memory fault in code that Inductor generated (cvr.main.cpp, line 29)"),
        ("", "a memory fault (avx512fintrin.h, line 12600)"),
    ],
)
def test_what_was_generated_for_the_engine_tells_more_than_what_it_calls(
    tmp_path: Path, generated: str, place: str
) -> None:
    log = tmp_path / "engine.log"
    log.write_text(TVM.format(generated=generated))
    assert memory_fault(log) == place


def test_a_fault_without_frames(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_text("!!!!!!! Segfault encountered !!!!!!!\n")
    assert memory_fault(log) == "a memory fault"
