"""Where a webhook may lead: not into the network that the server stands in.

The literal is looked at when a webhook is made, every resolved address at every attempt; what was
looked at is what is dialled.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import httpx

from retrieval.errors import InvalidInput

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

URL_MAX = 2_048

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_COMPATIBLE = ipaddress.IPv6Network("::/96")
_CLOSED = (
    ipaddress.IPv4Network("100.64.0.0/10"),  # shared by providers (RFC 6598)
    ipaddress.IPv4Network("192.0.0.0/24"),  # of protocols (RFC 6890)
    ipaddress.IPv4Network("192.88.99.0/24"),  # 6to4 relays (RFC 7526)
    ipaddress.IPv6Network("64:ff9b:1::/48"),  # local-use translation (RFC 8215)
    ipaddress.IPv6Network("fec0::/10"),  # site-local (RFC 3879)
)
"""Not global, whatever the standard library of a Python version says of them."""


class Blocked(Exception):
    """The address is not one that may be dialled; the message says why."""


@dataclass(frozen=True, slots=True)
class WebhookUrl:
    """A URL that was read. `host` is in lower case, without a last dot; an address as it is."""

    url: str
    host: str
    port: int

    @property
    def receiver(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class AddressGuard:
    """`names` (`host`, or `.domain` for all of it) and `networks` are open in any case."""

    names: frozenset[str] = frozenset()
    networks: tuple[Network, ...] = ()

    @classmethod
    def of(cls, allowed: Sequence[str]) -> AddressGuard:
        """Of names, addresses and networks as settings list them. ValueError names a bad one."""
        names, networks = set(), []
        for one in allowed:
            try:
                networks.append(ipaddress.ip_network(one.strip("[]"), strict=False))
            except ValueError:
                if "/" in one or not one.strip("."):
                    raise ValueError(f"{one!r} is neither a name nor a network") from None
                names.add(one.lower().removesuffix("."))
        return cls(frozenset(names), tuple(networks))

    def opens(self, host: str) -> bool:
        """Is the name listed?"""
        above = host.split(".")
        return host in self.names or any(
            "." + ".".join(above[start:]) in self.names for start in range(len(above))
        )

    def check(self, address: Address) -> None:
        """Blocked where `address` is not of the public network and in none that is open."""
        inner = [address, *_embedded(address)]
        if any(one.version == net.version and one in net for one in inner for net in self.networks):
            return
        for one in inner:
            if why := _closed(one):
                raise Blocked(f"{address} is {why}")

    def read(self, url: str, field: str = "url") -> WebhookUrl:
        """The URL of a webhook. InvalidInput where it is none, or leads to a closed literal."""
        target = _parsed(url, field)
        if self.opens(target.host):
            return target
        if target.host == "localhost" or target.host.endswith((".localhost", ".local")):
            raise InvalidInput(
                f"{field}: {target.host} is in this network: WEBHOOK_ALLOWED_HOSTS opens it",
                field,
            )
        if (address := literal(target.host)) is not None:
            try:
                self.check(address)
            except Blocked as error:
                raise InvalidInput(
                    f"{field}: {error}: WEBHOOK_ALLOWED_HOSTS opens it", field
                ) from None
        return target

    async def resolve(self, target: WebhookUrl) -> Address:
        """The address to dial. Blocked where one of the host's is closed; OSError where it has
        none."""
        address = literal(target.host)
        found = [address] if address is not None else await _resolved(target.host, target.port)
        if not found:
            raise OSError(f"{target.host} has no address")
        if not self.opens(target.host):
            for one in found:
                self.check(one)
        return found[0]


async def _resolved(host: str, port: int) -> list[Address]:
    loop = asyncio.get_running_loop()
    rows = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    # A zone behind an address names an interface of ours.
    return [ipaddress.ip_address(str(row[4][0]).partition("%")[0]) for row in rows]


def literal(host: str) -> Address | None:
    """The address that `host` writes, in any of the spellings that systems read (127.1, 0x7f.1,
    2130706433); None for a name."""
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        pass
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except (OSError, UnicodeError):
        return None


def _embedded(address: Address) -> list[ipaddress.IPv4Address]:
    """IPv4 addresses that an IPv6 address leads on to."""
    if isinstance(address, ipaddress.IPv4Address):
        return []
    found = [address.ipv4_mapped, address.sixtofour]
    if address.teredo is not None:
        found += list(address.teredo)
    if address in _NAT64 or (address in _COMPATIBLE and int(address) > 0xFFFF):  # not :: and ::1
        found.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return [one for one in found if one is not None]


def _closed(address: Address) -> str | None:
    """Why an address is not of the public network; None where it is."""
    for flag, why in (
        ("is_unspecified", "no address"),
        ("is_loopback", "this machine"),
        ("is_link_local", "link-local"),
        ("is_multicast", "multicast"),
        ("is_private", "private"),
        ("is_reserved", "reserved"),
    ):
        if getattr(address, flag):
            return why
    if not address.is_global or any(
        address.version == one.version and address in one for one in _CLOSED
    ):
        return "not of the public network"
    return None


def _parsed(url: str, field: str) -> WebhookUrl:
    if len(url) > URL_MAX or url != url.strip() or any(ord(c) < 33 or ord(c) == 127 for c in url):
        raise InvalidInput(
            f"{field}: at most {URL_MAX} characters, no blanks or control characters", field
        )
    try:
        parsed = httpx.URL(url)
        host = parsed.raw_host.decode("ascii").lower().removesuffix(".")
        port = parsed.port or (443 if parsed.scheme == "https" else 80)
    except (httpx.InvalidURL, UnicodeError, ValueError) as error:
        raise InvalidInput(f"{field}: {str(error)[:200]}", field) from None
    if parsed.scheme not in ("http", "https") or not host:
        raise InvalidInput(f"{field}: must be an address of http:// or https://", field)
    if not 0 < port < 65536:
        raise InvalidInput(f"{field}: there is no port {port}", field)
    if parsed.userinfo:
        raise InvalidInput(f"{field}: name and password do not belong in it: use a header", field)
    return WebhookUrl(str(parsed.copy_with(fragment=None)), host, port)
