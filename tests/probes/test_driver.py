from __future__ import annotations

from pathlib import Path

import pytest

from workers.probes.driver import driver_version

CLOSED = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\nGCC version:  12.2.0\n"
)
OPEN = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (dvs-builder)\nGCC version:\n"
)


@pytest.mark.parametrize(
    ("says", "version"), [(CLOSED, "550.54.15"), (OPEN, "570.86.15"), ("", None), ("GCC version:  12.2.0\n", None)]
)
def test_the_driver_is_read_from_what_the_kernel_says(tmp_path: Path, says: str, version: str | None) -> None:
    file = tmp_path / "version"
    file.write_text(says)
    assert driver_version(file) == version


def test_without_a_driver_there_is_none(tmp_path: Path) -> None:
    assert driver_version(tmp_path / "none") is None
