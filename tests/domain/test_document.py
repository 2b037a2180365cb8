from __future__ import annotations

import json
import time
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.domain.document import Document, Path, Place, from_tree, parse
from service.domain.errors import MOST_PROBLEMS, MatrixError, MatrixProblem, Problems

FAST = settings(deadline=None, max_examples=60)

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**64) + 1, 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab.é<=~ ", max_size=4), inner, max_size=3),
    max_leaves=12,
)
JSON_TREES = st.dictionaries(st.text("abc", min_size=1), JSON_VALUES, min_size=1, max_size=4)


def problem(text: str, **limits: int) -> MatrixProblem:
    """The only problem of ``text``."""
    with pytest.raises(MatrixError) as caught:
        parse(text, **limits)
    (only,) = caught.value.problems
    return only


def tree_problem(tree: Any, **limits: int) -> MatrixProblem:
    with pytest.raises(MatrixError) as caught:
        from_tree(tree, **limits)
    (only,) = caught.value.problems
    return only


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-5", 1e-5),
        ("1.5", 1.5),
        ("off", "off"),
        ("yes", "yes"),
        ("true", True),
        ("~", None),
        ("", None),
        ("2026-11-30", "2026-11-30"),
        ("2026-11-30T02:15:00Z", "2026-11-30T02:15:00Z"),
        ("1:30", "1:30"),
        ("010", 10),
        ("0o17", 15),
        ("0x1f", 31),
        ("-3", -3),
        ("-_", "-_"),
        ("'2'", "2"),
        ("! 2", "2"),
        ("!!str 2", "2"),
        ("!!float 2", 2.0),
        ("=", "="),
        ("18446744073709551615", 2**64 - 1),
        ('"\\ud83d\\ude00"', "😀"),
    ],
)
def test_scalars_are_those_of_yaml_1_2(text: str, value: Any) -> None:
    found = parse(f"a: {text}").tree["a"]
    assert found == value
    assert type(found) is type(value)


@FAST
@given(JSON_TREES)
def test_json_is_yaml_however_it_is_indented(tree: dict[str, Any]) -> None:
    for indent in (None, 2, "\t"):
        assert parse(json.dumps(tree, indent=indent)).tree == tree
    assert parse("\t" + json.dumps(tree, indent="\t", separators=("\t,", "\t:\t"))).tree == tree


@FAST
@given(JSON_TREES)
def test_a_parsed_tree_is_taken_as_it_is(tree: dict[str, Any]) -> None:
    document = from_tree(tree)
    assert document == Document(tree, {})
    assert document.tree is not tree


def paths_of(value: Any, path: Path = ()) -> list[Path]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(inner for key, item in items for inner in paths_of(item, (*path, key)))]


@FAST
@given(JSON_TREES)
def test_everything_has_a_place(tree: dict[str, Any]) -> None:
    document = parse(json.dumps(tree, indent=1))
    assert sorted(document.places, key=str) == sorted(paths_of(tree), key=str)


def test_places_are_those_of_keys_and_items() -> None:
    document = parse("name: x\nmatrix:\n  tensor_parallel_size: [1, 2]\n")
    assert document.place(()) == Place(1, 1)
    assert document.place(("matrix", "tensor_parallel_size")) == Place(3, 3)
    assert document.place(("matrix", "tensor_parallel_size", 1)) == Place(3, 29)


def test_an_unknown_path_has_the_place_of_its_ancestor() -> None:
    document = parse("name: x\nmatrix:\n  seed: [1]\n")
    assert document.place(("matrix", "seed", 0, "deep")) == Place(3, 10)
    assert document.place(("include",)) == Place(1, 1)
    assert from_tree({"name": "x"}).place(("name",)) is None


def test_aliases_are_written_out_with_the_place_of_their_use() -> None:
    document = parse("a: &x {seed: 1}\nb: *x\n")
    assert document.tree == {"a": {"seed": 1}, "b": {"seed": 1}}
    assert document.place(("b",)) == Place(2, 1)
    assert document.place(("b", "seed")) == Place(1, 8)


@pytest.mark.parametrize(
    ("text", "code", "place", "said"),
    [
        ("", "empty", None, "Write at least a name"),
        ("# nothing\n", "empty", None, "empty"),
        ("[1]", "wrong-type", Place(1, 1), "found a list"),
        ("just text", "wrong-type", Place(1, 1), 'the string "just text"'),
        ("a: [1", "syntax", Place(1, 6), "brackets"),
        ("a: b: c", "syntax", Place(1, 5), "in quotes"),
        ("a: 1\n\tb: 2", "syntax", Place(2, 1), "spaces"),
        ("a: *x", "syntax", Place(1, 4), "undefined alias"),
        ("a: \0", "syntax", Place(1, 4), "UTF-8"),
        ("a: 1\n---\nb: 2", "several-documents", Place(2, 1), "file of its own"),
        ("%YAML 1.1\n---\na: off", "syntax", Place(2, 1), "YAML 1.2"),
        ("%YAML 1.7\n---\na: off", "syntax", None, "Remove the %YAML line"),
        ("a: &x [*x]", "recursive-alias", Place(1, 8), "inside its own anchor"),
        ("a: 1\na: 2", "duplicate-key", Place(2, 1), "first at line 1, column 1"),
        ("a: {b: 1,\n b: 1}", "duplicate-key", Place(2, 2), "Remove one"),
        ("2: x", "key", Place(1, 1), 'Quote it: "2":'),
        ("true: x", "key", Place(1, 1), 'Quote it: "true":'),
        ("[1]: x", "key", Place(1, 1), "in quotes"),
        ("a: {<<: {b: 1}}", "key", Place(1, 5), "merge"),
        ("a: !!python/name:os.system x", "tag", Place(1, 4), "!!python/name:os.system"),
        ("a: !mine {b: 1}", "tag", Place(1, 4), "Remove the tag"),
        ("a: !!seq {b: 1}", "tag", Place(1, 4), "Remove the tag"),
        ("a: !!binary aGk=", "tag", Place(1, 4), "not allowed"),
        ("a: !!int x", "tag", Place(1, 4), "!!int"),
        ("a: .inf", "number", Place(1, 4), "finite"),
        ("a: .nan", "number", Place(1, 4), "finite"),
        ("a: 1e999", "number", Place(1, 4), "finite"),
        ("a: 18446744073709551616", "number", Place(1, 4), "64 bits"),
        ("a: " + "9" * 5000, "number", Place(1, 4), "64 bits"),
        ("a: 0x" + "f" * 5000, "number", Place(1, 4), "64 bits"),
        ('a: "\\0"', "string", Place(1, 4), "U+0000"),
        ('a: "\\ud83d"', "string", Place(1, 4), "half a character"),
    ],
)
def test_what_no_matrix_may_hold_is_refused(text: str, code: str, place: Place | None, said: str) -> None:
    found = problem(text)
    assert (found.code, found.place) == (code, place)
    assert said in str(found)


@pytest.mark.parametrize(
    ("tree", "code", "path"),
    [
        (None, "wrong-type", ()),
        ([], "wrong-type", ()),
        ({"a": {1: 2}}, "key", ("a",)),
        ({"a": [float("nan")]}, "number", ("a", 0)),
        ({"a": float("inf")}, "number", ("a",)),
        ({"a": 2**64}, "number", ("a",)),
        ({"a": "\ud800"}, "string", ("a",)),
        ({"a": {"\0": 1}}, "string", ("a",)),
        ({"a": (1,)}, "wrong-type", ("a",)),
    ],
)
def test_a_parsed_tree_obeys_the_same_rules(tree: Any, code: str, path: Path) -> None:
    try:
        from_tree(tree)
    except MatrixError as error:
        first = error.problems[0]
        assert (first.code, first.path, first.place) == (code, path, None)
    else:
        pytest.fail("accepted")


def test_all_bad_values_are_reported_in_the_order_of_the_file() -> None:
    with pytest.raises(MatrixError) as caught:
        parse("a: .inf\nb: !x 1\n1: 2\na: 3\n")
    assert [found.code for found in caught.value.problems] == ["number", "tag", "key", "duplicate-key"]
    assert str(caught.value).splitlines() == [str(found) for found in caught.value.problems]


def bomb(levels: int) -> str:
    first = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    return first + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, levels))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (bomb(9), "too-large"),
        (bomb(3) + "# " + "x" * 10_000_000, "too-large"),
        ("a: [" + "1," * 500_000 + "]", "too-large"),
        ("a: " + "[" * 500_000, "too-deep"),
        ("{" * 500_000, "too-deep"),
        ("a0: &a0 [1]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 60)), "too-deep"),
        ("a: !" + "x" * 1_000_000, "syntax"),
    ],
    ids=["laughs", "10 MB", "list", "brackets", "braces", "alias chain", "tag"],
)
def test_hostile_files_are_refused_quickly(text: str, code: str) -> None:
    begun = time.process_time()
    assert problem(text).code == code
    assert time.process_time() - begun < 5


def test_a_tree_that_holds_itself_is_refused() -> None:
    tree: dict[str, Any] = {}
    tree["a"] = tree
    assert tree_problem(tree).code == "too-deep"


def test_limits_are_exact() -> None:
    text, tree = "a: [1, 2]", {"a": [1, 2]}
    nodes = 5  # the mapping, its key, the list, two numbers
    assert parse(text, max_bytes=9, max_nodes=nodes, max_depth=2).tree == tree
    assert from_tree(tree, max_nodes=nodes, max_depth=2).tree == tree
    assert problem(text, max_bytes=8).code == "too-large"
    assert problem("a: é", max_bytes=4).code == "too-large"
    assert problem(text, max_nodes=nodes - 1).code == "too-large"
    assert problem(text, max_depth=1).code == "too-deep"
    assert tree_problem(tree, max_nodes=nodes - 1).code == "too-large"
    assert tree_problem(tree, max_depth=1).code == "too-deep"


def test_each_use_of_an_alias_counts() -> None:
    text = "a: &x [1, 2]\nb: *x"
    assert parse(text, max_nodes=9).tree == {"a": [1, 2], "b": [1, 2]}
    assert problem(text, max_nodes=8).code == "too-large"


@settings(deadline=None, max_examples=300)
@given(st.text("ab:-? \n\t[]{},&*!|>'\"%#01.~<=\\\0\ud800\ufeff", max_size=30))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    with suppress(MatrixError):
        tree = parse(text).tree
        json.dumps(tree, allow_nan=False, ensure_ascii=False).encode()
        assert from_tree(tree).tree == tree


def test_a_problem_says_where_what_and_what_to_do() -> None:
    found = MatrixProblem("unknown-key", "unknown key", "Remove it", ("matrix", "seed", 2, "a b"), Place(7, 3))
    assert str(found) == 'line 7, column 3 (matrix.seed[2]."a b"): unknown key. Remove it'
    assert str(MatrixProblem("x", "wrong", None, ("a", "b"), None)) == "a.b: wrong"
    assert str(MatrixProblem("x", "wrong", None, (), Place(1, 2))) == "line 1, column 2: wrong"
    assert str(MatrixProblem("x", "wrong", None, (), None)) == "wrong"


def test_an_error_has_a_problem() -> None:
    with pytest.raises(ValueError, match="at least one"):
        MatrixError([])


def test_equal_problems_count_once_and_too_many_are_only_counted() -> None:
    problems = Problems()
    problems.raise_if_any()
    for number in range(MOST_PROBLEMS + 5):
        problems.add("x", f"problem {number}", ())
        problems.add("x", "problem 0", ())
    assert problems.full
    with pytest.raises(MatrixError, match="and 5 more problems") as caught:
        problems.raise_if_any()
    assert len(caught.value.problems) == MOST_PROBLEMS + 1


def test_a_dotted_key_is_found_below_a_path_however_it_is_divided() -> None:
    document = parse("a: 1\nmatrix:\n  x.y: 1\n  p:\n    q: 2\ncells:\n  - engine:\n      p: {q: 3}\n")
    assert document.below(("matrix",), "x.y") == ("matrix", "x.y")
    assert document.below(("matrix",), "p.q") == ("matrix", "p", "q")
    assert document.below(("cells", 0), "engine.p.q") == ("cells", 0, "engine", "p", "q")
    assert document.below(("engine",), "p.q") is None
    assert document.below(("matrix",), "") is None
