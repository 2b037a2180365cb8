from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.cursor import LONGEST, BadCursor, decode, encode

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
KEYS = st.lists(st.one_of(TEXT, st.integers(0, 2**63 - 1)), max_size=3)


@given(KEYS)
def test_a_key_comes_back(key: list[str | int]) -> None:
    text = encode("runs", *key)
    assert list(decode("runs", text, *(type(part) for part in key))) == key
    assert text.isascii()
    assert not set(text) & set("/+=&?#")


@given(st.text(max_size=60))
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(BadCursor):
        decode("runs", text, int)


def forged(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value, separators=(",", ":")).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-",
        encode("cells", 3),
        encode("runs", "3"),
        encode("runs", 3, 4),
        encode("runs", 3) + "=",
        encode("runs", 3)[:-1],
        forged(["runs", True]),
        forged(["runs", -1]),
        forged(["runs", 2**63]),
        forged(["runs", 1.0]),
        forged({"runs": 3}),
        forged("[" * 300),
        "A" * (LONGEST + 1),
    ],
)
def test_a_cursor_of_something_else_is_refused(text: str) -> None:
    with pytest.raises(BadCursor, match="cursor of the list of runs; pass `next`"):
        decode("runs", text, int)


@pytest.mark.parametrize("text", ["\0", "a\0b", "\ud800"])
def test_text_that_no_database_takes_is_refused(text: str) -> None:
    with pytest.raises(BadCursor):
        decode("runs", forged(["runs", text]), str)
    assert decode("runs", encode("runs", "a b é 😀"), str) == ("a b é 😀",)


def test_what_was_forged_above_would_be_taken_if_it_were_right() -> None:
    assert decode("runs", forged(["runs", 3]), int) == (3,)
