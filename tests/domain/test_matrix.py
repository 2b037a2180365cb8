from __future__ import annotations

import random
import re
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.domain.cell import Cell
from service.domain.document import Place, from_tree, parse
from service.domain.errors import MatrixError, MatrixProblem
from service.domain.matrix import Matrix, expand
from service.domain.repeat import Repeat
from service.domain.sections import DEFAULT_CHECKS
from service.domain.timeouts import Timeouts
from service.domain.verdict import Verdict
from workers.protocol import Catalogue, Check, Patch, PatchMode, Role

from .conftest import KEYS, catalogue_of

CATALOGUE = catalogue_of(KEYS)
SP = "compilation_config.pass_config.enable_sp"

QUICKSTART = """\
name: quickstart
engine:
  model: tiny:llama
  dtype: float32
matrix:
  tensor_parallel_size: [2]
  compilation_config.pass_config.enable_sp: [false, true]
include: []
exclude: []
checks: [audit, compile, residual, outputs]
timeouts: {cold: 1800, warm: 600, probe: 1800}
"""


def matrix(**tree: Any) -> Matrix:
    return expand(from_tree({"name": "x", **tree}), CATALOGUE)


def problems(tree: dict[str, Any] | str, **limits: int) -> tuple[MatrixProblem, ...]:
    document = parse(tree) if isinstance(tree, str) else from_tree({"name": "x", **tree})
    with pytest.raises(MatrixError) as caught:
        expand(document, CATALOGUE, **limits)
    return caught.value.problems


def problem(tree: dict[str, Any] | str, **limits: int) -> MatrixProblem:
    (only,) = problems(tree, **limits)
    return only


def names(found: Matrix) -> list[str]:
    return [cell.name for cell in found.cells]


def test_the_documented_example(catalogue: Catalogue) -> None:
    document = parse(QUICKSTART)
    found = expand(document, catalogue)
    assert (found.name, found.timeouts, found.source) == ("quickstart", Timeouts(1800, 600, 1800), document.tree)
    base = {"dtype": "float32", "model": "tiny:llama", "tensor_parallel_size": 2}
    assert [cell.requested for cell in found.cells] == [{SP: False, **base}, {SP: True, **base}]
    assert names(found) == ["tensor_parallel_size=2,enable_sp=false", "tensor_parallel_size=2,enable_sp=true"]
    for cell in found.cells:
        assert list(cell.requested) == sorted(cell.requested)
        assert (cell.expect, cell.checks, cell.path) == ((Verdict.PASS,), DEFAULT_CHECKS, ("matrix",))
        assert re.fullmatch(r"[0-9a-f]{12}", cell.id)


def test_a_name_is_all_that_is_needed() -> None:
    (cell,) = matrix().cells
    assert (cell.name, cell.requested, cell.path) == ("x", {}, ("engine",))
    assert cell.patches == {Patch.FULL_GRAPH_SP: PatchMode.ON, Patch.FALLBACK_FAST_PATH: PatchMode.ON}
    assert (cell.engine, cell.env, cell.batch, cell.environment) == ({}, {}, {}, "default")


def test_sections_that_are_null_are_as_good_as_missing() -> None:
    empty = dict.fromkeys(("engine", "matrix", "include", "exclude", "checks", "timeouts", "repeat", "traces"))
    assert matrix(**empty).cells == matrix().cells


# --- settings ----------------------------------------------------------------------------------------------------


def test_nested_and_dotted_keys_are_the_same() -> None:
    dotted = matrix(engine={SP: True, "compilation_config.mode": 3})
    for nested in (
        {"compilation_config": {"pass_config": {"enable_sp": True}, "mode": 3}},
        {"compilation_config": {"pass_config.enable_sp": True, "mode": 3}},
        {"compilation_config.pass_config": {"enable_sp": True}, "compilation_config": {"mode": 3}},
        {"compilation_config.mode": 3, "compilation_config": {"mode": 3, "pass_config": {"enable_sp": True}}},
    ):
        assert matrix(engine=nested).cells == dotted.cells


def test_a_mapping_that_nothing_reaches_into_is_a_value() -> None:
    value = {"triton.cudagraphs": True, "deep": {"er": [1, None]}}
    (cell,) = matrix(engine={"compilation_config": {"inductor_compile_config": value}}).cells
    assert cell.requested == {"compilation_config.inductor_compile_config": value}


def test_a_key_that_is_written_twice_is_refused() -> None:
    found = problem({"engine": {"compilation_config.mode": 3, "compilation_config": {"mode": 2}}})
    assert (found.code, found.path) == ("written-twice", ("engine", "compilation_config", "mode"))
    assert "as 3 and as 2" in found.message


def test_null_leaves_the_default() -> None:
    found = matrix(
        engine={"seed": 1, "block_size": None, "env.A": "1", "compilation_config": {"mode": 3, "splitting_ops": []}},
        include=[{"seed": None}, {"env.A": None}, {"compilation_config": None}, {"compilation_config.mode": None}],
    )
    removed = [
        set(matrix(engine=found.source["engine"]).cells[0].requested) - set(cell.requested) for cell in found.cells
    ]
    both = {"compilation_config.mode", "compilation_config.splitting_ops"}
    assert removed == [{"seed"}, {"env.A"}, both, {"compilation_config.mode"}]
    assert all("block_size" not in cell.requested for cell in found.cells)


def test_a_mapping_on_an_axis_stands_for_its_settings() -> None:
    found = matrix(
        matrix={"compilation_config": [{"mode": 0}, {"mode": 3, "pass_config": {"enable_sp": True}}, None]},
        exclude=[{"compilation_config.mode": 0}],
        include=[{"compilation_config": {"mode": 3}, "seed": 1}],
    )
    assert [cell.requested for cell in found.cells] == [{"compilation_config.mode": 3, SP: True, "seed": 1}, {}]
    assert names(found) == ["mode=3,enable_sp=true", "compilation_config=null"]


def test_reserved_keys() -> None:
    (cell,) = matrix(
        engine={
            "seed": 1,
            "patches": {"full_graph_sp": False},
            "env.A": True,
            "env": {"B_1": 2, "C": 0.5, "D": "d"},
            "batch": {"waves": [[1], [2, 3]], "max_tokens": 1},
            "environment": "default",
        },
        include=[{"patches.fallback_fast_path": "native", "env.D": "e"}],
    ).cells
    assert cell.engine == {"seed": 1}
    assert cell.patches == {Patch.FULL_GRAPH_SP: PatchMode.OFF, Patch.FALLBACK_FAST_PATH: PatchMode.NATIVE}
    assert cell.env == {"A": "1", "B_1": "2", "C": "0.5", "D": "e"}
    assert cell.batch == {"waves": [[1], [2, 3]], "max_tokens": 1}
    assert cell.environment == "default"


@pytest.mark.parametrize(
    ("option", "switch"), [("prompt_embeds", "enable_prompt_embeds"), ("prefix_caching", "enable_prefix_caching")]
)
def test_an_option_of_the_requests_turns_on_what_it_needs(option: str, switch: str) -> None:
    def of(requested: dict[str, Any]) -> dict[str, Any]:
        return Cell("c1", "cell", requested, (Verdict.PASS,), (Check.AUDIT,), ("engine",)).engine

    assert of({f"batch.{option}": True, "seed": 1}) == {"seed": 1, switch: True}
    assert of({f"batch.{option}": False}) == of({}) == {}
    # What is written stands: the contradiction is told before anything runs.
    assert of({f"batch.{option}": True, switch: False}) == {switch: False}


@pytest.mark.parametrize("mode", [True, "on"])
def test_true_and_on_ask_the_same_of_a_patch(mode: Any) -> None:
    assert matrix(engine={"patches.full_graph_sp": mode}).cells == matrix(engine={"patches.full_graph_sp": "on"}).cells


def test_reserved_values_are_compared_in_the_form_that_cells_carry() -> None:
    found = matrix(
        matrix={"patches.full_graph_sp": [True, "off"], "env.A": [1]},
        exclude=[{"patches.full_graph_sp": "on", "env.A": "1"}],
    )
    assert [cell.requested for cell in found.cells] == [{"patches.full_graph_sp": "off", "env.A": "1"}]


@pytest.mark.parametrize(
    ("engine", "code", "path", "said"),
    [
        ({"tensor_parallel_size": "2"}, "wrong-type", ("tensor_parallel_size",), "without quotes"),
        ({"tensor_parallel_size": True}, "wrong-type", ("tensor_parallel_size",), "an integer, found true"),
        ({"enforce_eager": "off"}, "wrong-type", ("enforce_eager",), "Write true or false"),
        ({"dtype": "float64"}, "wrong-type", ("dtype",), '"float16" or "float32", found the string "float64"'),
        ({"model": 3}, "wrong-type", ("model",), "in quotes"),
        ({"allowed_media_domains": "a"}, "wrong-type", ("allowed_media_domains",), "a list"),
        ({"compilation_config": 3}, "wrong-type", ("compilation_config",), "mapping of settings"),
        (
            {"compilation_config": {"splitting_ops": [1]}},
            "wrong-type",
            ("compilation_config", "splitting_ops"),
            "a list",
        ),
        ({"hf_overrides.a": 1}, "unknown-key", ("hf_overrides.a",), "write its value as a whole"),
        ({"matrix": {}}, "unknown-key", ("matrix",), "top of the file"),
        ({"expect": "pass"}, "unknown-key", ("expect",), "entry of include"),
        ({"patches.full_graph_sp": "yes"}, "wrong-value", ("patches.full_graph_sp",), "on, off or native"),
        ({"patches": {"full_graph": "on"}}, "unknown-key", ("patches", "full_graph"), "patches.full_graph_sp"),
        ({"patches": True}, "wrong-type", ("patches",), "mapping"),
        ({"env.vllm_use": 1}, "variable-name", ("env.vllm_use",), "env.VLLM_USE"),
        ({"env": {"1A": 1}}, "variable-name", ("env", "1A"), "env.A"),
        ({"env.A": [1]}, "wrong-type", ("env.A",), "one string"),
        ({"env": None}, "wrong-type", ("env",), "env.NAME"),
        ({"env.VLLM_CACHE_ROOT": "/x"}, "variable-taken", ("env.VLLM_CACHE_ROOT",), "Remove env.VLLM_CACHE_ROOT"),
        ({"env": {"TRITON_CACHE_DIR": "/x"}}, "variable-taken", ("env", "TRITON_CACHE_DIR"), "Remove"),
        ({"env.SHARDPROOF_TAPS": 1}, "variable-taken", ("env.SHARDPROOF_TAPS",), "where Shardproof is started"),
        ({"environment": "nightly"}, "unknown-environment", ("environment",), "Only default is known"),
        ({"environment": ["default"]}, "unknown-environment", ("environment",), "Only default is known"),
        ({"batch.max_tokens": 0}, "wrong-value", ("batch.max_tokens",), "1 or more"),
        ({"batch.seed": "1"}, "wrong-type", ("batch.seed",), "an integer"),
        ({"batch": {"logprobs": True}}, "wrong-type", ("batch", "logprobs"), "found true"),
        ({"batch.wave": []}, "unknown-key", ("batch.wave",), "batch.waves"),
        ({"batch.waves": []}, "wrong-value", ("batch.waves",), "[[1], [2, 3]]"),
        ({"batch.waves": [[1], []]}, "wrong-value", ("batch.waves", 1), "without a prompt"),
        ({"batch.waves": [[1, 0]]}, "wrong-value", ("batch.waves", 0, 1), "found 0"),
        ({"batch.waves": [[1], ["2"]]}, "wrong-type", ("batch.waves", 1, 0), 'found the string "2"'),
        ({"batch.waves": [3]}, "wrong-type", ("batch.waves", 0), "list"),
        ({"batch.staggered": [[1], []]}, "wrong-value", ("batch.staggered", 1), "without a prompt"),
        ({"batch.staggered": [[0]]}, "wrong-value", ("batch.staggered", 0, 0), "batch.staggered is a list of lists"),
        ({"batch.staggered": 1}, "wrong-type", ("batch.staggered",), "[[5, 1, 8]]"),
        ({"batch.chunked_prefill": "yes"}, "wrong-type", ("batch.chunked_prefill",), "true or false"),
        ({"batch.prompt_embeds": 1}, "wrong-type", ("batch.prompt_embeds",), "true or false"),
        ({"batch": {"prefix_caching": []}}, "wrong-type", ("batch", "prefix_caching"), "true or false"),
        ({"batch.full_bytes": -1}, "wrong-value", ("batch.full_bytes",), "0 or more"),
        ({"batch.full_bytes": 1.5}, "wrong-type", ("batch.full_bytes",), "bytes per rank"),
        ({"batch.logprobs": -1}, "wrong-value", ("batch.logprobs",), "0 or more"),
    ],
)
def test_settings_that_cannot_be(engine: dict[str, Any], code: str, path: tuple[Any, ...], said: str) -> None:
    found = problem({"engine": engine})
    assert (found.code, found.path) == (code, ("engine", *path))
    assert said in str(found)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("tensor_paralel_size", "tensor_parallel_size"),
        ("enable_sp", SP),
        ("compilation_config.pas_config.enable_sp", SP),
    ],
)
def test_an_unknown_key_is_told_the_nearest(written: str, meant: str) -> None:
    for tree in ({"engine": {written: 1}}, {"matrix": {written: [1]}}, {"include": [{written: 1}]}):
        found = problem(tree)
        assert (found.code, found.path[-1]) == ("unknown-key", written)
        assert meant in str(found)


@settings(deadline=None, max_examples=60)
@given(st.text("abcdefgstu_.-é \n", max_size=20).filter(lambda key: key not in KEYS and key not in ("batch",)))
def test_every_unknown_key_is_told_a_near_one(key: str) -> None:
    known = (*KEYS, "patches", "batch", "env", "eval", "name", "expect", "checks")
    for tree in ({"engine": {key: 1}}, {"include": [{key: 1}]}):
        found = problem(tree)
        assert found.code == "unknown-key"
        assert any(name in (found.hint or "") for name in known)
        assert "\n" not in str(found)


# --- combinations ------------------------------------------------------------------------------------------------


def test_entries_bring_name_expect_and_checks() -> None:
    found = matrix(
        checks=["compile"],
        matrix={"tensor_parallel_size": [1, 2]},
        include=[
            {"expect": "downgraded"},
            {"tensor_parallel_size": 2, "expect": ["fail-residual", "crashed"], "name": "two"},
            {"tensor_parallel_size": 4, "checks": ["outputs", "audit"]},
        ],
    )
    assert [cell.expect for cell in found.cells] == [
        (Verdict.DOWNGRADED,),
        (Verdict.FAIL_RESIDUAL, Verdict.CRASHED),
        (Verdict.PASS,),
    ]
    assert names(found) == ["tensor_parallel_size=1", "two", "tensor_parallel_size=4"]
    assert [cell.checks for cell in found.cells] == [
        (Check.AUDIT, Check.COMPILE),
        (Check.AUDIT, Check.COMPILE),
        (Check.AUDIT, Check.OUTPUTS),
    ]
    assert [cell.path for cell in found.cells] == [("matrix",), ("matrix",), ("include", 2)]
    assert all(not {"name", "expect", "checks"} & cell.requested.keys() for cell in found.cells)


@pytest.mark.parametrize(
    ("tree", "code", "path", "said"),
    [
        ({"engine": []}, "wrong-type", ("engine",), "mapping"),
        ({"matrix": [1]}, "wrong-type", ("matrix",), "mapping"),
        ({"matrix": {"seed": 1}}, "wrong-type", ("matrix", "seed"), "in [ ]"),
        ({"matrix": {"seed": None}}, "wrong-type", ("matrix", "seed"), "in [ ]"),
        ({"matrix": {"seed": []}}, "empty", ("matrix", "seed"), "remove the axis"),
        ({"matrix": {"seed": [1, "x"]}}, "wrong-type", ("matrix", "seed", 1), "an integer"),
        ({"matrix": {"env.a": [1, 2]}}, "variable-name", ("matrix", "env.a"), "env.A"),
        ({"matrix": {"env.TMPDIR": ["/x"]}}, "variable-taken", ("matrix", "env.TMPDIR"), "Remove env.TMPDIR"),
        ({"matrix": {"include": [{}]}}, "unknown-key", ("matrix", "include"), "beside matrix"),
        (
            {"matrix": {"compilation_config": [{"mode": 1}], "compilation_config.mode": [2]}},
            "written-twice",
            ("matrix", "compilation_config.mode"),
            "one axis",
        ),
        ({"include": {"seed": 1}}, "wrong-type", ("include",), "- key: value"),
        ({"include": [1]}, "wrong-type", ("include", 0), "mapping"),
        ({"include": [{"seed": "x"}]}, "wrong-type", ("include", 0, "seed"), "an integer"),
        ({"include": [{"name": 3}]}, "wrong-type", ("include", 0, "name"), "in quotes"),
        ({"include": [{"name": "a\nb"}]}, "name", ("include", 0, "name"), "printable"),
        ({"include": [{"name": "a" * 201}]}, "name", ("include", 0, "name"), "1 to 200"),
        ({"include": [{"expect": "passes"}]}, "unknown-word", ("include", 0, "expect"), "nearest known one is pass;"),
        ({"include": [{"expect": []}]}, "empty", ("include", 0, "expect"), "at least one"),
        ({"include": [{"expect": 1}]}, "wrong-type", ("include", 0, "expect"), "not-exercised"),
        ({"include": [{"checks": ["residuals"]}]}, "unknown-word", ("include", 0, "checks"), "residual"),
        ({"include": [{}] * 1001}, "too-large", ("include",), "1,000"),
        ({"exclude": [{"seed": 1}]}, "not-an-axis", ("exclude", 0, "seed"), "There are no axes"),
        ({"matrix": {"seed": [1]}, "exclude": ["x"]}, "wrong-type", ("exclude", 0), "mapping"),
        ({"matrix": {"seed": [1]}, "exclude": [{}]}, "empty", ("exclude", 0), "every combination"),
        ({"matrix": {"seed": [1]}, "exclude": [{"sed": 1}]}, "not-an-axis", ("exclude", 0, "sed"), 'axes are "seed"'),
        ({"matrix": {"seed": [1]}, "exclude": [{"model": "x"}]}, "not-an-axis", ("exclude", 0, "model"), 'are "seed"'),
        (
            {"matrix": {SP: [True]}, "exclude": [{"compilation_config": {"mode": 1}}]},
            "not-an-axis",
            ("exclude", 0, "compilation_config", "mode"),
            SP,
        ),
        ({"matrix": {"seed": [1]}, "exclude": [{"seed": "1"}]}, "wrong-type", ("exclude", 0, "seed"), "an integer"),
        ({"matrix": {"seed": [1]}, "exclude": [{"seed": 1}]}, "no-cells", ("exclude",), "no cell is left"),
        ({"checks": "audit"}, "wrong-type", ("checks",), "list"),
        ({"checks": ["compile", "audits"]}, "unknown-word", ("checks", 1), "nearest known one is audit;"),
        ({"checks": ["compile", 1]}, "unknown-word", ("checks", 1), "Write words"),
        ({"timeouts": [1]}, "wrong-type", ("timeouts",), "mapping"),
        ({"timeouts": {"cold": 0}}, "wrong-type", ("timeouts", "cold"), "positive"),
        ({"timeouts": {"phase": -1}}, "wrong-type", ("timeouts", "phase"), "seconds"),
        ({"timeouts": {"cold": True}}, "wrong-type", ("timeouts", "cold"), "seconds"),
        ({"timeouts": {"cold": "1h"}}, "wrong-type", ("timeouts", "cold"), "seconds"),
        ({"repeat": 3}, "wrong-type", ("repeat",), "mapping"),
        ({"repeat": {"cold": 0}}, "wrong-value", ("repeat", "cold"), "1 to 20"),
        ({"repeat": {"warm": 21}}, "wrong-value", ("repeat", "warm"), "1 to 20"),
        ({"repeat": {"warm": -(10**9)}}, "wrong-value", ("repeat", "warm"), "1 to 20"),
        ({"repeat": {"cold": True}}, "wrong-type", ("repeat", "cold"), "how often"),
        ({"repeat": {"cold": 1.5}}, "wrong-type", ("repeat", "cold"), "how often"),
        ({"repeat": {"cold": "3"}}, "wrong-type", ("repeat", "cold"), "how often"),
        ({"repeat": {"probe": 2}}, "unknown-key", ("repeat", "probe"), "all are cold and warm"),
        ({"engine": {"repeat": 3}}, "unknown-key", ("engine", "repeat"), "top of the file"),
        ({"traces": "yes"}, "wrong-type", ("traces",), "traces: true"),
        ({"traces": 1}, "wrong-type", ("traces",), "true or false"),
        ({"traces": []}, "wrong-type", ("traces",), "true or false"),
        ({"engine": {"traces": True}}, "unknown-key", ("engine", "traces"), "top of the file"),
        (
            {"timeouts": {"replicated": 1}},
            "unknown-key",
            ("timeouts", "replicated"),
            "cold, warm, probe, eval, phase and silence",
        ),
        ({"incldue": []}, "unknown-key", ("incldue",), "nearest known one is include;"),
        ({"name": None}, "missing", ("name",), "Write name:"),
        ({"name": 3}, "wrong-type", ("name",), "in quotes"),
        ({"name": " "}, "name", ("name",), "1 to 100"),
        ({"name": "a" * 101}, "name", ("name",), "1 to 100"),
        ({"name": "a\tb"}, "name", ("name",), "printable"),
    ],
)
def test_sections_that_cannot_be(tree: dict[str, Any], code: str, path: tuple[Any, ...], said: str) -> None:
    found = problem(tree)
    assert (found.code, found.path) == (code, path)
    assert said in str(found)


def test_all_problems_are_reported_with_their_places() -> None:
    found = problems(
        """\
nam: x
engine:
  seed: "1"
matrix:
  enable_sp: [true]
  tensor_parallel_size: []
exclude:
  - dtype: auto
checks: [all]
"""
    )
    assert [(one.code, one.place) for one in found] == [
        ("unknown-key", Place(1, 1)),
        ("missing", Place(1, 1)),
        ("wrong-type", Place(3, 3)),
        ("unknown-key", Place(5, 3)),
        ("empty", Place(6, 3)),
        ("not-an-axis", Place(8, 5)),
        ("unknown-word", Place(9, 1)),
    ]


def test_timeouts() -> None:
    timeouts = matrix(timeouts={"warm": 1.5, "probe": 7, "eval": 9}).timeouts
    assert {role: timeouts.of(role) for role in Role} == {
        Role.COLD: 1800.0,
        Role.WARM: 1.5,
        Role.PROBE: 7.0,
        Role.REPLICATED: 7.0,
        Role.REFERENCE: 7.0,
        Role.EVAL: 9.0,
        Role.EVAL_REPLICATED: 9.0,
    }
    assert {timeouts.of_phase(role) for role in Role} == {timeouts.of_silence(role) for role in Role} == {None}


def test_an_evaluation_is_one_long_phase() -> None:
    timeouts = matrix(timeouts={"phase": 60, "silence": 30.5}).timeouts
    limits = {role: (timeouts.of_phase(role), timeouts.of_silence(role)) for role in Role}
    evaluations = {Role.EVAL: (None, None), Role.EVAL_REPLICATED: (None, None)}
    assert limits == dict.fromkeys(Role, (60.0, 30.5)) | evaluations


def test_traces_are_made_where_they_are_asked_for() -> None:
    assert [matrix(traces=value).traces for value in (True, False, None)] == [True, False, False]
    assert matrix().traces is False
    # What is looked at makes no other cell of it.
    assert matrix(traces=True).cells == matrix().cells


def test_starts_are_repeated_where_it_is_written() -> None:
    assert matrix().repeat == Repeat(cold=1, warm=1)
    assert matrix(repeat={"cold": None}).repeat == Repeat(cold=1, warm=1)
    repeat = matrix(repeat={"cold": 20, "warm": 3}).repeat
    assert {role: repeat.of(role) for role in Role if repeat.of(role) != 1} == {Role.COLD: 20, Role.WARM: 3}


def test_a_cell_is_the_same_however_often_it_is_started() -> None:
    """All cells of a sweep are started equally often, so it tells none of them from another."""
    axes = {"seed": [1, 2]}
    once, often = matrix(matrix=axes), matrix(matrix=axes, repeat={"cold": 3, "warm": 2})
    assert [cell.id for cell in once.cells] == [cell.id for cell in often.cells]


# --- limits ------------------------------------------------------------------------------------------------------


def test_a_billion_combinations_are_refused_at_once() -> None:
    axes = {f"env.A{number}": list(range(10)) for number in range(9)}
    begun = time.process_time()
    found = problem({"matrix": axes})
    assert time.process_time() - begun < 1
    assert (found.code, found.path) == ("too-many-cells", ("matrix",))
    assert "1,000,000,000" in found.message


def test_too_many_variables_are_refused() -> None:
    assert problem({"engine": {f"env.A{number}": 1 for number in range(501)}}).code == "too-large"


@settings(deadline=None, max_examples=60)
@given(
    st.dictionaries(st.sampled_from(["env.A", "env.B", "env.C"]), st.lists(st.integers(0, 9), min_size=1, max_size=4)),
    st.lists(st.dictionaries(st.sampled_from(["env.A", "env.D"]), st.integers(0, 9), min_size=1), max_size=6),
    st.integers(1, 12),
)
def test_there_are_never_more_cells_than_allowed(
    axes: dict[str, list[int]], include: list[dict[str, int]], most: int
) -> None:
    tree = {"matrix": axes, "include": include}
    unlimited = matrix(**tree)
    if len(unlimited.cells) <= most:
        assert expand(from_tree({"name": "x", **tree}), CATALOGUE, max_cells=most).cells == unlimited.cells
    else:
        assert problem(tree, max_cells=most).code == "too-many-cells"


# --- names and ids -----------------------------------------------------------------------------------------------


def test_names_are_short_but_tell_keys_apart() -> None:
    catalogue = catalogue_of({**KEYS, "attention_config.mode": KEYS["seed"], "mode": KEYS["seed"]})
    axes = {"mode": [1], "attention_config.mode": [2], "compilation_config.mode": [3], SP: [None]}
    (cell,) = expand(from_tree({"name": "x", "matrix": axes}), catalogue).cells
    assert cell.name == "mode=1,attention_config.mode=2,compilation_config.mode=3,enable_sp=null"


def test_values_in_names_cannot_be_mistaken() -> None:
    found = matrix(
        matrix={
            "compilation_config.mode": ["true", True, "1", 1, 1.5, "a,b", "/x/y-z", ["a", None], {"k": "é"}, "\u200b"]
        }
    )
    assert [name.removeprefix("mode=") for name in names(found)] == [
        '"true"',
        "true",
        '"1"',
        "1",
        "1.5",
        '"a,b"',
        "/x/y-z",
        '["a",null]',
        '{"k":"é"}',
        '"\\u200b"',
    ]
    assert names(matrix(matrix={"env.A": [1]})) == ["A=1"]


def test_default_names_are_numbered() -> None:
    found = matrix(
        matrix={"seed": [1, 1, 2]}, include=[{"seed": 2, "name": "seed=1"}, {"seed": 3, "name": "seed=1 #2"}]
    )
    assert names(found) == ["seed=1 #3", "seed=1 #4", "seed=1", "seed=1 #2"]


def test_long_default_names_are_cut_and_stay_unique() -> None:
    found = matrix(matrix={"model": ["m" * 300 + "1", "m" * 300 + "2"]})
    assert len(set(names(found))) == 2
    assert all(len(name) <= 200 and "…" in name for name in names(found))


def test_equal_names_are_refused() -> None:
    shared = problem({"matrix": {"seed": [1, 2]}, "include": [{"name": "same"}]})
    assert (shared.code, shared.path) == ("duplicate-name", ("include", 0, "name"))
    assert "more axis values" in str(shared)
    twice = problem({"include": [{"name": "same"}, {"name": "same", "seed": 1}]})
    assert (twice.code, twice.path) == ("duplicate-name", ("include", 1, "name"))


@settings(deadline=None, max_examples=60)
@given(st.randoms())
def test_the_order_of_keys_does_not_change_an_id(random: random.Random) -> None:
    entry = {
        "seed": 1,
        "compilation_config": {"mode": 3, "inductor_compile_config": {"a": 1, "b": {"c": 2, "d": 3}}},
        "env.A": 1,
        "batch.waves": [[1, 2]],
        "checks": ["compile", "residual"],
    }

    def shuffled(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        items = [(key, shuffled(item)) for key, item in value.items()]
        random.shuffle(items)
        return dict(items)

    (one,), (other,) = matrix(include=[entry]).cells, matrix(include=[shuffled(entry)]).cells
    assert (one.id, one.requested) == (other.id, other.requested)


def test_ids_tell_content_apart_and_equal_content_is_numbered() -> None:
    found = matrix(
        include=[
            {"seed": 1},
            {"seed": 2},
            {"seed": 1, "name": "again", "expect": "crashed"},
            {"seed": 1, "checks": ["compile"]},
            {"seed": 1, "checks": ["audit", "compile", "residual", "outputs"]},
        ]
    )
    first, second, again, fewer, same = [cell.id for cell in found.cells]
    assert len({first, second, fewer}) == 3
    assert (again, same) == (f"{first}-2", f"{first}-3")
    assert matrix(engine={"seed": 1}).cells[0].id == first


def test_an_id_is_what_it_was() -> None:
    """Ids are stored: a change of this one breaks links between sweeps."""
    assert matrix(engine={"seed": 1}).cells[0].id == "d014afd57ac0"
