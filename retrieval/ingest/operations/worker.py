"""Background operations: work that was accepted and goes on after the answer.

`submit` stores an operation in the database; a `Worker` in any process does it. The operation is
marked done in the transaction that writes its memories, so after a crash it is done again as a
whole or not at all. What killed a process before is read in a process of its own.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID, uuid4

from retrieval.errors import Conflict, FourfoldError, InvalidInput, NeedsModel, NotFound
from retrieval.ingest.context import WriteContext
from retrieval.ingest.documents import reprocessing
from retrieval.ingest.items import parse
from retrieval.ingest.operations.isolation import Child, Died
from retrieval.ingest.retain import retain
from retrieval.store import answers, banks, operations, payloads
from retrieval.store.answers import Key
from retrieval.store.database.pool import Connection, Pool, write
from retrieval.store.edge import as_uuid
from retrieval.store.operations import Claim
from retrieval.store.turns import Busy
from retrieval.store.turns import let_go as let_go_turns

log = logging.getLogger(__name__)

RETAIN, REPROCESS = "retain", "reprocess"

TURN_WAIT_S = 10.0
"""A worker does not wait longer for others who write the same document: it has more to do."""
BUSY_WAIT_S = 1.0
"""Then the operation is put back, for so long."""
LOOK_S = 2.0
"""How often a worker looks whether what it does was cancelled."""
TIDY_S = 3600.0


async def submit(
    deps: WriteContext,
    tenant: str,
    bank_id: str,
    items: Sequence[Mapping[str, Any]],
    *,
    document_tags: Sequence[str] | None = None,
    operation_id: str | None = None,
    key: Key | None = None,
) -> dict[str, Any]:
    """Checks the items and queues their retain: {operation_id, items_count}.

    The bank is made if there is none. The same `operation_id` again is the same operation;
    Conflict if it names another; the same `key` has the same answer. InvalidInput for what `retain`
    would refuse at once, and for two items with one document id.
    """
    banks.check_id(bank_id)
    id = None if operation_id is None else as_uuid(operation_id, "operation_id")

    async def work() -> dict[str, Any]:
        return await _submit(deps, tenant, bank_id, items, document_tags, id, key)

    return await answers.once(deps.pool, tenant, bank_id, key, work)


async def _submit(
    deps: WriteContext,
    tenant: str,
    bank_id: str,
    items: Sequence[Mapping[str, Any]],
    document_tags: Sequence[str] | None,
    id: UUID | None,
    key: Key | None,
) -> dict[str, Any]:
    now = deps.clock()
    checked = await deps.run(parse, items, document_tags, now, deps.settings.retain_max_items)
    given = [item.get("document_id") for item in items if item.get("document_id") is not None]
    if len(set(given)) != len(given):
        raise InvalidInput("two items have the same document_id", "items")
    if id is not None and len({item.strategy for item in checked}) > 1:
        raise InvalidInput("an operation_id stands for one strategy only", "operation_id")
    # What was decided now stays decided: the worker may come to it much later, or twice.
    payload = {
        "items": [
            {**item, "document_id": ready.document_id}
            for item, ready in zip(items, checked, strict=True)
        ],
        "document_tags": list(document_tags or ()),
        "now": now.isoformat(),
    }

    async def work(connection: Connection) -> dict[str, Any]:
        bank = (await banks.ensure(connection, tenant, bank_id)).bank
        made, _ = await operations.create(
            connection,
            bank,
            RETAIN,
            payload,
            operation_id=id or uuid4(),
            items_count=len(items),
            document_id=checked[0].document_id if len(given) == 1 and len(checked) == 1 else None,
            lanes=[item.document_id for item in checked if item.named],
        )
        answer = {"operation_id": str(made), "items_count": len(items)}
        if key is not None:
            await answers.keep(connection, bank, key, answer)
        return answer

    return await write(deps.pool, work)


async def submit_reprocess(
    pool: Pool, tenant: str, bank_id: str, document_id: str
) -> dict[str, Any]:
    """Queues the rebuilding of a document's memories: {success, operation_id, items_count}.

    NotFound for an unknown document, InvalidInput where its text was not kept.
    """

    async def work(connection: Connection) -> UUID:
        bank = (await banks.head_of(connection, tenant, bank_id)).bank
        await reprocessing.require_text(connection, bank, document_id)
        made, _ = await operations.create(
            connection,
            bank,
            REPROCESS,
            {},
            items_count=1,
            document_id=document_id,
            lanes=[document_id],
        )
        return made

    made = await write(pool, work)
    return {"success": True, "operation_id": str(made), "items_count": 1}


class Handler(Protocol):
    """Does operations of one type.

    It completes them by `operations.finish` in the transaction that does the work (or the last part
    of it), so that a crash leaves the operation done or to be done. Parked puts it back unspent;
    InvalidInput, NotFound and NeedsModel end it as failed; other errors have it tried again.
    """

    async def __call__(self, deps: WriteContext, claimed: Claim, /) -> None: ...


class Parked(Exception):
    """The operation cannot go on for `wait_s` seconds, through no fault of its own."""

    def __init__(self, reason: str, wait_s: float) -> None:
        super().__init__(reason)
        self.wait_s = wait_s


async def _retain(deps: WriteContext, claimed: Claim) -> None:
    payload = claimed.payload
    await retain(
        deps,
        claimed.tenant,
        claimed.bank_id,
        payload["items"],
        document_tags=payload["document_tags"],
        now=datetime.fromisoformat(payload["now"]),
        also=lambda connection: operations.finish(connection, claimed),
        operation=claimed.operation_id,
        deadline=time.monotonic() + TURN_WAIT_S,
    )


async def _reprocess(deps: WriteContext, claimed: Claim) -> None:
    await reprocessing.reprocess(
        deps,
        claimed.tenant,
        claimed.bank_id,
        claimed.document_id or "",
        also=lambda connection: operations.finish(connection, claimed),
        operation=claimed.operation_id,
        deadline=time.monotonic() + TURN_WAIT_S,
    )


HANDLERS: Mapping[str, Handler] = {RETAIN: _retain, REPROCESS: _reprocess}
"""What writes documents."""


class Worker:
    """Does what waits, at most `at_once` operations at a time, until stopped.

    `start` and `stop` are called from one event loop. Several workers, in one or more processes,
    share the queue. `handlers`: what it does, by type of operation; others are left to others.
    `poll_s`: how often an idle worker looks.
    """

    def __init__(
        self,
        deps: WriteContext,
        *,
        handlers: Mapping[str, Handler] | None = None,
        poll_s: float = 0.5,
        lease_s: float = operations.LEASE_S,
        at_once: int = 1,
    ) -> None:
        self._deps = deps
        self._handlers = HANDLERS if handlers is None else handlers
        self._at_once = at_once
        self._poll_s = poll_s
        self._lease_s = lease_s
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._tidy_at = 0.0

    async def start(self) -> None:
        if self._task is None:
            self._stopping.clear()
            self._task = asyncio.create_task(self._run(), name="operations")

    async def stop(self) -> None:
        """Ends after what is in hand is put back: it was not committed, so it starts anew."""
        self._stopping.set()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _run(self) -> None:
        running: set[asyncio.Task[None]] = set()
        try:
            while not self._stopping.is_set():
                claimed = await self._next()
                if claimed is None:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._stopping.wait(), self._poll_s)
                    continue
                running.add(asyncio.create_task(self._attend(claimed)))
                if len(running) >= self._at_once:
                    done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                    running -= done
        finally:
            for one in running:
                one.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _next(self) -> Claim | None:
        """The next operation, if there is one and the database can be asked."""
        try:
            if time.monotonic() >= self._tidy_at:
                self._tidy_at = time.monotonic() + TIDY_S
                await tidy(self._deps.pool)
            return await self._claim()
        except FourfoldError as error:
            log.warning("background work is held up: %s", error)
        except Exception:
            log.exception("background work failed")
        return None

    async def _attend(self, claimed: Claim) -> None:
        """Carries an operation out; never raises, but where it is cancelled."""
        try:
            await self._carry_out(claimed)
        except FourfoldError as error:
            log.warning("background work is held up: %s", error)
        except Exception:
            log.exception("background work failed")

    async def step(self) -> bool:
        """Does one operation; False if there was nothing to do."""
        claimed = await self._claim()
        if claimed is None:
            return False
        await self._carry_out(claimed)
        return True

    async def _claim(self) -> Claim | None:
        return await operations.claim(self._deps.pool, self._lease_s, types=tuple(self._handlers))

    async def _carry_out(self, claimed: Claim) -> None:
        pool = self._deps.pool
        working = asyncio.create_task(self._do(claimed))
        keeping = asyncio.create_task(self._keep(claimed, working))
        try:
            await working
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                await self._give_back(claimed)
                raise
            log.info("operation %s was cancelled or taken over", claimed.operation_id)
        except Busy:
            await operations.release(pool, claimed, BUSY_WAIT_S)
        except Parked as error:
            log.info("operation %s waits: %s", claimed.operation_id, error)
            await operations.release(pool, claimed, error.wait_s, str(error))
        except Died as error:
            log.warning("operation %s killed its process: %s", claimed.operation_id, error)
            await operations.fail(pool, claimed, str(error), again=True, died=True)
        except Conflict as error:
            log.info("%s", error)
            await operations.fail(pool, claimed, str(error), again=True)
        except (InvalidInput, NotFound, NeedsModel) as error:
            await operations.fail(pool, claimed, str(error), again=False)
        except Exception as error:
            message = f"{type(error).__name__}: {error}".rstrip(": ")
            log.warning("operation %s failed: %s", claimed.operation_id, message)
            await operations.fail(pool, claimed, message, again=True)
        finally:
            keeping.cancel()

    async def _do(self, claimed: Claim) -> None:
        handle = self._handlers[claimed.type]
        if not claimed.deaths:
            await handle(self._deps, claimed)
            return
        async with Child() as child:
            await handle(replace(self._deps, run=child.run), claimed)

    async def _keep(self, claimed: Claim, working: asyncio.Task[None]) -> None:
        """Renews the lease while the work goes on; stops work that is not ours any more."""
        while True:
            await asyncio.sleep(min(self._lease_s / 3, LOOK_S))
            with suppress(FourfoldError):
                if not await operations.renew(self._deps.pool, claimed, self._lease_s):
                    working.cancel()
                    return

    async def _give_back(self, claimed: Claim) -> None:
        with suppress(FourfoldError, OSError):
            await asyncio.shield(operations.release(self._deps.pool, claimed))


async def tidy(pool: Pool) -> None:
    """Lets go what is kept for a while only."""
    await payloads.let_go(pool)
    await answers.let_go(pool)
    await let_go_turns(pool)
