"""Tells what is in the outbox: at least once, in no order, some attempts, then no more.

One `Deliverer` per process; processes share the outbox by leases. An attempt is one request to the
address that was just looked at: no redirect, no proxy, no connection of before.
"""

from __future__ import annotations

import asyncio
import email.utils
import logging
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID, uuid4

import httpx

from retrieval.errors import FourfoldError, InvalidInput
from retrieval.lifecycle.webhooks import signing
from retrieval.lifecycle.webhooks.guard import AddressGuard, Blocked
from retrieval.lifecycle.webhooks.registry import DEFAULT_HTTP
from retrieval.lifecycle.webhooks.vault import Sealed, Vault
from retrieval.pacing import Background
from retrieval.store.database.pool import Connection, Pool, read, write

log = logging.getLogger(__name__)

WAITS_S: Final = (5.0, 300.0, 1800.0, 7200.0, 18_000.0)
"""Between the attempts; behind the last one a delivery has failed."""
RETRY_AFTER_MOST_S = 86_400.0
AT_ONCE = 16
AT_ONCE_RECEIVER = 2
DISABLED_AFTER = timedelta(days=5)
"""A webhook that failed so long, with no success between, is switched off."""
OLD_SECRET = timedelta(days=1)
"""A secret that was changed goes on signing beside the new one."""
KEPT_DAYS = 30
BODY_BYTES = 4_096
"""Of an answer, where answers are kept."""
ATTEMPT_MOST_S = 120.0
"""The longest timeout that a webhook may ask for."""
LEASE_S = ATTEMPT_MOST_S + 60.0
TIDY_S = 3600.0

_LOCK = 6
"""Class of our advisory lock: one process at a time claims, so that receivers keep their slots."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One that is ours until its lease runs out."""

    tenant: str
    bank_id: str
    id: UUID
    lease: UUID
    webhook_id: UUID | None
    event_id: UUID
    event_type: str
    url: str
    body: bytes
    attempts: int
    secrets: Sequence[bytes]
    http_config: bytes | None


@dataclass(frozen=True, slots=True)
class DeliveryOutcome:
    """What became of an attempt. `final`: it is not tried again."""

    error: str | None = None
    status: int | None = None
    body: str | None = None
    final: bool = False
    retry_after_s: float = 0.0

    @property
    def gone(self) -> bool:
        return self.status == 410


class Deliverer:
    """`clock` says the time of signatures. `waits_s`: see WAITS_S. `keeps_bodies`: what receivers
    answer is stored. All calls from one event loop."""

    def __init__(
        self,
        pool: Pool,
        vault: Vault,
        guard: AddressGuard,
        *,
        keeps_bodies: bool = False,
        poll_s: float = 0.5,
        waits_s: Sequence[float] = WAITS_S,
        kept_days: float = KEPT_DAYS,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._pool, self._vault, self._guard = pool, vault, guard
        self._keeps_bodies, self._poll_s, self._waits_s = keeps_bodies, poll_s, waits_s
        self._kept_days, self._clock = kept_days, clock
        self._background = Background("webhooks", self._run)
        self._tls = ssl.create_default_context()
        self._tidy_at = 0.0

    def start(self) -> None:
        self._background.start()

    async def close(self) -> None:
        """Stops; attempts under way are given up, and made again when their leases are over."""
        await self._background.close()

    async def step(self) -> int:
        """Attempts what is due, to the end; how many."""
        due = await self.claim()
        await asyncio.gather(*(self._attend(one) for one in due))
        return len(due)

    async def _run(self) -> None:
        running: set[asyncio.Task[None]] = set()
        loop = asyncio.get_running_loop()
        try:
            while True:
                try:
                    if loop.time() >= self._tidy_at:
                        self._tidy_at = loop.time() + TIDY_S
                        await self._tidy()
                    for one in await self.claim(AT_ONCE - len(running)):
                        task = asyncio.create_task(self._attend(one))
                        running.add(task)
                        task.add_done_callback(running.discard)
                except FourfoldError as error:
                    log.warning("webhooks are paused: %s", error)
                except Exception:
                    log.exception("webhooks failed")
                await asyncio.sleep(self._poll_s)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _tidy(self) -> None:
        async def work(connection: Connection) -> None:
            await connection.execute(
                "delete from webhook_deliveries where created_at < now() - $1 * interval '1 day'"
                " and status in ('completed', 'failed')",
                self._kept_days,
            )

        await write(self._pool, work)

    # Claims

    async def claim(self, most: int = AT_ONCE) -> list[Delivery]:
        """Deliveries that are due, now leased to us, AT_ONCE_RECEIVER of a receiver at most."""
        if most < 1 or not await read(self._pool, _any_due):
            return []
        lease = uuid4()

        async def work(connection: Connection) -> Sequence[Mapping[str, Any]]:
            if not await connection.fetchval(
                "select pg_try_advisory_xact_lock($1, hashtext(current_schema()))", _LOCK
            ):
                return []
            await connection.execute(
                "update webhook_deliveries set status = 'failed', lease = null,"
                " leased_until = null, last_error = $2, updated_at = now()"
                " where status = 'processing' and leased_until <= now() and attempts > $1",
                len(self._waits_s),
                _DIED,
            )
            rows: Sequence[Mapping[str, Any]] = await connection.fetch(
                "with busy as (select receiver, count(*) as n from webhook_deliveries"
                "  where status = 'processing' and leased_until > now() group by receiver),"
                " due as (select tenant_id, bank_id, id, receiver, next_attempt_at, row_number()"
                "   over (partition by receiver order by next_attempt_at, created_at) as place"
                f"  from webhook_deliveries where {_DUE}),"
                " next as (select d.tenant_id, d.bank_id, d.id from due d left join busy b"
                "  using (receiver) where d.place + coalesce(b.n, 0) <= $3"
                "  order by d.next_attempt_at limit $4),"
                " ours as (update webhook_deliveries d set status = 'processing', lease = $1,"
                "   leased_until = now() + $2 * interval '1 second', attempts = attempts + 1,"
                "   last_attempt_at = now(), updated_at = now() from next n"
                "  where d.tenant_id = n.tenant_id and d.bank_id = n.bank_id and d.id = n.id"
                "  returning d.*)"
                " select o.tenant_id, o.bank_id, o.id, o.webhook_id, o.event_id, o.event_type,"
                "  o.url, o.body, o.attempts,"
                "  case when o.webhook_id is null then (select secret from webhook_of_all)"
                "   else coalesce(w.secret, o.secret) end as secret,"
                "  case when w.secret_changed_at > now() - $5::interval then w.previous_secret"
                "   when w.id is null then o.previous_secret end as previous_secret,"
                "  coalesce(w.http_config, o.http_config) as http_config"
                " from ours o left join banks b"
                "  on b.tenant_id = o.tenant_id and b.bank_id = o.bank_id"
                " left join webhooks w on w.bank = b.bank and w.id = o.webhook_id",
                lease,
                LEASE_S,
                AT_ONCE_RECEIVER,
                most,
                OLD_SECRET,
            )
            return rows

        return [
            Delivery(
                row["tenant_id"], row["bank_id"], row["id"], lease, row["webhook_id"],
                row["event_id"], row["event_type"], row["url"], bytes(row["body"] or b""),
                row["attempts"],
                [bytes(s) for s in (row["secret"], row["previous_secret"]) if s is not None],
                row["http_config"],
            )
            for row in await write(self._pool, work)
        ]  # fmt: skip

    async def _attend(self, one: Delivery) -> None:
        try:
            outcome = await self._attempt(one)
            await self._note(one, outcome)
        except FourfoldError as error:
            log.warning("webhooks are paused: %s", error)

    # One attempt

    async def _attempt(self, one: Delivery) -> DeliveryOutcome:
        """Never raises but where it is cancelled."""
        try:
            secrets = [await self._vault.open(sealed) for sealed in one.secrets]
            http = {**DEFAULT_HTTP, **(await self._vault.open(one.http_config) or {})}
            async with asyncio.timeout(min(http["timeout_seconds"], ATTEMPT_MOST_S)):
                return await self._send(one, secrets, http)
        except (Blocked, InvalidInput) as error:
            return DeliveryOutcome(f"blocked: {error}", final=True)
        except Sealed as error:
            return DeliveryOutcome(str(error))
        except (TimeoutError, httpx.TimeoutException):
            return DeliveryOutcome("it did not answer in time")
        except (httpx.HTTPError, OSError, ssl.SSLError) as error:
            return DeliveryOutcome(
                f"it could not be reached: {type(error).__name__}: {str(error)[:200]}"
            )
        except Exception as error:
            log.exception("a webhook failed")
            return DeliveryOutcome(f"it could not be sent: {type(error).__name__}")

    async def _send(
        self, one: Delivery, secrets: Sequence[str], http: Mapping[str, Any]
    ) -> DeliveryOutcome:
        target = self._guard.read(one.url)
        address = await self._guard.resolve(target)
        url = httpx.URL(target.url).copy_merge_params(http["params"])
        own = {k: v for k, v in http["headers"].items() if not signing.is_reserved(k)}
        signed = signing.headers(
            one.body,
            event=one.event_type,
            event_id=str(one.event_id),
            delivery_id=str(one.id),
            now=int(self._clock().timestamp()),
            secrets=secrets,
        )
        async with httpx.AsyncClient(
            verify=self._tls, trust_env=False, follow_redirects=False, timeout=None
        ) as client:
            request = client.build_request(
                http["method"],
                url.copy_with(host=str(address)),
                headers={**signed, **own, "Host": _authority(url)},
                content=one.body,
                extensions={"sni_hostname": target.host},
            )
            answer = await client.send(request, stream=True)
            try:
                body = await self._said(answer) if self._keeps_bodies else None
            finally:
                await answer.aclose()
        status = answer.status_code
        if 200 <= status < 300:
            return DeliveryOutcome(status=status, body=body)
        wait = _retry_after(answer.headers.get("retry-after", ""), self._clock())
        return DeliveryOutcome(f"it answered {status}", status, body, status == 410, wait)

    @staticmethod
    async def _said(answer: httpx.Response) -> str:
        found = b""
        async for part in answer.aiter_raw():  # not decoded: it may be a bomb
            found += part
            if len(found) >= BODY_BYTES:
                break
        return found[:BODY_BYTES].decode("utf-8", "replace").replace("\0", "")

    # Its end

    async def _note(self, one: Delivery, outcome: DeliveryOutcome) -> None:
        done = outcome.error is None
        over = done or outcome.final or one.attempts > len(self._waits_s)
        wait = 0.0 if over else max(self._waits_s[one.attempts - 1], outcome.retry_after_s)
        key = (one.tenant, one.bank_id, one.id)

        async def work(connection: Connection) -> None:
            ours = await connection.fetchval(
                "update webhook_deliveries set lease = null, leased_until = null, status = $5,"
                " last_error = $6, last_response_status = $7, last_response_body = $8,"
                " next_attempt_at = now() + $9 * interval '1 second', updated_at = now()"
                " where tenant_id = $1 and bank_id = $2 and id = $3 and lease = $4 returning true",
                *key,
                one.lease,
                "completed" if done else "failed" if over else "pending",
                outcome.error,
                outcome.status,
                outcome.body,
                wait,
            )
            if ours and one.webhook_id is not None and one.event_type != "bank.deleted":
                await _judge(connection, one, done=done, gone=outcome.gone)

        await write(self._pool, work)


_DIED = "whoever sent it died meanwhile, in the last attempt as well"
_DUE = (
    "((status = 'pending' and next_attempt_at <= now())"
    " or (status = 'processing' and leased_until <= now())) and body is not null"
)


async def _any_due(connection: Connection) -> bool:
    found: bool = await connection.fetchval(
        f"select exists (select from webhook_deliveries where {_DUE})"
    )
    return found


async def _judge(connection: Connection, one: Delivery, *, done: bool, gone: bool) -> None:
    """Notes of the webhook how it goes; switches it off where nobody will ever answer."""
    this = (
        " from banks b where b.tenant_id = $1 and b.bank_id = $2 and w.bank = b.bank and w.id = $3"
    )
    key = (one.tenant, one.bank_id, one.webhook_id)
    if done:
        await connection.execute(
            f"update webhooks w set failing_since = null{this} and failing_since is not null", *key
        )
        return
    enabled = await connection.fetchval(
        "update webhooks w set failing_since = coalesce(failing_since, now()),"
        f" enabled = enabled and not ($4 or coalesce(failing_since < now() - $5::interval, false))"
        f"{this} returning enabled",
        *key,
        gone,
        DISABLED_AFTER,
    )
    if not enabled:
        await connection.execute(
            "update webhook_deliveries set status = 'failed', last_error = 'the webhook is off',"
            " updated_at = now() where tenant_id = $1 and bank_id = $2 and webhook_id = $3"
            " and status = 'pending'",
            *key,
        )


def _authority(url: httpx.URL) -> str:
    """The Host header that the URL stands for."""
    return url.netloc.decode("ascii")


def _retry_after(value: str, now: datetime) -> float:
    """Seconds of a Retry-After header, RETRY_AFTER_MOST_S at most; 0 where it says nothing."""
    try:
        seconds = float(int(value))
    except ValueError:
        try:
            seconds = (email.utils.parsedate_to_datetime(value) - now).total_seconds()
        except (TypeError, ValueError):
            return 0.0
    return min(max(0.0, seconds), RETRY_AFTER_MOST_S)
