"""Each sentence of the doctor, and what it is said for."""

from __future__ import annotations

from typing import Any

import pytest

from service.doctor import lines
from workers.protocol import Diagnosis, Environment, Guard, Patch, PatchState

MACHINE = Environment(vllm="0.31.0", torch="2.13.0", ray=None, python="3.11.7", device="cpu", devices=0, cores=2)
RULE, PATH = Patch.FULL_GRAPH_SP, Patch.FALLBACK_FAST_PATH


def said(patch: Patch, state: PatchState, **found: Any) -> str:
    """The line of ``patch``."""
    diagnosis = Diagnosis(environment=MACHINE, patches={patch: state}, guards=[], fallback_log="a.logger", **found)
    (line,) = [line for line in lines(diagnosis) if line.startswith(f"patch {patch}: {state}. ")]
    return line


@pytest.mark.parametrize(("patch", "since"), [(RULE, "0.20"), (PATH, "0.23")])
def test_a_native_patch_is_said_to_be_vllm_s_own_since_a_version(patch: Patch, since: str) -> None:
    native, absent = said(patch, PatchState.NATIVE), said(patch, PatchState.ABSENT)
    assert f"vLLM 0.31.0 brings it itself, as all do since {since}, and ours stays off" in native
    assert f"vLLM 0.31.0 has none of its own, which came with {since}, and ours is put on" in absent


@pytest.mark.parametrize("patch", Patch)
def test_what_is_gone_is_named_with_what_follows(patch: Patch) -> None:
    gone = said(patch, PatchState.TARGET_MISSING, missing={patch: "a.module:Name"})
    assert "vLLM 0.31.0 or torch 2.13.0 moved it (a.module:Name)" in gone
    assert "can neither be told nor be put on" in gone
    assert ("no cell with sequence parallelism can be judged" in gone) is (patch is RULE)


@pytest.mark.parametrize("state", [PatchState.NATIVE, PatchState.ABSENT, PatchState.TARGET_MISSING])
@pytest.mark.parametrize(
    ("unread", "words"),
    [
        (False, "only where it is read: nothing is gained unless a.logger logs at INFO"),
        (True, "although nobody reads it: without the fast path deep graphs hang"),
        (None, "is not known"),
    ],
)
def test_what_the_fast_path_is_worth_depends_on_torch(state: PatchState, unread: bool | None, words: str) -> None:
    line = said(PATH, state, missing={PATH: "x"}, formats_unread=unread)
    assert words in line
    assert "torch 2.13.0" in line
    others = [other for other in ("only where", "deep graphs hang", "is not known") if other not in words]
    assert not any(other in line for other in others)
    assert words not in said(RULE, state, missing={RULE: "x"}, formats_unread=unread)


def test_versions_and_guards() -> None:
    guards = [Guard(name=f"g{held}", held=held, detail="why") for held in (True, False, None)]
    assert list(lines(Diagnosis(environment=MACHINE, patches={}, guards=guards))) == [
        "vLLM 0.31.0, torch 2.13.0, Ray None, Python 3.11.7",
        "device cpu, 0 GPUs, 2 cores",
        "guard gTrue: holds (why)",
        "guard gFalse: does not hold (why)",
        "guard gNone: cannot be checked here (why)",
    ]
