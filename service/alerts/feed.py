"""Notices as an Atom feed (RFC 4287), for feed readers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from urllib.parse import urlsplit
from xml.etree import ElementTree

from service.domain.alerts import Alert, facts, headline

NAMESPACE = "http://www.w3.org/2005/Atom"
MEDIA_TYPE = "application/atom+xml"
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
"""When a feed without entries was changed last: it has to say."""

_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that no XML document may have."""


def feed(alerts: Sequence[Alert], base: str) -> bytes:
    """The feed of ``alerts``, newest first, UTF-8. ``base``: where the controller is reached."""
    root = ElementTree.Element("feed", xmlns=NAMESPACE)
    _add(root, "title", "Shardproof")
    _add(root, "id", _tag(base, BEGIN, "feed"))
    _add(root, "updated", max((alert.at for alert in alerts), default=BEGIN).isoformat())
    _add(root, "link", rel="self", href=f"{base}/feed.atom")
    _add(root, "link", rel="alternate", href=f"{base}/")
    _add(_add(root, "author"), "name", "Shardproof")
    for alert in alerts:
        root.append(_entry(alert, base))
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True))


def _entry(alert: Alert, base: str) -> ElementTree.Element:
    entry = ElementTree.Element("entry")
    _add(entry, "title", headline(alert))
    _add(entry, "id", _tag(base, alert.at, f"notice/{alert.id}"))
    _add(entry, "updated", alert.at.isoformat())
    _add(entry, "category", term=str(alert.kind))
    if alert.link is not None:
        _add(entry, "link", rel="alternate", href=alert.link)
    _add(entry, "summary", "\n".join([alert.what, *facts(alert)]))
    return entry


def _add(parent: ElementTree.Element, name: str, text: str | None = None, **attributes: str) -> ElementTree.Element:
    found = ElementTree.SubElement(parent, name, {key: _xml(value) for key, value in attributes.items()})
    found.text = None if text is None else _xml(text)
    return found


def _xml(text: str) -> str:
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)


def _tag(base: str, at: datetime, what: str) -> str:
    """An id that stays what it is (RFC 4151)."""
    parts = urlsplit(base)
    return f"tag:{parts.hostname},{at:%Y-%m-%d}:{parts.path}/{what}"
