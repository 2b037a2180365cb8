"""Files of a run are read, and nothing else on the machine is, whatever an engine leaves in its folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from service.run_files import RunFiles
from service.store.records import UnknownRecord

SECRET = b"secret of the operator"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "artifacts" / "sweep"
    arm = root / "cells" / "c0" / "run-1" / "cold"
    (arm / "deep" / "er").mkdir(parents=True)
    (arm / "engine.log").write_bytes(b"line 1\nline 2\n")
    (arm / "deep" / "er" / "table.json").write_bytes(b"{}")
    (root / "secret").write_bytes(SECRET)
    (tmp_path / "secret").write_bytes(SECRET)
    return root


@pytest.fixture
def files(root: Path) -> RunFiles:
    return RunFiles(root, {"cold": root / "cells" / "c0" / "run-1" / "cold"})


def content(files: RunFiles, path: str) -> bytes:
    return b"".join(files.open(path).chunks())


def test_every_file_is_listed_and_can_be_read(files: RunFiles) -> None:
    assert [(item.path, item.bytes) for item in files] == [("cold/deep/er/table.json", 2), ("cold/engine.log", 14)]
    assert {item.path: content(files, item.path) for item in files} == {
        "cold/deep/er/table.json": b"{}",
        "cold/engine.log": b"line 1\nline 2\n",
    }


@pytest.mark.parametrize(
    "path",
    [
        "",
        "cold",
        "cold/",
        "cold/deep",
        "cold/deep/er",
        "cold/none",
        "warm/engine.log",
        "../secret",
        "cold/../secret",
        "cold/../../../../secret",
        "cold/deep/../engine.log",
        "cold/./engine.log",
        "cold//engine.log",
        "/etc/passwd",
        "cold//etc/passwd",
        "cold/engine.log\0",
        "cold/engine.log/x",
        "cold\\..\\secret",
    ],
)
def test_a_path_that_leads_elsewhere_is_not_there(files: RunFiles, path: str) -> None:
    with pytest.raises(UnknownRecord):
        files.open(path)


@pytest.mark.parametrize("target", ["/etc/passwd", "../../../../secret", "engine.log", "nowhere"])
def test_a_link_to_a_file_is_neither_listed_nor_followed(files: RunFiles, root: Path, target: str) -> None:
    arm = root / "cells" / "c0" / "run-1" / "cold"
    (arm / "link").symlink_to(target)
    assert "cold/link" not in [item.path for item in files]
    with pytest.raises(UnknownRecord):
        files.open("cold/link")


def test_a_link_to_a_folder_is_not_entered(files: RunFiles, root: Path) -> None:
    arm = root / "cells" / "c0" / "run-1" / "cold"
    (arm / "out").symlink_to(root.parent.parent, target_is_directory=True)
    (arm / "in").symlink_to("deep", target_is_directory=True)
    assert (arm / "out" / "secret").read_bytes() == SECRET, "the link leads there"
    assert len(list(files)) == 2
    for path in ("cold/out/secret", "cold/in/er/table.json"):
        with pytest.raises(UnknownRecord):
            files.open(path)


def test_a_link_in_place_of_an_arm_s_folder_is_not_entered(root: Path, tmp_path: Path) -> None:
    (root / "cells" / "c0" / "run-1" / "warm").symlink_to(tmp_path, target_is_directory=True)
    files = RunFiles(root, {"warm": root / "cells" / "c0" / "run-1" / "warm"})
    assert list(files) == []
    with pytest.raises(UnknownRecord):
        files.open("warm/secret")


def test_a_folder_outside_of_the_sweep_s_is_left_out(root: Path, tmp_path: Path) -> None:
    files = RunFiles(root, {"a": tmp_path, "b": root / ".." / "..", "c": Path("/etc")})
    assert list(files) == []
    for name in "abc":
        with pytest.raises(UnknownRecord):
            files.open(f"{name}/secret")


def test_a_pipe_is_no_file_and_nobody_waits_for_its_writer(files: RunFiles, root: Path) -> None:
    os.mkfifo(root / "cells" / "c0" / "run-1" / "cold" / "events")
    assert "cold/events" not in [item.path for item in files]
    with pytest.raises(UnknownRecord):
        files.open("cold/events")


def test_a_name_that_is_no_text_is_left_out(files: RunFiles, root: Path) -> None:
    name = os.path.join(os.fsencode(root), b"cells/c0/run-1/cold/na\xffme")
    with open(name, "wb"):
        pass
    assert len(list(files)) == 2


def test_a_log_that_grows_is_read_up_to_the_size_it_had(files: RunFiles, root: Path) -> None:
    opened = files.open("cold/engine.log")
    with (root / "cells" / "c0" / "run-1" / "cold" / "engine.log").open("ab") as log:
        log.write(b"line 3\n")
    assert b"".join(opened.chunks()) == b"line 1\nline 2\n"
    assert b"".join(files.open("cold/engine.log").chunks(14)) == b"line 3\n"


def test_no_descriptor_is_left_open(files: RunFiles) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        content(files, "cold/engine.log")
        list(files)
        with pytest.raises(UnknownRecord):
            files.open("cold/deep")
        with pytest.raises(UnknownRecord):
            files.open("cold/deep/none/x")
    assert len(os.listdir("/proc/self/fd")) == before
