"""Bokeh's scripts come out of its package, packed, and to be kept."""

from __future__ import annotations

import gzip
from importlib.metadata import version
from pathlib import Path

import bokeh.resources
import pytest
from api.client import Client
from api.keyed import make_key

from service.dashboard.bokeh import FOLDER, SCRIPTS
from service.store import Store


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_is_the_package_s_own(client: Client, name: str) -> None:
    (own,) = Path(bokeh.resources.__file__).parent.glob(f"server/static/js/{name}")
    plain = client.get(f"/{FOLDER}/{name}", headers={"Accept-Encoding": "identity"})
    packed = client.get(f"/{FOLDER}/{name}", headers={"Accept-Encoding": "gzip"})
    assert plain.content == packed.content == own.read_bytes()
    assert "Content-Encoding" not in plain.headers
    assert packed.headers["Content-Encoding"] == "gzip"
    assert int(packed.headers["Content-Length"]) < len(own.read_bytes()) / 2
    assert len(gzip.compress(own.read_bytes())) >= int(packed.headers["Content-Length"])
    for response in (plain, packed):
        assert "immutable" in response.headers["Cache-Control"]
        assert response.headers["Content-Type"].startswith("text/javascript")


def test_its_address_changes_with_the_version(client: Client) -> None:
    assert version("bokeh") in FOLDER
    assert client.get(f"/{FOLDER}x/{SCRIPTS[0]}").status_code == 404


@pytest.mark.parametrize("name", ["bokeh.js", "compiler.js", "..%2fresources.py"])
def test_nothing_else_of_the_package_is_served(client: Client, name: str) -> None:
    assert client.get(f"/{FOLDER}/{name}").status_code == 404


def test_no_key_is_needed_for_what_everybody_can_have(client: Client, store: Store) -> None:
    make_key(store)
    assert client.get(f"/{FOLDER}/{SCRIPTS[0]}").status_code == 200
