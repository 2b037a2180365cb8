"""Environments built for real, by pip, from small packages: once, as a whole, and as they were asked for."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

import workers
from workers.environments import build as building
from workers.environments.failure import EnvironmentFailure
from workers.environments.interpreter import ENGINE_MODULES
from workers.environments.provide import Provided, provided
from workers.environments.shelf import collect, shelved
from workers.protocol import PROTOCOL, EnvironmentSpec
from workers.protocol.environments import MARK

from .project import Project, make, provide

pytestmark = pytest.mark.slow


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make(tmp_path / "tiny")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "environments"


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the tests that only look share an environment."""
    return tmp_path_factory.mktemp("shelf")


@pytest.fixture(scope="module")
def tiny(shelf: Path) -> Project:
    return make(shelf / "tiny")


@pytest.fixture(scope="module")
def built(shelf: Path, tiny: Project) -> Provided:
    return had(spec(shelf / "environments", tiny.requirement))


def spec(root: Path, *requirements: str, interpreter: str | None = None) -> EnvironmentSpec:
    wanted = None if interpreter else list(requirements)
    return EnvironmentSpec(name="e", root=str(root), requirements=wanted, interpreter=interpreter)


def had(wanted: EnvironmentSpec) -> Provided:
    with provided(wanted, sys.executable) as found:
        return found


def ask(python: str, code: str, path: str = "") -> Any:
    done = subprocess.run(
        [python, "-c", f"import json; print(json.dumps({code}))"],
        env=os.environ | {"PYTHONPATH": path},
        cwd="/",
        capture_output=True,
        check=True,
    )
    return json.loads(done.stdout)


VERSIONS = "{d.name: d.version for d in __import__('importlib.metadata').metadata.distributions()}"


def test_what_is_there_is_what_was_resolved(built: Provided) -> None:
    installed = {name.lower().replace("_", "-"): version for name, version in ask(built.python, VERSIONS).items()}
    assert installed == built.description["packages"]
    assert installed["tiny"] == "1.0"
    # What engines need, and what that needs, is shared with the default interpreter; nothing else of it is there.
    assert {"numpy", "psutil", "pydantic", "pydantic-core"} <= set(built.description["linked"])
    assert {"pytest", "ray", "torch", "pip"}.isdisjoint(installed)
    assert "Successfully installed tiny-1.0" in built.folder.with_suffix(".log").read_text()


def test_our_part_runs_in_it_as_it_runs_here(built: Provided) -> None:
    assert ask(built.python, "__import__('workers.protocol').protocol.PROTOCOL") == PROTOCOL
    assert os.path.samefile(ask(built.python, "__import__('workers').__path__[0]"), workers.__path__[0])
    groups = "{g: [e.value for e in __import__('importlib.metadata').metadata.entry_points(group=g)] for g in %r}"
    found = ask(built.python, groups % (["vllm.platform_plugins", "vllm.general_plugins"],))
    assert found == {
        "vllm.platform_plugins": ["workers.platforms:register"],
        "vllm.general_plugins": ["workers.engine.plugin:register"],
    }


def test_it_sees_no_packages_that_were_meant_for_another_interpreter(built: Provided, tmp_path: Path) -> None:
    for module in ("vllm", "stray"):
        (tmp_path / f"{module}.py").write_text("version = 'stray'\n")
    find = "[bool(__import__('importlib.util').util.find_spec(n)) for n in ('vllm', 'stray')]"
    assert ask(built.python, find, path=str(tmp_path)) == [True, False]
    assert ask(built.python, "__import__('vllm').version", path=str(tmp_path)) == "1.0"
    assert ask(sys.executable, find, path=str(tmp_path)) == [True, True]


def test_it_is_built_once(built: Provided, shelf: Path, tiny: Project) -> None:
    assert had(spec(shelf / "environments", tiny.requirement)) == built
    assert tiny.builds == 1


def test_two_environments_are_two(built: Provided, shelf: Path) -> None:
    other = had(spec(shelf / "environments", make(shelf / "other", version="2.0").requirement))
    assert [ask(found.python, "__import__('vllm').version") for found in (built, other)] == ["1.0", "2.0"]


def opened(process: subprocess.Popen[str], root: Path) -> None:
    """Wait until ``process`` stands before the lock of an environment, or holds it."""
    while not any(file.path.endswith(".lock") for file in psutil.Process(process.pid).open_files()):
        assert process.poll() is None, process.communicate()[0]


def at_once(project: Project, root: Path, locked: bool) -> list[str]:
    """What two processes print that want one environment, the second while the first one builds it."""
    wanted = spec(root, project.requirement).model_dump_json()
    project.hold()
    first = provide(wanted, locked=locked)
    project.wait_until_held()
    second = provide(wanted, locked=locked)
    opened(second, root)
    if not locked:
        project.wait_until_held()
    project.go_on()
    return [process.communicate()[0] for process in (first, second)]


def test_two_that_want_it_at_once_make_one_build(project: Project, root: Path) -> None:
    first, second = at_once(project, root, locked=True)
    assert first == second
    assert first.endswith("/bin/python\n")
    assert project.builds == 1


def test_without_the_lock_they_would_make_two(project: Project, root: Path) -> None:
    at_once(project, root, locked=False)
    assert project.builds == 2


def test_a_build_that_was_killed_is_begun_again(project: Project, root: Path) -> None:
    wanted = spec(root, project.requirement)
    project.hold()
    builder = provide(wanted.model_dump_json())
    project.wait_until_held()
    below = psutil.Process(builder.pid).children(recursive=True)
    builder.send_signal(signal.SIGKILL)
    builder.communicate()
    # pip and what it builds with, too: nobody is left to write into the folder.
    assert len(below) > 2
    assert psutil.wait_procs(below, timeout=20)[1] == []
    (half,) = shelved(root)
    assert half.description is None
    assert (half.folder / "bin" / "python").exists()
    project.go_on()
    found = had(wanted)
    assert found.folder == half.folder
    assert project.builds == 2
    assert ask(found.python, "__import__('vllm').version") == "1.0"


# --- what cannot be had ----------------------------------------------------------------------------------------------


def test_a_version_that_is_not_there_is_said_in_pip_s_own_words(root: Path) -> None:
    with pytest.raises(EnvironmentFailure) as failure:
        had(spec(root, "psutil==0.0.0.1"))
    said = str(failure.value)
    assert said.startswith("environment e: pip install failed: ERROR: Could not find a version that satisfies")
    assert "psutil==0.0.0.1" in said
    assert "WARNING" not in said
    assert shelved(root) == []


def test_requirements_that_contradict_each_other(root: Path) -> None:
    with pytest.raises(EnvironmentFailure, match="conflict"):
        had(spec(root, "pydantic<2.12"))


def test_requirements_without_a_vllm(root: Path, tmp_path: Path) -> None:
    other = make(tmp_path / "other", modules=("torch",))
    for _ in range(2):
        with pytest.raises(EnvironmentFailure, match=r"environment e: its requirements bring no vLLM: no engine can"):
            had(spec(root, other.requirement))
    assert other.builds == 1


def test_a_build_that_hangs_is_given_up(project: Project, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "PATIENCE_S", 0.001)
    with pytest.raises(EnvironmentFailure, match=r"environment e: venv did not end within 0.001 s"):
        had(spec(root, project.requirement))
    assert shelved(root) == []


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentFailure, match=r"environment e: .*File exists"):
        had(spec(tmp_path / "file", "psutil"))


# --- interpreters that are pointed at --------------------------------------------------------------------------------


def interpreter(folder: Path, *modules: str) -> str:
    """An interpreter that has ``modules`` and nothing of Shardproof's."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    bring(folder, *modules)
    return str(folder / "bin" / "python")


def bring(folder: Path, *modules: str) -> None:
    site = next(folder.glob("lib/*/site-packages"))
    for module in modules:
        (site / f"{module}.py").write_text("")
        info = site / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")


def files(folder: Path) -> list[Path]:
    """Those below ``folder``, but for the bytecode that any interpreter keeps of what it imports."""
    return sorted(path for path in folder.rglob("*") if "__pycache__" not in path.parts)


def test_an_interpreter_is_used_as_it_is(root: Path, tmp_path: Path) -> None:
    theirs = interpreter(tmp_path / "theirs", *ENGINE_MODULES)
    before = files(tmp_path / "theirs")
    found = had(spec(root, interpreter=theirs))
    assert found.python != theirs
    assert ask(found.python, "__import__('vllm').__file__").startswith(str(tmp_path / "theirs"))
    assert os.path.samefile(ask(found.python, "__import__('workers').__path__[0]"), workers.__path__[0])
    assert found.description["packages"] == dict.fromkeys(sorted(ENGINE_MODULES), "1.0")
    assert files(tmp_path / "theirs") == before
    bring(tmp_path / "theirs", "another")
    assert had(spec(root, interpreter=theirs)).folder != found.folder, "with another package it is another environment"


def test_an_interpreter_without_vllm_is_one_clear_finding_until_it_has_it(root: Path, tmp_path: Path) -> None:
    python = interpreter(tmp_path / "bare")
    with pytest.raises(EnvironmentFailure, match=f"environment e: {python} has no vLLM: no engine can run there"):
        had(spec(root, interpreter=python))
    bring(tmp_path / "bare", *(name for name in ENGINE_MODULES if name != "pydantic"))
    with pytest.raises(EnvironmentFailure, match=f"{python} has no pydantic: "):
        had(spec(root, interpreter=python))
    bring(tmp_path / "bare", "pydantic")
    assert had(spec(root, interpreter=python)).description["missing"] == []


# --- taken away ------------------------------------------------------------------------------------------------------


def test_what_nobody_uses_is_taken_away_and_what_is_in_use_stays(root: Path, tmp_path: Path) -> None:
    wanted = spec(root, interpreter=interpreter(tmp_path / "theirs", *ENGINE_MODULES))
    with provided(wanted, sys.executable) as found:
        (shown,) = shelved(root)
        assert (shown.folder, shown.in_use, shown.description) == (found.folder, True, found.description)
        assert collect(root, 0.0) == []
    assert collect(root, 1000.0) == []
    (gone,) = collect(root, 0.0)
    assert gone.own_bytes > 0
    assert not found.folder.exists()
    assert shelved(root) == []
    # Only the pointer went, and it can be had again.
    assert (tmp_path / "theirs" / "bin" / "python").exists()
    assert had(wanted).folder == found.folder


def test_what_was_never_finished_is_taken_away_at_once(root: Path, tmp_path: Path) -> None:
    found = had(spec(root, interpreter=interpreter(tmp_path / "theirs", *ENGINE_MODULES)))
    (found.folder / MARK).unlink()
    (gone,) = collect(root, 1000.0)
    assert gone.description is None
    assert not found.folder.exists()
