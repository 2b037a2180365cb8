"""One message to one receiver: to an address that was looked at, within a time, and nowhere it leads on to."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from service.domain.addresses import BadAddress, check_address, check_url
from service.domain.webhooks import headers

LIMIT_S = 15.0
"""For all of it. Who answers a letter at a time is given up too."""


@dataclass(frozen=True)
class Sent:
    """``status``: of the answer, ``None`` where there was none; ``detail`` says why."""

    status: int | None
    detail: str | None = None


def body_of(payload: Mapping[str, Any]) -> bytes:
    """What is signed and sent."""
    return json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode()


async def send(
    url: str, secret: str, message_id: str, payload: Mapping[str, Any], timestamp: int, private: bool
) -> Sent:
    """Send a message. What goes wrong is in the answer, nothing is raised.

    Args:
        timestamp: now, Unix seconds.
        private: addresses that not everybody can reach are allowed.
    """
    body = body_of(payload)
    try:
        check_url(url, private)
        async with asyncio.timeout(LIMIT_S):
            return await _posted(httpx.URL(url), headers(secret, message_id, timestamp, body), body, private)
    except (BadAddress, httpx.InvalidURL) as error:
        return Sent(None, f"not sent: {error}")
    except TimeoutError:
        return Sent(None, f"no answer within {LIMIT_S:.0f} s")
    except (httpx.HTTPError, OSError) as error:
        return Sent(None, f"{type(error).__name__}: {error}"[:300])


async def _posted(url: httpx.URL, signed: Mapping[str, str], body: bytes, private: bool) -> Sent:
    address = await _resolved(url, private)
    # The address that was looked at is the one that is asked: a name may lead elsewhere the next time.
    named = {"Host": url.netloc.decode("ascii"), "User-Agent": "shardproof"}
    async with httpx.AsyncClient(timeout=LIMIT_S, follow_redirects=False, trust_env=False) as client:
        request = client.build_request(
            "POST",
            url.copy_with(host=address),
            headers={**named, **signed},
            content=body,
            extensions={**client.build_request("POST", url).extensions, "sni_hostname": url.host},
        )
        response = await client.send(request, stream=True)
        await response.aclose()
    return Sent(response.status_code, None if response.is_success else f"answered {response.status_code}")


async def _resolved(url: httpx.URL, private: bool) -> str:
    """An address of the host.

    Raises:
        BadAddress: if one of them may not be asked.
    """
    port = url.port or {"https": 443, "http": 80}[url.scheme]
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(url.host, port, type=socket.SOCK_STREAM)
    addresses = [str(item[4][0]) for item in found]
    for address in addresses:
        check_address(address, private)
    return addresses[0]
