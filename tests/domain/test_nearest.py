from __future__ import annotations

from difflib import SequenceMatcher

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from service.domain.nearest import nearest

from .conftest import KEYS


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("tensor_paralel_size", "tensor_parallel_size"),
        ("--tensor-parallel-size", "tensor_parallel_size"),
        ("Seed", "seed"),
        ("enable_sp", "compilation_config.pass_config.enable_sp"),
        ("compilation_config.enable_sp", "compilation_config.pass_config.enable_sp"),
        ("model_config.dtype", "dtype"),
        ("compilation_config.pass_config.enable_spp", "compilation_config.pass_config.enable_sp"),
        ("fuse_gemm_coms", "compilation_config.pass_config.fuse_gemm_comms"),
        ("compile_config.mode", "compilation_config.mode"),
    ],
)
def test_what_people_write_leads_to_what_they_mean(written: str, meant: str) -> None:
    assert nearest(written, KEYS) == meant


def test_case_and_hyphens_do_not_count() -> None:
    assert nearest("max_seq", ["max_sea", "MAX-SEQ"]) == "MAX-SEQ"


def test_nothing_known_nothing_near() -> None:
    assert nearest("seed", []) is None


def likeness(word: str, candidate: str) -> tuple[float, float]:
    def ratio(a: str, b: str) -> float:
        return SequenceMatcher(None, a, b, autojunk=False).ratio()

    whole = ratio(candidate, word)
    return max(whole, ratio(candidate.split(".")[-1], word.split(".")[-1])), whole


DOTTED = st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=3).map(".".join)


@settings(deadline=None, max_examples=200)
@given(DOTTED, st.lists(DOTTED, min_size=1, max_size=8))
@example("cb.ca", ["cc", "a", "c"])
def test_short_cuts_do_not_change_the_answer(word: str, known: list[str]) -> None:
    assert nearest(word, known) == max(known, key=lambda candidate: likeness(word, candidate))
