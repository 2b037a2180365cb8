"""Which settings an environment lacks, and which of those need not be said there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.arms import MEANS_NOTHING_WITHOUT_SP, SP, ArmNeed, needs
from service.domain.support import TURNS_SP_ON, absent_settings, unsupported_settings
from workers.protocol import Catalogue, KeyInfo

from .conftest import catalogue_of
from .test_arms import cell, shape

FUSE, THRESHOLD = MEANS_NOTHING_WITHOUT_SP[1:]
ORDINARY = ("model", "dtype", "tensor_parallel_size")
WITHOUT_SP = catalogue_of({key: KeyInfo(type="str") for key in ORDINARY})
WITH_SP = catalogue_of(WITHOUT_SP.keys | {key: KeyInfo(type="bool") for key in MEANS_NOTHING_WITHOUT_SP})


@pytest.mark.parametrize(
    ("engine", "lacking"),
    [
        ({SP: True}, [SP]),
        ({SP: False}, []),
        ({SP: False, THRESHOLD: 1}, []),
        ({THRESHOLD: 1}, []),
        ({SP: True, THRESHOLD: 1}, [SP, THRESHOLD]),
        ({SP: False, FUSE: True}, [SP, FUSE]),
        ({SP: False, "block_size": 16}, ["block_size"]),
        ({"dtype": "float32"}, []),
    ],
)
def test_sp_that_is_off_needs_no_setting_and_sp_that_is_on_does(engine: dict[str, Any], lacking: list[str]) -> None:
    asked = {key: value for key, value in engine.items() if key not in absent_settings(engine, WITHOUT_SP)}
    assert unsupported_settings(asked, WITHOUT_SP) == sorted(lacking)


def test_where_there_is_sp_everything_is_said() -> None:
    assert absent_settings({SP: False}, WITH_SP) == frozenset()


SETTINGS = st.dictionaries(
    st.sampled_from((*ORDINARY, *MEANS_NOTHING_WITHOUT_SP, "block_size")), st.booleans() | st.none()
)


@given(SETTINGS, st.sampled_from([WITH_SP, WITHOUT_SP]))
def test_what_is_left_out_never_turned_anything_on(engine: dict[str, Any], catalogue: Catalogue) -> None:
    absent = absent_settings(engine, catalogue)
    assert absent <= set(MEANS_NOTHING_WITHOUT_SP) - catalogue.keys.keys()
    if absent:
        assert not any(engine.get(key) for key in TURNS_SP_ON)
    said = {key: value for key, value in engine.items() if key not in absent}
    assert set(unsupported_settings(said, catalogue)) == said.keys() - catalogue.keys.keys()


def engines(asked: dict[str, Any], absent: frozenset[str]) -> list[ArmNeed]:
    found = needs(replace(cell(**asked), absent=absent), shape(sp=False))
    return [*found.own, *found.shared]


def test_no_arm_is_told_what_its_environment_does_not_have() -> None:
    absent = absent_settings({SP: False}, WITHOUT_SP)
    told = engines({SP: False}, absent)
    assert {need.role for need in told} >= {"cold", "warm", "replicated", "reference"}
    assert all(set(need.engine).isdisjoint(MEANS_NOTHING_WITHOUT_SP) for need in told)
    # Where there is such a setting it is said: vLLM's own default may turn SP on.
    assert any(need.engine.get(SP) is False for need in engines({SP: False}, frozenset()))
