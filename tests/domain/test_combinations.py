from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from service.domain import combinations
from service.domain.document import from_tree
from service.domain.matrix import expand
from service.domain.setting import Setting
from workers.protocol import KeyInfo

from .conftest import catalogue_of

NAMES = ("a", "b", "c", "d")
CATALOGUE = catalogue_of({name: KeyInfo(type="unknown") for name in (*NAMES, "fruit", "animal", "color", "shape")})

VALUE = st.sampled_from([0, 1, 2, True, False, "x", None, [1], [True], {"k": 1}])
AXES = st.dictionaries(st.sampled_from(NAMES[:3]), st.lists(VALUE, min_size=1, max_size=3), max_size=3)
ENTRIES = st.lists(st.dictionaries(st.sampled_from(NAMES), VALUE, min_size=1, max_size=3), max_size=5)


def cells(**tree: Any) -> list[dict[str, Any]]:
    matrix = expand(from_tree({"name": "x", **tree}), CATALOGUE)
    return [dict(cell.requested) for cell in matrix.cells]


def same(left: Any, right: Any) -> bool:
    """Equality as JSON has it, the slow way."""
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)


def naive(axes: dict[str, list[Any]], exclude: list[dict[str, Any]], include: list[dict[str, Any]]) -> list[Any]:
    """GitHub's text, sentence by sentence."""
    if not axes and not include:
        return [{}]

    def choose(names: list[str]) -> list[dict[str, Any]]:
        if not names:
            return [{}]
        return [{names[0]: value, **rest} for value in axes[names[0]] for rest in choose(names[1:])]

    jobs = []
    for job in choose(list(axes)) if axes else []:
        excluded = False
        for entry in exclude:
            excluded = excluded or all(key in job and same(job[key], entry[key]) for key in entry)
        if not excluded:
            jobs.append(job)
    results = [dict(job) for job in jobs]
    new = []
    for entry in include:
        added = False
        for job, result in zip(jobs, results, strict=True):
            overwrites = any(key in job and not same(job[key], value) for key, value in entry.items())
            if not overwrites:
                result.update(entry)
                added = True
        if not added:
            new.append(dict(entry))
    return results + new


def without_nulls(cell: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in sorted(cell.items()) if value is not None}


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_include_and_exclude_do_what_github_says(data: st.DataObject) -> None:
    axes = data.draw(AXES)
    include = data.draw(ENTRIES)
    exclude = [entry for entry in data.draw(ENTRIES) if axes and entry.keys() <= axes.keys()]
    expected = naive(axes, exclude, include)
    if not expected:
        return
    # As text: 1 equals True in Python.
    found = cells(matrix=axes, exclude=exclude, include=include)
    assert list(map(repr, found)) == [repr(without_nulls(cell)) for cell in expected]


def test_githubs_documented_example() -> None:
    assert cells(
        matrix={"fruit": ["apple", "pear"], "animal": ["cat", "dog"]},
        include=[
            {"color": "green"},
            {"color": "pink", "animal": "cat"},
            {"fruit": "apple", "shape": "circle"},
            {"fruit": "banana"},
            {"fruit": "banana", "animal": "cat"},
        ],
    ) == [
        {"fruit": "apple", "animal": "cat", "color": "pink", "shape": "circle"},
        {"fruit": "apple", "animal": "dog", "color": "green", "shape": "circle"},
        {"fruit": "pear", "animal": "cat", "color": "pink"},
        {"fruit": "pear", "animal": "dog", "color": "green"},
        {"fruit": "banana"},
        {"fruit": "banana", "animal": "cat"},
    ]


def test_the_first_axis_is_the_slowest() -> None:
    assert cells(matrix={"b": [2, 1], "a": ["x", "y"]}) == [
        {"a": "x", "b": 2},
        {"a": "y", "b": 2},
        {"a": "x", "b": 1},
        {"a": "y", "b": 1},
    ]


def test_without_axes_each_entry_is_a_cell_that_takes_nothing_from_others() -> None:
    assert cells(include=[{"a": 1}, {"b": 2}]) == [{"a": 1}, {"b": 2}]


def test_when_all_is_excluded_entries_still_make_cells() -> None:
    assert cells(matrix={"a": [1, 2]}, exclude=[{"a": 1}, {"a": 2}], include=[{"b": 3}]) == [{"b": 3}]


def test_an_excluded_combination_can_be_included_again() -> None:
    assert cells(matrix={"a": [1, 2]}, exclude=[{"a": 1}], include=[{"a": 1}]) == [{"a": 2}, {"a": 1}]


def test_one_is_not_true() -> None:
    assert cells(matrix={"a": [1, True]}, exclude=[{"a": True}]) == [{"a": 1}]


def test_the_operands_stay_as_they_are() -> None:
    original = {"a": Setting(1, (), "a")}
    entry = {"b": Setting(2, (), "b")}
    (combination,) = combinations.include([original], [entry])
    assert set(combination.added) == {"b"}
    assert (set(original), set(entry)) == ({"a"}, {"b"})
