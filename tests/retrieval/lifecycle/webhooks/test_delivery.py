"""Deliveries over a real socket and a real database: signatures, retries, ends, the guard."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest

from retrieval.errors import Conflict, InvalidInput, NotFound
from retrieval.lifecycle.webhooks.delivery import Deliverer
from retrieval.lifecycle.webhooks.guard import AddressGuard
from retrieval.lifecycle.webhooks.registry import MOST, OfAll, WebhookRegistry
from retrieval.lifecycle.webhooks.vault import Vault
from retrieval.store import banks
from retrieval.store.database.pool import Connection, Pool, read, write
from retrieval.store.outbox import OutboxEvent, emit
from tests.retrieval.lifecycle.webhooks.receiver import Receiver, answer, receiving
from tests.retrieval.store.servers import database

pytestmark = pytest.mark.integration

OPEN = AddressGuard.of(["127.0.0.1"])


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    async with database() as opened:
        yield opened


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as found:
        yield found


def hooks(pool: Pool, guard: AddressGuard = OPEN, *keys: str) -> WebhookRegistry:
    return WebhookRegistry(pool, Vault(pool, keys), guard)


def deliverer(pool: Pool, guard: AddressGuard = OPEN, **options: Any) -> Deliverer:
    options = {"waits_s": (0.0, 0.0), **options}
    return Deliverer(pool, Vault(pool), guard, **options)


async def hook(pool: Pool, url: str, **fields: Any) -> dict[str, Any]:
    fields = {"url": url, "event_types": ["document.deleted"], **fields}
    return await hooks(pool).create("t", "b", fields)


async def tell(pool: Pool, *ids: str, type: str = "document.deleted", bank: str = "b") -> None:
    async def work(connection: Connection) -> None:
        head = await banks.ensure(connection, "t", bank)
        await emit(connection, head, [OutboxEvent(type, {"document_id": id}) for id in ids])

    await write(pool, work)


async def shown(pool: Pool, webhook: dict[str, Any]) -> list[dict[str, Any]]:
    found = await hooks(pool).deliveries("t", "b", webhook["id"])
    items: list[dict[str, Any]] = found["items"]
    return items


async def test_what_is_sent_is_what_is_signed(pool: Pool, receiver: Receiver) -> None:
    made = await hook(
        pool,
        receiver.url + "?a=b",
        secret="s3cret",
        http_config={
            "headers": {"Authorization": "Bearer x", "X-Hindsight-Event": "evil", "host": "evil"},
            "params": {"c": "d e"},
        },
    )
    assert made["secret"] is None
    await tell(pool, "d/1")
    assert await deliverer(pool).step() == 1
    (got,) = receiver.got
    assert (got.method, got.path) == ("POST", "/hook?a=b&c=d+e")
    assert got.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert got.headers["authorization"] == "Bearer x"
    assert got.headers["x-hindsight-event"] == "document.deleted"
    signed = hmac.new(b"s3cret", got.body, hashlib.sha256).hexdigest()
    assert got.headers["x-hindsight-signature"] == f"sha256={signed}"
    body = json.loads(got.body)
    assert (body["event"], body["bank_id"], body["data"]) == (
        "document.deleted", "b", {"document_id": "d/1"},
    )  # fmt: skip
    (delivery,) = await shown(pool, made)
    assert (delivery["status"], delivery["attempts"]) == ("completed", 1)
    assert (delivery["last_response_status"], delivery["next_retry_at"]) == (200, None)
    assert delivery["last_response_body"] is None


async def test_it_is_tried_again_and_then_no_more(pool: Pool, receiver: Receiver) -> None:
    made = await hook(pool, receiver.url)
    receiver.answers = [answer(500), answer(302, "Location: http://127.0.0.1:1/"), answer(204)]
    await tell(pool, "a")
    telling = deliverer(pool)
    for attempts, status in ((1, "pending"), (2, "pending"), (3, "completed")):
        assert await telling.step() == 1
        (delivery,) = await shown(pool, made)
        assert (delivery["attempts"], delivery["status"]) == (attempts, status)
    assert {got.headers["x-hindsight-delivery-id"] for got in receiver.got} == {delivery["id"]}
    assert len({got.body for got in receiver.got}) == 1
    receiver.answers = [answer(503)]
    await tell(pool, "b")
    while await telling.step():
        pass
    last = (await shown(pool, made))[0]
    assert (last["status"], last["attempts"], last["last_error"]) == (
        "failed", 3, "it answered 503",
    )  # fmt: skip
    receiver.answers = [answer(200)]
    again = await hooks(pool).retry("t", "b", made["id"], last["id"])
    assert (again["status"], again["attempts"]) == ("pending", 0)
    with pytest.raises(Conflict, match="has not ended"):
        await hooks(pool).retry("t", "b", made["id"], last["id"])
    assert await telling.step() == 1
    assert (await shown(pool, made))[0]["status"] == "completed"


async def test_it_waits_as_it_is_told(pool: Pool, receiver: Receiver) -> None:
    made = await hook(pool, receiver.url)
    receiver.answers = [answer(429, "Retry-After: 3600")]
    await tell(pool, "a")
    telling = deliverer(pool)
    assert await telling.step() == 1
    assert await telling.step() == 0
    waits = await pool.fetchval(
        "select extract(epoch from next_attempt_at - now()) from webhook_deliveries"
    )
    assert 3000 < waits <= 3600
    assert (await shown(pool, made))[0]["next_retry_at"] is not None


async def test_who_is_gone_or_silent_for_days_is_switched_off(
    pool: Pool, receiver: Receiver
) -> None:
    made = await hook(pool, receiver.url)
    receiver.answers = [answer(410)]
    await tell(pool, "a")
    telling = deliverer(pool)
    assert await telling.step() == 1
    (only,) = (await hooks(pool).listed("t", "b"))["items"]
    assert not only["enabled"]
    assert (await shown(pool, made))[0]["status"] == "failed"
    await tell(pool, "b")
    assert await telling.step() == 0

    await hooks(pool).patch("t", "b", made["id"], {"enabled": True})
    receiver.answers = [answer(500)]
    await tell(pool, "c", "d")
    assert await telling.step() == 2
    await pool.execute("update webhooks set failing_since = now() - interval '6 days'")
    await telling.step()
    (only,) = (await hooks(pool).listed("t", "b"))["items"]
    assert not only["enabled"]
    assert {one["status"] for one in await shown(pool, made)} == {"failed"}
    receiver.answers = [answer(200)]
    await hooks(pool).patch("t", "b", made["id"], {"enabled": True})
    await hooks(pool).test("t", "b", made["id"])
    assert await telling.step() == 1
    assert await pool.fetchval("select failing_since from webhooks") is None


async def test_a_receiver_has_two_slots(pool: Pool, receiver: Receiver) -> None:
    await hook(pool, receiver.url)
    await tell(pool, *(f"d{i}" for i in range(5)))
    receiver.held.clear()
    steps = [asyncio.create_task(deliverer(pool).step()) for _ in range(3)]
    async with asyncio.timeout(30):
        while len(receiver.got) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        receiver.held.set()
        await asyncio.gather(*steps)
        while await deliverer(pool).step():
            pass
    assert (len(receiver.got), receiver.most_at_once) == (5, 2)


@pytest.mark.parametrize("keeps", [True, False])
async def test_what_receivers_answer(pool: Pool, receiver: Receiver, keeps: bool) -> None:
    made = await hook(pool, receiver.url)
    receiver.answers = [answer(500, body=b"x\0y" + b"z" * 9000)]
    await tell(pool, "a")
    await deliverer(pool, keeps_bodies=keeps).step()
    said = (await shown(pool, made))[0]["last_response_body"]
    if keeps:
        assert said.startswith("xyz")
        assert len(said) <= 4096
    else:
        assert said is None


async def test_who_does_not_answer(pool: Pool, receiver: Receiver) -> None:
    silent = await hook(pool, receiver.url, http_config={"timeout_seconds": 1})
    receiver.answers = [None]
    await tell(pool, "a")
    assert await deliverer(pool).step() == 1
    (delivery,) = await shown(pool, silent)
    assert (delivery["status"], delivery["last_error"]) == ("pending", "it did not answer in time")
    await hooks(pool).patch("t", "b", silent["id"], {"url": "http://127.0.0.1:1/"})
    assert await deliverer(pool).step() == 1
    (delivery,) = await shown(pool, silent)
    assert "could not be reached" in delivery["last_error"]


async def test_blocked_at_the_attempt_and_for_good(
    pool: Pool, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An address that was open when the webhook was made, or a name that leads elsewhere now."""
    made = await hook(pool, receiver.url)
    await hooks(pool).patch("t", "b", made["id"], {"url": "http://moved.example:80/"})

    async def resolved(host: str, port: int) -> list[Any]:
        import ipaddress

        return [ipaddress.ip_address("8.8.8.8"), ipaddress.ip_address("127.0.0.2")]

    monkeypatch.setattr("retrieval.lifecycle.webhooks.guard._resolved", resolved)
    await tell(pool, "a")
    assert await deliverer(pool).step() == 1
    (delivery,) = await shown(pool, made)
    assert (delivery["status"], delivery["last_error"]) == (
        "failed", "blocked: 127.0.0.2 is this machine",
    )  # fmt: skip
    await hooks(pool).patch("t", "b", made["id"], {"url": receiver.url})
    await tell(pool, "b")
    assert await deliverer(pool, AddressGuard()).step() == 1
    assert (await shown(pool, made))[0]["status"] == "failed"
    assert not receiver.got
    with pytest.raises(InvalidInput, match=r"127\.0\.0\.1"):
        await hooks(pool, AddressGuard()).patch("t", "b", made["id"], {"url": receiver.url})


async def test_the_checked_address_is_dialled_under_its_name(
    pool: Pool, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ipaddress

    asked: list[str] = []

    async def resolved(host: str, port: int) -> list[Any]:
        asked.append(host)
        return [ipaddress.ip_address("127.0.0.1")]

    monkeypatch.setattr("retrieval.lifecycle.webhooks.guard._resolved", resolved)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    await hook(pool, f"http://receiver.example:{receiver.port}/x")
    await tell(pool, "a")
    assert await deliverer(pool).step() == 1
    assert receiver.got[0].headers["host"] == f"receiver.example:{receiver.port}"
    assert asked == ["receiver.example"]


async def test_secrets_are_sealed_and_changed(pool: Pool, receiver: Receiver) -> None:
    made = await hook(pool, receiver.url, secret="old", http_config={"headers": {"X-Key": "hdr"}})
    row = await pool.fetchrow("select * from webhooks")
    assert b"old" not in bytes(row["secret"])
    assert b"hdr" not in bytes(row["http_config"])
    await hooks(pool).patch("t", "b", made["id"], {"secret": "new"})
    await tell(pool, "a")
    await deliverer(pool).step()
    assert receiver.got[0].headers["webhook-signature"].count("v1,") == 2
    await pool.execute("update webhooks set secret_changed_at = now() - interval '2 days'")
    await tell(pool, "b")
    await deliverer(pool).step()
    assert receiver.got[1].headers["webhook-signature"].count("v1,") == 1
    # Keys: what was sealed with the database's own opens behind the operator's, not the other way.
    await hooks(pool, OPEN, "k1").patch("t", "b", made["id"], {"secret": "third"})
    await tell(pool, "c")
    await deliverer(pool).step()
    assert "no key" in (await shown(pool, made))[0]["last_error"]
    ours = Deliverer(pool, Vault(pool, ["k2", "k1"]), OPEN)
    await hooks(pool).retry("t", "b", made["id"], (await shown(pool, made))[1]["id"])
    assert await ours.step() >= 1


async def test_nothing_is_told_of_what_was_rolled_back(pool: Pool, receiver: Receiver) -> None:
    await hook(pool, receiver.url)

    async def work(connection: Connection) -> None:
        head = await banks.head_of(connection, "t", "b")
        await emit(connection, head, [OutboxEvent("document.deleted", {"document_id": "x"})])
        raise KeyError

    with pytest.raises(KeyError):
        await write(pool, work)
    assert await deliverer(pool).step() == 0


async def test_the_webhook_of_all_banks_and_the_end_of_one(pool: Pool, receiver: Receiver) -> None:
    await hooks(pool).keep(OfAll(receiver.url, "all", ["bank.deleted", "document.deleted"]))
    await hook(pool, receiver.url, secret="own", event_types=["bank.deleted"])
    await tell(pool, "a", bank="other")
    await banks.delete(pool, "t", "b")
    while await deliverer(pool).step():
        pass
    told = sorted(json.loads(got.body)["event"] for got in receiver.got)
    assert told == ["bank.deleted", "bank.deleted", "document.deleted"]
    for got in receiver.got:
        secret = b"own" if got.headers["x-hindsight-signature"].endswith(
            hmac.new(b"own", got.body, hashlib.sha256).hexdigest()
        ) else b"all"  # fmt: skip
        signed = hmac.new(secret, got.body, hashlib.sha256).hexdigest()
        assert got.headers["x-hindsight-signature"] == f"sha256={signed}"
    await hooks(pool).keep(OfAll())
    await tell(pool, "a", bank="other")
    assert await deliverer(pool).step() == 0
    with pytest.raises(InvalidInput, match="webhook_url"):
        await hooks(pool, AddressGuard()).keep(OfAll(receiver.url))


async def test_lists_bounds_and_strangers(pool: Pool, receiver: Receiver) -> None:
    made = await hook(pool, receiver.url)
    for _ in range(MOST - 1):
        await hook(pool, receiver.url)
    with pytest.raises(Conflict, match="20"):
        await hook(pool, receiver.url)
    listed = await hooks(pool).listed("t", "b", limit=3, offset=1)
    assert (listed["total"], len(listed["items"])) == (MOST, 3)
    await tell(pool, *(f"d{i}" for i in range(5)))
    first = await hooks(pool).deliveries("t", "b", made["id"], limit=3)
    rest = await hooks(pool).deliveries("t", "b", made["id"], limit=3, cursor=first["next_cursor"])
    assert (len(first["items"]), len(rest["items"]), rest["next_cursor"]) == (3, 2, None)
    assert len({one["id"] for one in first["items"] + rest["items"]}) == 5
    for cursor in ("x", "2024", "|", "2024-01-01|x", "2024-01-01|" + str(uuid4())):
        with pytest.raises(InvalidInput, match="cursor"):
            await hooks(pool).deliveries("t", "b", made["id"], cursor=cursor)
    await banks.ensure(pool, "u", "b")
    for tenant, id in (("u", made["id"]), ("t", str(uuid4()))):
        for asked in (
            hooks(pool).deliveries(tenant, "b", id),
            hooks(pool).patch(tenant, "b", id, {"enabled": False}),
            hooks(pool).delete(tenant, "b", id),
            hooks(pool).test(tenant, "b", id),
        ):
            with pytest.raises(NotFound):
                await asked
    assert await hooks(pool).delete("t", "b", made["id"]) == {"success": True}
    count = await read(pool, lambda c: c.fetchval("select count(*) from webhook_deliveries"))
    assert count == 5 * (MOST - 1)


async def test_what_its_sender_never_survives_has_failed(pool: Pool, receiver: Receiver) -> None:
    made = await hook(pool, receiver.url)
    await tell(pool, "d")
    sender = deliverer(pool)
    for attempt in range(1, 4):  # claimed, and whoever had it is gone
        (claimed,) = await sender.claim()
        assert claimed.attempts == attempt
        await pool.execute("update webhook_deliveries set leased_until = now()")
    assert await sender.claim() == []
    (delivery,) = await shown(pool, made)
    assert (delivery["status"], delivery["attempts"]) == ("failed", 3)
    assert "died" in delivery["last_error"]
