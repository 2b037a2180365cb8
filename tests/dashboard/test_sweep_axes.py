"""The cells of a sweep over its axes: which make rows, columns and small multiples, and what is offered and said."""

from __future__ import annotations

import re

import pytest
from api.client import Client

from dashboard.page import Page
from dashboard.test_sweep_page import PAGE, TABLE, chips, grid
from service.store import Store


def headers(html: str) -> list[str]:
    heat = html.partition('<table class="heat">')[2].partition("</table>")[0]
    return re.findall(r'<th scope="\w+">(.*?)</th>', heat)


def test_cells_lie_over_two_axes(client: Client, store: Store) -> None:
    grid(store, ("tensor_parallel_size", [2, 4]), ("dtype", ["float32", "bfloat16"]))
    html = client.get(PAGE).text
    assert headers(html) == ["&#34;float32&#34;", "&#34;bfloat16&#34;", "2", "4"]
    assert chips(client) == ["cell 0", "cell 1", "cell 2", "cell 3"]
    turned = client.get(PAGE + "?x=tensor_parallel_size&y=dtype").text
    assert headers(turned) == ["2", "4", "&#34;float32&#34;", "&#34;bfloat16&#34;"]


def test_a_third_axis_makes_small_multiples(client: Client, store: Store) -> None:
    grid(store, ("a", [1, 2]), ("b", [1, 2]), ("c", [1, 2]))
    assert client.get(PAGE).text.count('<table class="heat">') == 2
    together = client.get(PAGE + "?by=-").text
    assert together.count('<table class="heat">') == 1
    assert len(chips(client, "?by=-")) == 8


def offered(html: str, name: str) -> list[str]:
    choice = re.search(rf'<select name="{name}">(.*?)</select>', html, re.DOTALL)
    assert choice is not None
    return re.findall(r'<option value="([^"]*)"', choice[1])


def test_what_makes_rows_or_columns_is_not_offered_for_small_multiples(client: Client, store: Store) -> None:
    grid(store, ("a", [1, 2]), ("b", [1, 2]), ("c", [1, 2]))
    html = client.get(PAGE).text
    assert (offered(html, "y"), offered(html, "by")) == (["-", "a", "b", "c"], ["-", "c"])
    turned = client.get(PAGE + "?y=c&x=a").text
    assert offered(turned, "by") == ["-", "b"]
    assert "makes no" not in html + turned


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("?y=a&x=b&by=a", ["'a' makes the rows, so it makes no small multiples too."]),
        ("?y=a&x=b&by=b", ["'b' makes the columns, so it makes no small multiples too."]),
        ("?y=a&x=a", ["'a' makes the rows, so it makes no columns too."]),
        ("?y=a&x=a&by=a", ["so it makes no columns too.", "so it makes no small multiples too."]),
        ("?y=a&x=b&by=c", []),
        ("?y=a&x=-&by=-", []),
    ],
)
def test_an_axis_in_two_places_is_said(client: Client, store: Store, query: str, said: list[str]) -> None:
    grid(store, ("a", [1, 2]), ("b", [1, 2]), ("c", [1, 2]))
    for path in (PAGE, TABLE):
        text = Page(client.get(path + query).text).text
        assert all(sentence in text for sentence in said), path
        assert text.count("so it makes no") == len(said), path
