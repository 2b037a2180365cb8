"""The command line as a user meets it: bad input is refused with status 2, and says what, where and what to do."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

COMMAND = Path(sys.executable).with_name("shardproof")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shared, so that the engine environment is asked for its settings once."""
    return tmp_path_factory.mktemp("home")


def shardproof(home: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMMAND, *map(str, arguments)],
        env=os.environ | {"SHARDPROOF_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def refused(home: Path, content: str | bytes, tmp_path: Path) -> str:
    """What ``shardproof run`` says of a matrix it must not start."""
    matrix = tmp_path / "matrix.yaml"
    matrix.write_bytes(content if isinstance(content, bytes) else content.encode())
    answer = shardproof(home, "run", matrix)
    assert answer.returncode == 2, answer.stdout + answer.stderr
    assert "Traceback" not in answer.stderr
    assert not (home / "artifacts").exists()
    assert str(matrix) in answer.stderr
    return answer.stderr


def test_a_file_that_is_not_there(home: Path, tmp_path: Path) -> None:
    answer = shardproof(home, "run", tmp_path / "none.yaml")
    assert answer.returncode == 2
    assert "cannot be read" in answer.stderr


def test_an_unknown_key_names_its_line_and_the_nearest_one(home: Path, tmp_path: Path) -> None:
    said = refused(home, "name: x\nengine:\n  model: tiny:llama\n  tensor_paralel_size: 2\n", tmp_path)
    assert "line 4, column 3" in said
    assert "tensor_parallel_size" in said


def test_every_problem_is_reported_at_once(home: Path, tmp_path: Path) -> None:
    said = refused(
        home, "name: x\nengine: {model: tiny:llama, tensor_parallel_size: two}\nmatrix: {seed: []}\n", tmp_path
    )
    assert "line 2" in said
    assert "line 3" in said


def test_what_the_engine_refuses_is_said_at_its_line(home: Path, tmp_path: Path) -> None:
    said = refused(home, "name: x\nengine:\n  model: tiny:llama\n  tensor_parallel_size: 3\n", tmp_path)
    assert "line 4" in said
    assert "divisible by tensor parallel size" in said


def test_text_that_is_no_yaml(home: Path, tmp_path: Path) -> None:
    said = refused(home, "name: [unclosed\n", tmp_path)
    assert "line 2" in said
    assert "not valid YAML" in said


def test_bytes_that_are_no_text(home: Path, tmp_path: Path) -> None:
    assert "UTF-8" in refused(home, b"name: \xff\xfe\n", tmp_path)


def test_ten_megabytes_of_aliases_are_refused_at_once(home: Path, tmp_path: Path) -> None:
    bomb = "a: &a [x, x]\n" + "".join(f"b{n}: [*a, *a, *a, *a]\n" for n in range(400_000))
    started = time.monotonic()
    said = refused(home, bomb, tmp_path)
    assert "bytes" in said
    assert time.monotonic() - started < 20


def test_a_foreign_address_is_not_served(home: Path) -> None:
    answer = subprocess.run(
        [COMMAND, "serve"],
        env=os.environ | {"SHARDPROOF_HOME": str(home), "SHARDPROOF_HOST": "0.0.0.0"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert answer.returncode == 2
    assert "loopback" in answer.stderr


def test_status_of_an_unknown_sweep(home: Path) -> None:
    answer = shardproof(home, "status", "20260101-000000-abcdef")
    assert answer.returncode == 2
    assert "no sweep" in answer.stderr


def test_submit_to_nobody(home: Path, tmp_path: Path) -> None:
    matrix = tmp_path / "matrix.yaml"
    matrix.write_text("name: x\n")
    answer = shardproof(home, "submit", matrix, "--url", "http://127.0.0.1:9")
    assert answer.returncode == 2
    assert "shardproof serve" in answer.stderr


def test_doctor_says_versions_patches_and_guards(home: Path) -> None:
    answer = shardproof(home, "doctor")
    assert answer.returncode == 0, answer.stderr
    for word in (
        "vLLM 0.",
        "patch full_graph_sp: native. vLLM 0.",
        "patch fallback_fast_path: native. vLLM 0.",
        "nothing is gained unless torch._inductor.graph logs at INFO",
        "guard config-rule: holds",
    ):
        assert word in answer.stdout


def test_plan_shows_what_would_run(home: Path) -> None:
    matrix = Path(__file__).parent.parent / "deploy" / "matrices" / "quickstart.yaml"
    answer = shardproof(home, "plan", matrix)
    assert answer.returncode == 0, answer.stderr
    assert "sp-piecewise-asked" in answer.stdout
    assert "= sp-full-graph" in answer.stdout
    assert "full-graph compilation" in answer.stdout
