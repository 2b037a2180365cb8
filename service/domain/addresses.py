"""Where the controller may send something by itself: http and https, to addresses that everybody can reach.

What somebody names as a receiver would otherwise be asked from inside: the metadata of a cloud's machine, a database's
console, the controller itself.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

SCHEMES = ("http", "https")
LONGEST = 2000
"""Characters of an address."""

_TRANSLATED = ipaddress.ip_network("64:ff9b::/96")
"""IPv6 addresses that a gateway turns into the IPv4 address in their last 32 bits (RFC 6052)."""


class BadAddress(ValueError):
    """An address that nothing is sent to. The text says why."""


def check_url(url: str, private: bool) -> None:
    """Look at what can be seen of ``url`` itself; the addresses of a name are looked at as it is used.

    Args:
        private: addresses that not everybody can reach are allowed.

    Raises:
        BadAddress: if nothing may be sent there.
    """
    if len(url) > LONGEST or not url.isprintable() or " " in url:
        raise BadAddress(f"an address has at most {LONGEST} printable characters and no spaces")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise BadAddress(f"this is no address: {error}") from error
    if parts.scheme not in SCHEMES or not host:
        raise BadAddress("an address begins with https:// or http:// and names a host")
    if parts.username is not None or parts.password is not None:
        raise BadAddress("an address holds no user name or password; what is sent is signed instead")
    if is_address(host):
        check_address(host, private)


def check_address(address: str, private: bool) -> None:
    """
    Raises:
        BadAddress: if nothing may be sent to this IP address.
    """
    if not private and not is_public(address):
        raise BadAddress(
            f"{address} is no address that everybody can reach; an operator allows such with "
            "SHARDPROOF_ALERTS_TO_PRIVATE_ADDRESSES=true"
        )


def is_address(host: str) -> bool:
    """Whether a host is given by an IP address."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_public(address: str) -> bool:
    """Whether an IP address belongs to the internet at large, also when it is wrapped in an IPv6 one."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address) and (inner := _wrapped(found)) is not None:
        return is_public(str(inner))
    return found.is_global and not found.is_multicast


def _wrapped(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if address in _TRANSLATED:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return None
