"""Sending of one webhook, signed per Standard Webhooks, to public addresses only.

The host is resolved once, all its addresses are checked, and the connection uses one of them. That prevents DNS
rebinding. Redirects and the environment's proxies are not used. TLS certificates are checked against the host's name.
``TOTAL_SECONDS`` bound an attempt as a whole: name, connection, TLS and the answer's head. The body is not read.
"""

import asyncio
import base64
import hashlib
import hmac
import ipaddress
import secrets
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

import httpx

TOTAL_SECONDS = 10.0
DNS_SECONDS = 3.0
SECRET_PREFIX = "whsec_"
_NAT64 = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("64:ff9b:1::/48"))
Resolve = Callable[[str, int], Sequence[str]]


class AddressRefused(Exception):
    """The URL does not resolve to public addresses only."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of one attempt. ``error`` is None after any 2xx answer."""

    status: int | None
    error: str | None


def new_secret() -> str:
    """Return a signing secret: ``whsec_`` and 32 random bytes in base64."""
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def sign(secret: str, message_id: str, timestamp: int, payload: bytes) -> str:
    """Return the ``v1`` signature (Standard Webhooks): HMAC-SHA256 of ``id.timestamp.payload``."""
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX))
    digest = hmac.new(key, f"{message_id}.{timestamp}.".encode() + payload, hashlib.sha256).digest()
    return "v1," + base64.b64encode(digest).decode()


def resolve(host: str, port: int) -> list[str]:
    """Return all addresses of a host. Raises OSError if it has none."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def checked_addresses(url: httpx.URL, *, private: bool, resolve: Resolve = resolve) -> list[str]:
    """Return the addresses to which a webhook for this URL may connect.

    Args:
        private: allow http and private addresses (devnets).

    Raises:
        AddressRefused: the URL is not https, has no host or a user, or does not resolve to public addresses.
    """
    if url.scheme not in (("https", "http") if private else ("https",)):
        raise AddressRefused(f"the scheme is {url.scheme or 'missing'!r}, not 'https'")
    try:
        host = url.host
    except UnicodeError as error:  # httpx decodes xn-- names
        raise AddressRefused(f"the host is not a valid name: {error}") from error
    if not host or url.userinfo:
        raise AddressRefused("the URL has no host" if not host else "the URL has a user or password")
    if url.port is not None and not 0 < url.port < 2**16:  # getaddrinfo would reduce it modulo 2**16
        raise AddressRefused(f"the port is {url.port}")
    try:
        addresses = _resolve_in_time(resolve, host, url.port or (443 if url.scheme == "https" else 80))
    except TimeoutError as error:
        raise AddressRefused(f"the host {host!r} does not resolve within {DNS_SECONDS:.0f} s") from error
    except (OSError, UnicodeError) as error:
        raise AddressRefused(f"the host {host!r} does not resolve") from error
    for address in addresses:
        if not private and not is_public(address):
            raise AddressRefused(f"the host {host!r} has the address {address}, which is not public")
    return list(addresses)


def _resolve_in_time(resolve: Resolve, host: str, port: int) -> Sequence[str]:
    """Return the addresses of a host; a thread is left to the resolver's own, longer timeouts.

    Raises:
        TimeoutError: there was no answer within ``DNS_SECONDS``.
        OSError: the host has no address.
    """
    found: Future[Sequence[str]] = Future()

    def look_up() -> None:
        try:
            found.set_result(resolve(host, port))
        except Exception as error:  # raised again below
            found.set_exception(error)

    threading.Thread(target=look_up, name="webhook-dns", daemon=True).start()
    return found.result(DNS_SECONDS)


def is_public(address: str) -> bool:
    """Return true for a globally reachable IP address that is not a tunnel to another address."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            found = found.ipv4_mapped
        elif found.sixtofour or found.teredo or any(found in network for network in _NAT64):
            return False
    return found.is_global and not found.is_multicast and not found.is_reserved


def send(
    url: str,
    *,
    signing: Sequence[str],
    message_id: str,
    timestamp: int,
    payload: bytes,
    private: bool,
    resolve: Resolve = resolve,
) -> Outcome:
    """Make one attempt, signed with each secret. Remote failures become an Outcome."""
    ends_at = time.monotonic() + TOTAL_SECONDS
    target = httpx.URL(url)
    try:
        address = checked_addresses(target, private=private, resolve=resolve)[0]
    except AddressRefused as error:
        return Outcome(None, str(error))
    headers = {
        "Host": target.netloc.decode(),
        "Content-Type": "application/json",
        "User-Agent": "zoo-compute-webhooks/1",
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(sign(secret, message_id, timestamp, payload) for secret in signing),
    }
    extensions = {"sni_hostname": target.host} if target.scheme == "https" else {}
    request = httpx.Request(
        "POST", target.copy_with(host=address), content=payload, headers=headers, extensions=extensions
    )
    try:
        status = asyncio.run(asyncio.wait_for(_status(request), ends_at - time.monotonic()))
    except TimeoutError:
        return Outcome(None, f"no answer within {TOTAL_SECONDS:.0f} s")
    except (httpx.HTTPError, OSError) as error:
        return Outcome(None, f"{type(error).__name__}: {error}"[:200])
    return Outcome(status, None if 200 <= status < 300 else f"the receiver answered {status}")


async def _status(request: httpx.Request) -> int:
    """Return the status of the answer. No timeout of its own: the caller cancels it."""
    async with httpx.AsyncClient(timeout=None, trust_env=False, follow_redirects=False) as client:
        response = await client.send(request, stream=True)
        await response.aclose()
        return response.status_code
