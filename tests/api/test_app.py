from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from api.client import Client, make_client
from service.settings import Settings
from service.store import Store


@pytest.mark.parametrize("path", ["/docs", "/redoc"])
@pytest.mark.parametrize("prefix", ["", "/prefix"])
def test_the_documentation_needs_no_network(store: Store, path: str, prefix: str) -> None:
    client = make_client(store, root_path=prefix)
    page = client.get(prefix + path).text
    assert not re.findall(r"(?:https?:)?//[\w.]+", page)
    sources = re.findall(r"""(?:src|href|url|spec-url)[=:] ?["']([^"']+)["']""", page)
    assert len(sources) >= 3
    for source in sources:
        assert client.get(source).status_code == 200, source


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHARDPROOF_MAX_CELLS", "7")
    settings = Settings()
    assert settings.max_cells == 7
    assert settings.home == tmp_path / ".shardproof"
    assert settings.store_url == f"sqlite:///{tmp_path}/.shardproof/shardproof.db"
    assert settings.models_dir == settings.home / "models"
    assert settings.artifacts_dir == settings.home / "artifacts"
    assert settings.reports_dir == settings.home / "reports"
    assert Settings(database_url="postgresql://db/x").store_url == "postgresql://db/x"


def test_a_link_to_an_interpreter_is_not_followed(tmp_path: Path) -> None:
    link = tmp_path / "python"
    link.symlink_to("/usr/bin/env")
    assert Settings(python=link).python == link


def test_settings_are_described_and_fixed() -> None:
    assert all(field.description for field in Settings.model_fields.values())
    with pytest.raises(ValidationError, match="frozen"):
        Settings().port = 1  # type: ignore[misc]


def test_static_files_are_served(client: Client) -> None:
    assert client.get("/static/style.css").headers["Content-Type"].startswith("text/css")
    assert "javascript" in client.get("/static/live.js").headers["Content-Type"]
