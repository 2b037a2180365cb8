"""Whether an engine may be forked: what its imports could have read must be what the zygote's have read."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers import environment
from workers.environment import differing
from workers.protocol import ArmSpec, BatchPlan, Patch, PatchMode, Role
from workers.zygote import client

NAMES = st.sampled_from(["A", "PATH", "TORCHINDUCTOR_FREEZING", "VLLM_USE_X", "TMPDIR", environment.EVENTS])
VARIABLES = st.dictionaries(NAMES, st.sampled_from(["", "0", "1"]))


@given(VARIABLES, VARIABLES)
def test_named_is_what_differs_and_no_import_may_ignore(mine: dict[str, str], theirs: dict[str, str]) -> None:
    found = differing(mine, theirs)
    assert found == differing(theirs, mine)
    assert not set(found) & environment.READ_LATE
    for name in (mine.keys() | theirs.keys()) - environment.READ_LATE:
        assert (name in found) == (mine.get(name) != theirs.get(name))


def arm(env: dict[str, str]) -> ArmSpec:
    return ArmSpec(
        role=Role.COLD,
        key="k",
        engine={},
        patches=dict.fromkeys(Patch, PatchMode.ON),
        env=env,
        batch=BatchPlan(),
        taps=False,
        folder="folder",
        cache_root="cache",
        models_dir="models",
        timeout_s=1.0,
    )


def test_what_an_arm_adds_is_read_late(monkeypatch: pytest.MonkeyPatch) -> None:
    zygote = environment.for_question("elsewhere")
    assert differing(environment.for_arm(arm({}), 2, "pipe"), zygote) == ()
    assert differing(environment.for_arm(arm({"TORCHDYNAMO_DISABLE": "1"}), 2, "pipe"), zygote) == (
        "TORCHDYNAMO_DISABLE",
    )
    monkeypatch.setenv("OF_THE_OPERATOR", "1")
    assert differing(environment.for_arm(arm({}), 2, "pipe"), zygote) == ("OF_THE_OPERATOR",)


@pytest.mark.parametrize(("preload", "env", "forked"), [(True, {}, "1"), (False, {}, "0"), (True, "spawn", "0")])
def test_ranks_are_forked_unless_somebody_wants_them_otherwise(preload: bool, env: object, forked: str) -> None:
    wanted = {environment.RANKS_METHOD: "spawn"} if env == "spawn" else {}
    asked = arm(wanted).model_copy(update={"preload": preload})
    assert environment.for_arm(asked, 2, "pipe")[environment.RANKS_FORK] == forked


def test_only_a_folder_of_the_command_s_own_is_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody may put a socket into a folder that all share."""
    assert client.can_offer(tmp_path / "shpf-12-abc")
    assert not client.can_offer(Path("/tmp"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert client.connect("python") is None
    assert client.ask("python", ["describe"], {}, 1.0) is None


@pytest.mark.parametrize(
    ("wanted", "imported_with", "may"),
    [
        ("1", {"A": "1"}, True),
        ("0", {"A": "1"}, False),
        ("1", None, False),
        ("1", {"A": "1", "LD_PRELOAD": "libgomp.so"}, False),
        ("1", {}, False),
        ("1", {"A": "1", "TMPDIR": "elsewhere"}, True),
    ],
)
def test_ranks_are_forked_from_what_imported_as_they_would(
    monkeypatch: pytest.MonkeyPatch, wanted: str, imported_with: dict[str, str] | None, may: bool
) -> None:
    """A rank of its own reads, as it imports, what vLLM has set for it by then."""
    for name in list(os.environ):
        monkeypatch.delenv(name)
    monkeypatch.setenv("A", "1")
    monkeypatch.setenv(environment.RANKS_FORK, wanted)
    monkeypatch.setattr(environment, "imported_with", imported_with)
    assert environment.ranks_may_fork() is may
