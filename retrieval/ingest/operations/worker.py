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

from retrieval.errors import (
    Conflict,
    DeadlineExceeded,
    FourfoldError,
    InvalidInput,
    ModelCut,
    ModelRefused,
    ModelTooLong,
    NeedsModel,
    NotFound,
    Overloaded,
    Unavailable,
)
from retrieval.ingest.context import WriteContext
from retrieval.ingest.documents import reprocessing
from retrieval.ingest.files.operation import FILE, convert_retain
from retrieval.ingest.items import DOCUMENT_LIMIT, parse
from retrieval.ingest.operations.isolation import Child, Died
from retrieval.ingest.operations.parking import Parked
from retrieval.ingest.progress import OperationProgress
from retrieval.ingest.retain import retain
from retrieval.store import answers, banks, operations, payloads
from retrieval.store.answers import Key
from retrieval.store.database.pool import Connection, Pool, write
from retrieval.store.edge import as_uuid
from retrieval.store.operations import Claim
from retrieval.store.turns import Busy
from retrieval.store.turns import let_go as let_go_turns
from retrieval.store.waiting import check_room

log = logging.getLogger(__name__)

RETAIN, REPROCESS = "retain", "reprocess"

TURN_WAIT_S = 10.0
"""A worker does not wait longer for others who write the same document: it has more to do."""
BUSY_WAIT_S = 1.0
"""Then the operation is put back, for so long."""
LOOK_S = 2.0
"""How often a worker looks whether what it does was cancelled."""
TELL_S = 0.5
"""How often at most it writes how far it is."""
PARK_S_MOST = 900.0
"""A parked operation looks again after so long at the latest: what is in its way may go sooner than
it says, as where an account is filled up or a limit raised."""
RETRY_S = 10.0
"""How long it is left alone at least where the language model does not answer at all."""
REMEMBERED = 1000
"""Tenants whose last turn a worker knows."""
STOP_S = 5.0
"""How long a stop waits for the database at most."""
SLOTS = 4
"""Operations at once, where they wait for nobody outside."""
LANGUAGE_MODEL = "the language model"
HOPELESS = (ModelRefused, ModelCut, ModelTooLong)
"""What a language model says of content: asked the same again it says the same."""
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
    given = [item.document_id for item in checked if item.named]
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
        await check_room(connection, bank)
        made, _ = await operations.create(
            connection,
            bank,
            RETAIN,
            payload,
            operation_id=id or uuid4(),
            items_count=len(items),
            document_id=checked[0].document_id if len(given) == 1 and len(checked) == 1 else None,
            lanes=given,
        )
        answer: dict[str, Any] = {"operation_id": str(made), "items_count": len(items)}
        if len({item.strategy for item in checked}) > 1:
            answer["operation_ids"] = [str(made)]
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
        await check_room(connection, bank)
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


async def _retain(deps: WriteContext, claimed: Claim) -> None:
    payload = claimed.payload
    if not payload.get("items"):
        raise InvalidInput("the operation keeps its content no more: send it again")
    await retain(
        deps,
        claimed.tenant,
        claimed.bank_id,
        payload["items"],
        document_tags=payload["document_tags"],
        now=datetime.fromisoformat(payload["now"]),
        also=lambda connection, result: operations.finish(
            connection, claimed, result, deps.progress.ended()
        ),
        operation=claimed.operation_id,
        deadline=time.monotonic() + TURN_WAIT_S,
        longest=DOCUMENT_LIMIT,
    )


async def _reprocess(deps: WriteContext, claimed: Claim) -> None:
    await reprocessing.reprocess(
        deps,
        claimed.tenant,
        claimed.bank_id,
        claimed.document_id or "",
        also=lambda connection, result: operations.finish(
            connection, claimed, result, deps.progress.ended()
        ),
        operation=claimed.operation_id,
        deadline=time.monotonic() + TURN_WAIT_S,
    )


HANDLERS: Mapping[str, Handler] = {
    RETAIN: _retain,
    REPROCESS: _reprocess,
    FILE: convert_retain,
}
"""What writes documents."""


class Worker:
    """Does what waits, until stopped: at most `slots` operations at once.

    A quarter of the slots is left to tenants with nothing running here, so that nobody waits for
    another's backlog. `start` and `stop` are called from one event loop. Several workers, in one or
    more processes, share the queue. `handlers`: what it does, by type of operation; others are left
    to others. `poll_s`: how often an idle worker looks.
    """

    def __init__(
        self,
        deps: WriteContext,
        *,
        handlers: Mapping[str, Handler] | None = None,
        slots: int = SLOTS,
        poll_s: float = 0.5,
        lease_s: float = operations.LEASE_S,
    ) -> None:
        self._deps = deps
        self._handlers = HANDLERS if handlers is None else handlers
        self._slots = slots
        self._poll_s = poll_s
        self._lease_s = lease_s
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.running: dict[asyncio.Task[None], str] = {}
        """What is being done, and for which tenant."""
        self._lately: dict[str, None] = {}
        """Tenants who had a turn, the last one last."""
        self._ended = asyncio.Event()
        self._tidy_at = 0.0

    async def start(self) -> None:
        if self._task is None:
            self._stopping.clear()
            self._task = asyncio.create_task(self._run(), name="operations")

    async def stop(self) -> None:
        """Ends after what is in hand is put back: it was not committed, so it starts anew."""
        self._stopping.set()
        self._ended.set()
        task, self._task = self._task, None
        if task is not None:
            # What is being claimed just now would wait for its lease to run out.
            with suppress(TimeoutError):
                await asyncio.wait_for(task, STOP_S)
        ending = list(self.running)
        for each in ending:
            each.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    async def _run(self) -> None:
        while not self._stopping.is_set():
            self._ended.clear()
            try:
                if time.monotonic() >= self._tidy_at:
                    self._tidy_at = time.monotonic() + TIDY_S
                    await tidy(self._deps.pool)
                claimed = await self._claim()
            except FourfoldError as error:
                log.warning("background work is paused: %s", error)
                claimed = None
            except Exception:
                log.exception("background work failed")
                claimed = None
            if claimed is not None:
                task = asyncio.create_task(self._perform(claimed))
                self.running[task] = claimed.tenant
                task.add_done_callback(self._end)
                continue
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), self._poll_s)

    async def _claim(self) -> Claim | None:
        """The next operation for which there is a slot."""
        free = self._slots - len(self.running)
        if free <= 0:
            return None
        kept = max(1, self._slots // 4) if self._slots > 1 else 0
        busy = sorted(set(self.running.values())) if free <= kept else ()
        claimed = await operations.claim(
            self._deps.pool,
            self._lease_s,
            types=tuple(self._handlers),
            without=busy,
            lately=list(self._lately),
        )
        if claimed is not None:
            self._lately.pop(claimed.tenant, None)
            self._lately[claimed.tenant] = None
            if len(self._lately) > REMEMBERED:
                del self._lately[next(iter(self._lately))]
        return claimed

    def _end(self, task: asyncio.Task[None]) -> None:
        del self.running[task]
        self._ended.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            # What the work itself raised was seen to: this is its end that could not be written,
            # and its lease will run out.
            log.warning("an operation could not be ended: %s", error)

    async def step(self) -> bool:
        """Does one operation; False if there was nothing to do."""
        claimed = await operations.claim(
            self._deps.pool, self._lease_s, types=tuple(self._handlers)
        )
        if claimed is None:
            return False
        await self._perform(claimed)
        return True

    async def _perform(self, claimed: Claim) -> None:
        pool = self._deps.pool
        progress = OperationProgress()
        working = asyncio.create_task(self._do(claimed, progress))
        keeping = asyncio.create_task(self._keep(claimed, working, progress))
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
            await self._park(claimed, str(error), error.wait_s, progress)
        except Died as error:
            log.warning("operation %s killed its process: %s", claimed.operation_id, error)
            await operations.fail(pool, claimed, str(error), again=True, died=True)
        except Conflict as error:
            log.info("%s", error)
            await operations.fail(pool, claimed, str(error), again=True)
        except Overloaded as error:
            await self._park(claimed, str(error), error.retry_after_s)
        except (InvalidInput, NotFound, NeedsModel, *HOPELESS) as error:
            await operations.fail(pool, claimed, str(error), again=False)
        except Exception as error:
            if isinstance(error, Unavailable) and error.part == LANGUAGE_MODEL:
                await self._park(claimed, str(error), max(RETRY_S, error.retry_after_s))
                return
            message = _message(error, self._deps)
            log.warning("operation %s failed: %s", claimed.operation_id, message)
            await operations.fail(pool, claimed, message, again=True)
        finally:
            keeping.cancel()

    async def _park(
        self, claimed: Claim, reason: str, wait_s: float, progress: OperationProgress | None = None
    ) -> None:
        """Puts an operation back that cannot go on for now, through no fault of its own."""
        log.info("operation %s waits: %s", claimed.operation_id, reason)
        wait_s = min(PARK_S_MOST, max(1.0, wait_s))
        told = None if progress is None else progress.shown()
        await operations.release(self._deps.pool, claimed, wait_s, reason, told)

    async def _do(self, claimed: Claim, progress: OperationProgress) -> None:
        handle = self._handlers[claimed.type]
        deps = replace(self._deps, progress=progress)
        if not claimed.deaths:
            await handle(deps, claimed)
            return
        async with Child() as child:
            await handle(replace(deps, run=child.run), claimed)

    async def _keep(
        self, claimed: Claim, working: asyncio.Task[None], progress: OperationProgress
    ) -> None:
        """Renews the lease while the work goes on, and tells how far it is; stops work that is not
        ours any more."""
        told, renewed = 0, time.monotonic()
        every_s = min(self._lease_s / 3, LOOK_S)
        while True:
            await asyncio.sleep(min(every_s, TELL_S))
            if progress.noted == told and time.monotonic() - renewed < every_s:
                continue
            told, renewed = progress.noted, time.monotonic()
            with suppress(FourfoldError):
                if not await operations.renew(
                    self._deps.pool, claimed, self._lease_s, progress.shown()
                ):
                    working.cancel()
                    return

    async def _give_back(self, claimed: Claim) -> None:
        with suppress(FourfoldError, OSError):
            await asyncio.shield(operations.release(self._deps.pool, claimed))


def _message(error: Exception, deps: WriteContext) -> str:
    """What an operation says of an unexpected end."""
    if isinstance(error, DeadlineExceeded):
        return (
            f"it took longer than {deps.settings.retain_wall_timeout_s:g} s (RETAIN_WALL_TIMEOUT);"
            f" what was extracted is kept: {error}"
        )
    if isinstance(error, FourfoldError):
        return str(error)
    return f"{type(error).__name__}: {error}".rstrip(": ")


async def tidy(pool: Pool) -> None:
    """Lets go what is kept for a while only."""
    await payloads.let_go(pool)
    await answers.let_go(pool)
    await let_go_turns(pool)
