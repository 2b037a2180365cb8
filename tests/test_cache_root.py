"""Whether a compile cache can be written is found out before an engine fails at it."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from workers.cache_root import ROOM_BYTES, trouble


@pytest.fixture
def no_room() -> Iterator[None]:
    """No file may grow as large as a cache has to: what a full disk does, without filling one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM_BYTES // 2, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_folder_that_can_be_written_stays_as_it_was(tmp_path: Path) -> None:
    root = tmp_path / "deep" / "cache"
    assert trouble(str(root)) is None
    assert trouble(str(root)) is None
    assert list(root.iterdir()) == []


def test_a_full_disk(tmp_path: Path, no_room: None) -> None:
    root = tmp_path / "cache"
    assert trouble(str(root)) == f"the cache root {root} cannot be written: File too large"
    assert list(root.iterdir()) == []


def test_a_file_where_the_folder_belongs(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("")
    assert trouble(str(tmp_path / "cache")) == f"the cache root {tmp_path}/cache cannot be written: File exists"
    below = tmp_path / "cache" / "below"
    assert trouble(str(below)) == f"the cache root {below} cannot be written: Not a directory"


def test_a_folder_that_nobody_may_write() -> None:
    """Root may write everywhere but here."""
    assert trouble("/proc/cache") == "the cache root /proc/cache cannot be written: No such file or directory"
