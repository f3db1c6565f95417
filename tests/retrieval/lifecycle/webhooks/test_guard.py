"""Where webhooks may lead: spellings of closed addresses, names that lead there, exceptions."""

from __future__ import annotations

import pytest

from retrieval.errors import InvalidInput
from retrieval.lifecycle.webhooks import guard
from retrieval.lifecycle.webhooks.guard import Address, AddressGuard, Blocked, literal

pytestmark = pytest.mark.unit

CLOSED = (
    "127.0.0.1", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "0",
    "0.0.0.0", "10.0.0.1", "172.16.9.9", "172.31.255.255", "192.168.1.1", "169.254.169.254",
    "100.64.0.1", "100.127.255.255", "192.0.0.8", "192.0.2.1", "198.18.0.1", "198.51.100.7",
    "203.0.113.9", "192.88.99.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
    "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:8.8.8.8]", "[::ffff:7f00:1]", "[fe80::1]",
    "[fc00::1]", "[fd00:ec2::254]", "[ff02::1]", "[2001:db8::1]", "[64:ff9b::7f00:1]",
    "[64:ff9b:1::1]", "[2002:7f00:1::]", "[2001::1]", "[fec0::1]", "[::127.0.0.1]", "[100::1]",
    "localhost", "LOCALHOST.", "a.localhost", "printer.local", "127.0.0.1.",
)  # fmt: skip
OPEN = ("8.8.8.8", "1.1.1.1", "[2606:4700:4700::1111]", "example.org", "xn--bcher-kva.example")


@pytest.mark.parametrize("host", CLOSED)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_closed_literals(host: str, scheme: str) -> None:
    with pytest.raises(InvalidInput, match="url: "):
        AddressGuard().read(f"{scheme}://{host}:8080/hook")


@pytest.mark.parametrize("host", OPEN)
def test_open_literals(host: str) -> None:
    assert AddressGuard().read(f"https://{host}/hook?a=b").port == 443


@pytest.mark.parametrize(
    "url",
    [
        "", "example.org", "//example.org", "ftp://example.org", "file:///etc/passwd",
        "javascript:alert(1)", "http://", "http:///x", "http://user:pass@example.org",
        "http://example.org@127.0.0.1/", "http://127.0.0.1#@example.org/", "http://exa mple.org",
        "http://example.org/\r\nX: y", "http://example.org/\0", "http://example.org:99999",
        "http://[::1", "gopher://example.org", "http://１２７.0.0.1/", "http://" + "a" * 3000,
        " http://example.org", "http://example.org\t",
    ],
)  # fmt: skip
def test_what_is_no_address_of_a_receiver(url: str) -> None:
    with pytest.raises(InvalidInput, match="url: "):
        AddressGuard().read(url)


def test_what_the_operator_opens() -> None:
    opened = AddressGuard.of(
        ["127.0.0.1", "10.1.0.0/16", "hooks", ".corp.example", "::1", "fd00::/8"]
    )
    for host in ("127.0.0.1", "10.1.2.3", "hooks", "HOOKS.", "a.corp.example", "[::1]", "[fd00::9]",
                 "[::ffff:10.1.2.3]", "2130706433"):  # fmt: skip
        opened.read(f"http://{host}/")
    for host in ("127.0.0.2", "10.2.0.1", "localhost", "[::ffff:10.2.0.1]"):
        with pytest.raises(InvalidInput, match="WEBHOOK_ALLOWED_HOSTS"):
            opened.read(f"http://{host}/")
    for wrong in ("10.0.0.0/99", "a/b", "."):
        with pytest.raises(ValueError, match="neither"):
            AddressGuard.of([wrong])


def address(text: str) -> Address:
    found = literal(text)
    assert found is not None
    return found


async def test_every_resolved_address_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, list[Address]] = {
        "good.example": [address("8.8.8.8"), address("2606:4700:4700::1111")],
        "rebound.example": [address("8.8.8.8"), address("169.254.169.254")],
        "mapped.example": [address("::ffff:10.0.0.1")],
        "none.example": [],
    }

    async def resolved(host: str, port: int) -> list[Address]:
        return names[host]

    monkeypatch.setattr(guard, "_resolved", resolved)
    closed = AddressGuard()
    good = await closed.resolve(closed.read("https://good.example/"))
    assert str(good) == "8.8.8.8"
    for name in ("rebound.example", "mapped.example"):
        with pytest.raises(Blocked, match="is "):
            await closed.resolve(closed.read(f"https://{name}/"))
    with pytest.raises(OSError, match="no address"):
        await closed.resolve(closed.read("https://none.example/"))
    assert await AddressGuard.of(["rebound.example"]).resolve(
        closed.read("https://rebound.example/")
    )
