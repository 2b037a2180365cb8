from __future__ import annotations

from typing import Any

import pytest

from service.domain.document import from_tree
from service.domain.matrix import expand
from service.domain.secrecy import SHOWN, is_secret, masked
from workers.protocol import Catalogue


@pytest.mark.parametrize(
    "key",
    [
        "env.HF_TOKEN",
        "hf_token",
        "env.AWS_SECRET_ACCESS_KEY",
        "env.OPENAI_API_KEY",
        "a.b.password",
        "env.MY_CREDENTIALS",
    ],
)
def test_secrets_are_known_by_what_they_are_called(key: str) -> None:
    assert is_secret(key)


@pytest.mark.parametrize(
    "key",
    ["tokenizer", "tokenizer_mode", "max_num_batched_tokens", "env.USE_KEYS", "model", "enable_sp", "tokens"],
)
def test_other_settings_are_none(key: str) -> None:
    assert not is_secret(key)


@pytest.mark.parametrize(
    ("tree", "shown"),
    [
        ({"env.HF_TOKEN": "abc"}, {"env.HF_TOKEN": SHOWN}),
        ({"env": {"HF_TOKEN": "abc", "X": "1"}}, {"env": {"HF_TOKEN": SHOWN, "X": "1"}}),
        ({"matrix": {"hf_token": ["abc", "def"]}}, {"matrix": {"hf_token": [SHOWN, SHOWN]}}),
        ({"include": [{"env.HF_TOKEN": "abc"}]}, {"include": [{"env.HF_TOKEN": SHOWN}]}),
        ({"hf_token": True, "sp_min_token_num": 1}, {"hf_token": True, "sp_min_token_num": 1}),
    ],
)
def test_their_texts_are_not_shown_wherever_they_stand(tree: Any, shown: Any) -> None:
    assert masked(tree) == shown


def test_no_cell_is_named_by_a_secret(catalogue: Catalogue) -> None:
    tree = {"name": "x", "matrix": {"env.HF_TOKEN": ["abc", "def"], "seed": [1]}}
    names = [cell.name for cell in expand(from_tree(tree), catalogue).cells]
    assert len(set(names)) == 2
    assert not any("abc" in name or "def" in name for name in names)
    assert [cell.env["HF_TOKEN"] for cell in expand(from_tree(tree), catalogue).cells] == ["abc", "def"]
