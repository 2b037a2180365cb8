"""The feed as a reader takes it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from xml.etree.ElementTree import Element

from defusedxml import ElementTree
from domain.test_alerts import SLOW

from service.alerts.feed import feed

ATOM = "{http://www.w3.org/2005/Atom}"
BASE = "https://ci.example/sp"


def read(content: bytes) -> Element:
    found: Element = ElementTree.fromstring(content)
    return found


def words(element: Element, name: str) -> str:
    return str(element.findtext(f"{ATOM}{name}"))


def test_an_entry_says_all_there_is_to_know_and_leads_to_the_cell() -> None:
    root = read(feed([SLOW], BASE))
    assert (root.tag, words(root, "title")) == (f"{ATOM}feed", "Shardproof")
    (entry,) = root.findall(f"{ATOM}entry")
    assert words(entry, "title") == "▲ regression: the warm start of tp2 is slow"
    for fact in ("8.0 s → 12.4 s (× 1.55)", "since sweep s0", "vllm 0.30.0 → 0.31.0"):
        assert fact in words(entry, "summary")
    (link,) = entry.findall(f"{ATOM}link")
    assert link.get("href") == SLOW.link


def test_it_has_what_every_feed_needs() -> None:
    for alerts in ([], [SLOW]):
        root = read(feed(alerts, BASE))
        for element in (root, *root.findall(f"{ATOM}entry")):
            assert words(element, "id").startswith("tag:ci.example,2026-")
            assert datetime.fromisoformat(words(element, "updated")).tzinfo is not None
        assert words(root.findall(f"{ATOM}author")[0], "name")
        assert {link.get("rel"): link.get("href") for link in root.findall(f"{ATOM}link")} == {
            "self": f"{BASE}/feed.atom",
            "alternate": f"{BASE}/",
        }


def test_hostile_text_is_text() -> None:
    hostile = "<script>alert(1)</script> & \x1b[31m\x00 ]]>"
    root = read(feed([replace(SLOW, what=hostile)], BASE))
    (entry,) = root.findall(f"{ATOM}entry")
    assert "<script>alert(1)</script> & \ufffd[31m\ufffd ]]>" in words(entry, "summary")
    assert list(entry.iter("script")) == []
