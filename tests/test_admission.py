"""Folders of models are confined, by where their files really lie."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from service.admission import admit
from service.domain.document import from_tree
from service.domain.errors import MatrixError
from service.settings import Settings


def submitted(model: str, home: Path, **settings: Any) -> str | None:
    """Why the model may not be used; ``None`` where it may."""
    try:
        admit(from_tree({"name": "x", "engine": {"model": model}}), Settings(home=home / "home", **settings))
    except MatrixError as error:
        return str(error)
    return None


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "models"
    (found / "llama").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (found / "link").symlink_to(tmp_path / "elsewhere")
    return found


def test_models_of_allowed_folders_and_no_others(folder: Path, tmp_path: Path) -> None:
    assert "SHARDPROOF_ALLOW_MODEL_FOLDERS" in str(submitted(str(folder / "llama"), tmp_path))
    allow = {"allow_model_folders": (folder,)}
    assert submitted(str(folder / "llama"), tmp_path, **allow) is None
    for outside in (f"{folder}/../elsewhere", f"{folder}/link", f"{folder}x", "/", str(tmp_path / "elsewhere")):
        assert submitted(outside, tmp_path, **allow), outside


def test_models_that_were_built_here_may_be_used(tmp_path: Path) -> None:
    assert submitted("tiny:llama?layers=4", tmp_path) is None
    assert submitted(str(tmp_path / "home" / "models" / "tiny-llama"), tmp_path) is None


def test_a_hub_id_is_no_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert submitted("meta-llama/Llama-3.1-8B", tmp_path) is None
    (tmp_path / "meta-llama" / "Llama-3.1-8B").mkdir(parents=True)
    assert submitted("meta-llama/Llama-3.1-8B", tmp_path)
    for wrong in ("../x", "./x", "~/x", "a/../../x", "a/b/c", "s3://bucket/x", "http://evil/x", "x\ny", "", "a/.."):
        assert submitted(wrong, tmp_path), wrong


def test_the_hub_can_be_limited(tmp_path: Path) -> None:
    allow = {"allow_hub_models": ("meta-llama/*",)}
    assert submitted("meta-llama/Llama-3.1-8B", tmp_path, **allow) is None
    assert "SHARDPROOF_ALLOW_HUB_MODELS" in str(submitted("gpt2", tmp_path, **allow))


def test_packages_are_compared_as_pip_does(tmp_path: Path) -> None:
    matrix = from_tree({"name": "x", "environments": {"a": ["LM_Eval==0.4"]}})
    admit(matrix, Settings(home=tmp_path))
    with pytest.raises(MatrixError):
        admit(matrix, Settings(home=tmp_path, allow_packages=("vllm",)))
