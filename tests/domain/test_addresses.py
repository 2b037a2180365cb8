from __future__ import annotations

import pytest

from service.domain.addresses import BadAddress, check_url, is_public

PRIVATE = [
    "127.0.0.1",
    "0.0.0.0",
    "10.0.0.1",
    "172.16.3.4",
    "192.168.1.1",
    "100.64.0.1",
    "169.254.169.254",
    "224.0.0.1",
    "255.255.255.255",
    "::1",
    "::",
    "fe80::1%eth0",
    "fd00::1",
    "ff02::1",
    "::ffff:10.0.0.1",
    "2002:0a00:0001::1",
    "64:ff9b::a00:1",
]


@pytest.mark.parametrize("address", PRIVATE)
def test_what_not_everybody_can_reach(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["1.1.1.1", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"])
def test_what_everybody_can_reach(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "hooks.example",
        "ftp://hooks.example/x",
        "file:///etc/passwd",
        "gopher://127.0.0.1:6379/_FLUSHALL",
        "https://",
        "https:///path",
        "https://user:password@hooks.example",
        "https://user@hooks.example",
        "https://hooks.example:70000/",
        "https://[::1",
        "https://hooks.example/a b",
        "https://hooks.example/\r\nHost: other",
        "https://hooks.example/" + "x" * 2000,
    ],
)
def test_what_is_no_address(url: str) -> None:
    for private in (False, True):
        with pytest.raises(BadAddress):
            check_url(url, private)


@pytest.mark.parametrize("url", ["http://10.0.0.1/", "http://[::1]:8000/x", "http://127.0.0.1:8910/v1/keys"])
def test_a_private_address_is_allowed_by_the_operator_alone(url: str) -> None:
    check_url(url, private=True)
    with pytest.raises(BadAddress, match="SHARDPROOF_ALERTS_TO_PRIVATE_ADDRESSES"):
        check_url(url, private=False)


@pytest.mark.parametrize("url", ["https://hooks.example", "http://hooks.example:8080/a/b?c=d", "https://1.1.1.1/x"])
def test_a_healthy_address(url: str) -> None:
    check_url(url, private=False)
