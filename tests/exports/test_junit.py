"""A JUnit file as CI reads it: the counts are right, and the reason stands there in words."""

from __future__ import annotations

import copy
from typing import Any
from xml.etree import ElementTree

import junitparser
import pytest
from defusedxml import ElementTree as strict

from service.exports.junit import junit


@pytest.fixture
def root(report: dict[str, Any]) -> ElementTree.Element:
    found: ElementTree.Element = strict.fromstring(junit(report))
    return found


def cases(root: ElementTree.Element) -> dict[str, ElementTree.Element]:
    return {str(case.get("name")): case for case in root.iter("testcase")}


def outcome(case: ElementTree.Element) -> str:
    return next((child.tag for child in case if child.tag in ("failure", "error", "skipped")), "passed")


def test_every_cell_is_a_case_and_none_that_is_not_ok_passes(root: ElementTree.Element) -> None:
    assert {name: outcome(case) for name, case in cases(root).items()} == {
        "healthy": "passed",
        "=sp-guard-removed": "failure",
        "engine died": "error",
        "runs still": "error",
        "fault, as expected": "passed",
        "skipped, as expected": "skipped",
    }


def test_the_counts_are_those_of_the_cases_and_of_the_report(root: ElementTree.Element, report: dict[str, Any]) -> None:
    (suite,) = root.iter("testsuite")
    counted = {"tests": 6, "failures": 1, "errors": 2, "skipped": 1}
    for element in (root, suite):
        assert {key: int(str(element.get(key))) for key in counted} == counted
    assert report["summary"]["cells"] - report["summary"]["ok"] == counted["failures"] + counted["errors"]


def test_the_reason_is_there_in_words(root: ElementTree.Element) -> None:
    (failure,) = cases(root)["=sp-guard-removed"].iter("failure")
    assert str(failure.get("message")).startswith(
        "fail-residual: at layers.1.mlp on rank 1 two tokens are <shifted> & \N{REPLACEMENT CHARACTER}[31mwrong"
    ), "the finding, not the note before it"
    assert failure.get("type") == "fail-residual"
    text = str(failure.text)
    assert "verdict fail-residual, expected pass" in text
    assert "note: the noise floor is modelled" in text
    assert "again: shardproof run MATRIX --cell =sp-guard-removed" in text
    (error,) = cases(root)["runs still"].iter("error")
    assert (error.get("message"), error.get("type")) == ("has not ended: running", "unfinished")


def test_the_library_that_others_read_with_finds_the_same(report: dict[str, Any]) -> None:
    file = junitparser.JUnitXml.fromstring(junit(report))
    (suite,) = file
    assert (file.tests, file.failures, file.errors, file.skipped) == (6, 1, 2, 1)
    assert suite.name == 'quick & "dirty"'
    assert {prop.name: prop.value for prop in suite.properties()} == {"sweep": report["sweep"]["id"]}
    properties = {prop.name: prop.value for prop in next(iter(suite)).child(junitparser.Properties)}
    assert properties == {"verdict": "pass", "cell": "c0", "vllm": "0.31.0", "torch": "2.11.0"}


def test_times_are_the_cells_and_add_up(report: dict[str, Any]) -> None:
    told = copy.deepcopy(report)
    for cell, seconds in zip(told["cells"], (12, 30), strict=False):
        cell["started_at"], cell["ended_at"] = "2026-11-30T02:15:00+00:00", f"2026-11-30T02:15:{seconds}+00:00"
    for cell in told["cells"][2:]:
        cell["ended_at"] = None
    (suite,) = junitparser.JUnitXml.fromstring(junit(told))
    assert [case.time for case in suite][:3] == [12.0, 30.0, 0.0]
    assert suite.time == 42.0


@pytest.mark.parametrize("character", ["\0", "\x08", "\x1b", "\x7f", "\ud800", "￾", "]]>", "<![CDATA[", "é", "😀"])
def test_whatever_an_engine_says_the_file_can_be_read(report: dict[str, Any], character: str) -> None:
    told = copy.deepcopy(report)
    told["cells"][1]["reasons"] = [f"fail-output: before {character} after"]
    (failure,) = cases(strict.fromstring(junit(told)))["=sp-guard-removed"].iter("failure")
    assert str(failure.get("message")).startswith("fail-output: before ")
    assert str(failure.get("message")).endswith(" after")


def test_a_clock_that_was_set_back_takes_no_time(report: dict[str, Any]) -> None:
    told = copy.deepcopy(report)
    told["cells"][0]["started_at"] = "2999-01-01T00:00:00+00:00"
    (suite,) = junitparser.JUnitXml.fromstring(junit(told))
    assert next(iter(suite)).time == 0.0
