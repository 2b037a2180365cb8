"""Files of runs beside the machine that made them: real places, no engine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest
from pydantic import ValidationError
from store.samples import run_spec

from service.settings import Settings
from workers.actor import RunActor
from workers.artifacts import ArtifactPlace, ArtifactsError, fetch_shared, keep
from workers.protocol import ArtifactsPlace, Check, RunSpec

SWEEP = "20261130-021500-ab12cd"
READ = "import sys; from workers.artifacts import ArtifactPlace as P; print(P(sys.argv[1]).read(sys.argv[2]).decode())"


@pytest.fixture(params=["file", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A folder, and a place that knows no folders but only names, as object stores do."""
    return f"file://{tmp_path / 'kept'}" if request.param == "file" else f"memory://{uuid4().hex}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What an arm leaves: files, a pipe, a link out of it, and a compile cache."""
    folder = tmp_path / "artifacts" / SWEEP / "cells" / "c0" / "run" / "cold"
    for name, content in (("engine.log", "said"), ("taps/rank0.npy", "numbers"), ("cache/torch/x", "compiled")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    os.mkfifo(folder / "events")
    (tmp_path / "secret").write_text("not of this run")
    (folder / "link").symlink_to(tmp_path / "secret")
    return folder


def test_files_come_back_as_they_were_kept(url: str, folder: Path, tmp_path: Path) -> None:
    place = ArtifactPlace(url)
    name = f"{SWEEP}/cells/c0/run/cold"
    assert list(place.files(name)) == []
    assert place.put(folder, name) == 2
    assert [(file.name, file.size) for file in place.files(SWEEP)] == [
        (f"{name}/engine.log", 4),
        (f"{name}/taps/rank0.npy", 7),
    ]
    assert place.names() == [SWEEP]
    assert place.read(f"{name}/engine.log") == b"said"
    assert place.get(name, tmp_path / "back") == 2
    assert (tmp_path / "back/taps/rank0.npy").read_text() == "numbers"


def test_what_is_removed_is_gone_and_the_rest_stays(url: str, folder: Path) -> None:
    place = ArtifactPlace(url)
    for sweep in (SWEEP, "20261130-021501-ab12cd"):
        place.put(folder, f"{sweep}/arms/key")
    place.remove(SWEEP)
    place.remove(SWEEP)
    assert place.names() == ["20261130-021501-ab12cd"]


@pytest.mark.parametrize("name", ["../x", "a/../../x", "..", "a/..", "a\0b", "a\\..\\b"])
def test_no_name_leads_out_of_the_place(url: str, name: str) -> None:
    place = ArtifactPlace(url)
    for use in (place.read, place.remove, lambda name: list(place.files(name))):
        with pytest.raises(ArtifactsError, match="no name of an artifact"):
            use(name)


@pytest.mark.parametrize("name", ["", "/", ".", "./"])
def test_everything_is_not_removed_at_once(url: str, folder: Path, name: str) -> None:
    place = ArtifactPlace(url)
    place.put(folder, SWEEP)
    with pytest.raises(ArtifactsError, match="names no sweep"):
        place.remove(name)
    assert place.names() == [SWEEP]


def test_a_file_that_is_not_there_is_named(url: str) -> None:
    with pytest.raises(ArtifactsError, match=r"nothing\.log"):
        ArtifactPlace(url).read("nothing.log")


def test_a_kind_of_place_that_is_not_known_is_named() -> None:
    with pytest.raises(ArtifactsError, match="SHARDPROOF_ARTIFACTS_URL"):
        ArtifactPlace("nosuchplace://bucket")


def test_another_process_reads_what_was_kept(folder: Path, tmp_path: Path) -> None:
    url = f"file://{tmp_path / 'kept'}"
    ArtifactPlace(url).put(folder, SWEEP)
    command = [sys.executable, "-c", READ, url, f"{SWEEP}/engine.log"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "said\n"


def spec_of(folder: Path, tmp_path: Path, url: str | None, **shared: str) -> RunSpec:
    """A run of one arm that cannot start, whose folder is ``folder``."""
    spec = run_spec("run")
    arm = spec.arms[0].model_copy(update={"folder": str(folder), "cache_root": "/dev/null/cache"})
    place = None if url is None else ArtifactsPlace(url=url, root=str(tmp_path / "artifacts"))
    return spec.model_copy(update={"arms": [arm], "checks": [Check.COMPILE], "artifacts": place, **shared})


def events_of(spec: RunSpec) -> list[dict[str, object]]:
    return list(RunActor().run(spec.model_dump_json(), sys.executable))


def test_an_actor_keeps_what_its_run_left_and_says_so(folder: Path, tmp_path: Path, url: str) -> None:
    events = events_of(spec_of(folder, tmp_path, url))
    assert [event["kind"] for event in events[-2:]] == ["artifacts-kept", "evidence"]
    assert events[-2]["data"] == {"url": url, "files": 2}
    assert len(list(ArtifactPlace(url).files(f"{SWEEP}/cells/c0/run/cold"))) == 2


def test_without_a_place_nothing_is_copied(folder: Path, tmp_path: Path) -> None:
    assert "artifacts-kept" not in {event["kind"] for event in events_of(spec_of(folder, tmp_path, None))}


def test_a_place_that_takes_nothing_costs_no_run(folder: Path, tmp_path: Path) -> None:
    events = events_of(spec_of(folder, tmp_path, "file:///dev/null/kept"))
    assert events[-1]["kind"] == "evidence"
    assert "engine.log cannot be kept at file:///dev/null/kept" in json.dumps(events[-2]["data"])
    assert (folder / "engine.log").read_text() == "said"


def test_a_shared_arm_of_another_machine_is_brought_here(folder: Path, tmp_path: Path, url: str) -> None:
    elsewhere = tmp_path / "artifacts" / SWEEP / "arms" / "key"
    ArtifactPlace(url).put(folder, f"{SWEEP}/arms/key")
    fetch_shared(spec_of(folder, tmp_path, url, replicated=str(elsewhere), probe=str(folder)))
    assert (elsewhere / "engine.log").read_text() == "said"


def test_files_of_an_arm_that_lies_elsewhere_are_not_kept(folder: Path, tmp_path: Path, url: str) -> None:
    spec = spec_of(folder, tmp_path, url)
    outside = spec.model_copy(update={"artifacts": ArtifactsPlace(url=url, root=str(tmp_path / "other"))})
    (event,) = keep(outside)
    assert "problem" in event.data
    assert list(ArtifactPlace(url).files()) == []


def test_a_password_in_the_url_is_refused() -> None:
    with pytest.raises(ValidationError, match="password"):
        Settings(artifacts_url="sftp://user:hunter2@host/folder")
