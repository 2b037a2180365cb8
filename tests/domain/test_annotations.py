from __future__ import annotations

from typing import Any

import pytest

from service.domain.annotations import expectation


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        ("int", 1),
        ("float", 1.5),
        ("float", 1),
        ("bool", True),
        ("str", ""),
        ("str | None", None),
        ("Optional[int]", None),
        ("Union[int, str]", "x"),
        ("int | str | None", 2),
        ("Literal['a', 'b'] | None", "b"),
        ("Literal[1, 8]", 8),
        ("Literal['default']", "default"),
        ("list[str] | None", ["a"]),
        ("list[int | str]", [1, "a"]),
        ("list[Literal['a']]", []),
        # What is not simple is not judged.
        ("CompilationMode", "x"),
        ("int | CompilationMode", "x"),
        ("dict[str, Any]", 1),
        ("list[Any]", 1),
        ("list", 1),
        ("set[str]", 1),
        ("Literal[Mode.A]", 1),
        ("torch.dtype | str", 1),
        ("not an annotation", 1),
        ("", 1),
    ],
)
def test_a_value_that_fits_or_cannot_be_judged_passes(annotation: str, value: Any) -> None:
    assert expectation(annotation, value) is None


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        ("int", True, "an integer"),
        ("int", 1.0, "an integer"),
        ("int", "1", "an integer"),
        ("float", False, "a number"),
        ("bool", 1, "true or false"),
        ("bool", "off", "true or false"),
        ("str", 1, "a string"),
        ("str", None, "a string"),
        ("int | None", "x", "an integer or null"),
        ("Optional[bool]", 1, "true or false or null"),
        ("Literal['a', 'b'] | None", "c", '"a", "b" or null'),
        ("Literal[1, 8]", True, "1 or 8"),
        ("Literal[0, 1]", False, "0 or 1"),
        ("list[str]", "a", "a list (each item a string)"),
        ("list[int | str]", [1, None], "a list (each item an integer or a string)"),
    ],
)
def test_a_value_that_fits_nothing_is_told_what_would(annotation: str, value: Any, expected: str) -> None:
    assert expectation(annotation, value) == expected
