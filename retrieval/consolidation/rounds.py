"""One round: the memories of a bank that wait, scope by scope and batch by batch.

No call is made while a lock or a connection is held. What a language model gets wrong is asked
again, then halved down to single memories, which are marked as failed; what it cannot be asked at
all (transport, quota, budget, setup) marks nothing: the operation waits.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from retrieval.bank.probe import NO_TERMS, Probe
from retrieval.bank.vectors.flat import Scan
from retrieval.consolidation import commit, prompts, queue, scopes
from retrieval.consolidation.actions import ActionReader, Decided
from retrieval.consolidation.batch import Batch, gather, piece
from retrieval.consolidation.dedup import twins
from retrieval.consolidation.deps import ConsolidationDeps
from retrieval.consolidation.restated import evidence
from retrieval.errors import (
    DeadlineExceeded,
    InvalidInput,
    ModelChanged,
    ModelCut,
    ModelFailed,
    ModelRefused,
    ModelTooLong,
    NeedsModel,
    Overloaded,
    StaleSnapshot,
    Unavailable,
)
from retrieval.ingest.context import WriteContext
from retrieval.ingest.facts import Fact
from retrieval.ingest.operations.parking import Parked
from retrieval.ingest.operations.worker import Handler
from retrieval.ingest.scopes import scope_key
from retrieval.ingest.write.enrich import embedded
from retrieval.ingest.write.stored import StoredMemory, load
from retrieval.llm.asking import Asker
from retrieval.llm.reading import NoJson
from retrieval.settings.consolidation import ConsolidationSettings
from retrieval.store import banks, operations, outbox
from retrieval.store.database.pool import Connection, read, write
from retrieval.store.operations import Claim
from retrieval.types import FactType, Floats

GROUP_MOST = 64
"""Memories of one former observation that are shown together."""
ROUND_MOST = 5_000
"""Memories of one round where there is no other limit."""
PARK_S = 60.0
_MOVES = 3
STALE_WAIT_S = 5.0
"""What changed while it was looked at is looked at again after so long."""


@dataclass(frozen=True, slots=True)
class PendingMemory:
    """A memory and the scopes that it is not finished in. `group`: which memories it is to be
    shown with."""

    stored: StoredMemory
    scopes: tuple[frozenset[str], ...]
    group: UUID | None


@dataclass(slots=True)
class RoundReport:
    """What a round did; as the operation's result."""

    memories: int = 0
    items: int = 0
    done: int = 0
    failed: int = 0
    waiting: int = 0
    capped: int = 0
    observations_created: int = 0
    observations_updated: int = 0
    observations_ended: int = 0
    observations_merged: int = 0
    actions_dropped: int = 0
    actions_void: int = 0
    errors: list[str] = field(default_factory=list)

    def add(self, written: commit.CommitResult) -> None:
        self.done += len(written.done)
        self.waiting += len(written.waiting)
        self.capped += written.capped
        self.observations_created += len(written.created)
        self.observations_updated += len(written.updated)
        self.observations_ended += len(written.ended)
        self.observations_merged += len(written.merged)
        self.actions_void += written.void

    def wire(self, asker: Asker | None) -> dict[str, Any]:
        counts = {name: getattr(self, name) for name in self.__slots__ if name != "errors"}
        usage = {"calls": 0} if asker is None else {"calls": asker.usage.calls}
        if asker is not None:
            usage |= asker.usage.wire()
        return {**counts, "errors_sample": self.errors[:5], "usage": usage}

    def told(self, claimed: Claim) -> outbox.OutboxEvent:
        """What webhooks are told: counts."""
        names = [name for name in self.__slots__ if name != "errors"]
        counts = {name: getattr(self, name) for name in names}
        return outbox.OutboxEvent("consolidation.completed", counts, claimed.operation_id)


class Round:
    """Does one claimed operation. Used once, by one task."""

    def __init__(self, deps: ConsolidationDeps, claimed: Claim) -> None:
        self.deps = deps
        self.claimed = claimed
        self.report = RoundReport()
        self.asker = (
            None
            if deps.model is None
            else Asker(
                deps.model,
                "consolidation",
                "consolidation",
                claimed.tenant,
                claimed.bank_id,
                about={"scope": "consolidation", "trace_id": str(claimed.operation_id)},
            )
        )

    async def run(self) -> None:
        """Consolidates what waits, up to a round; ends the operation, with the next one queued."""
        deps, claimed = self.deps, self.claimed
        if not deps.able:
            raise NeedsModel.to("consolidation", "observations can be imported without one")
        head = await banks.head(deps.ingest.pool, claimed.tenant, claimed.bank_id)
        settings = deps.settings.with_overrides(head.config)
        if settings.enable_observations:
            works = await self._waiting(settings)
            self.report.memories = len(works)
            await self._all(works, settings)
        await write(deps.ingest.pool, self._end)

    async def _waiting(self, settings: ConsolidationSettings) -> list[PendingMemory]:
        most = settings.consolidation_max_memories_per_round or ROUND_MOST
        page = min(most, settings.consolidation_batch_size)
        found: list[PendingMemory] = []
        last = -1
        while len(found) < most:
            rows, works = await waiting(
                self.deps, self.claimed.tenant, self.claimed.bank_id, settings, self._only(),
                after=last, limit=min(page, most - len(found)),
            )  # fmt: skip
            found += works
            if rows < page:
                break
            last = max((w.stored.ordinal or 0 for w in works), default=last)
        return found

    def _only(self) -> list[list[str]] | None:
        only: list[list[str]] | None = self.claimed.payload.get("observation_scopes")
        return only

    async def _all(self, works: Sequence[PendingMemory], settings: ConsolidationSettings) -> None:
        by_scope: dict[frozenset[str], list[PendingMemory]] = defaultdict(list)
        for work in works:
            if not work.scopes:
                await self._unscoped(work)
            for scope in work.scopes:
                by_scope[scope].append(work)
        self.report.items = sum(map(len, by_scope.values()))
        turns = asyncio.Semaphore(settings.consolidation_llm_parallelism)

        async def one(scope: frozenset[str], mine: Sequence[PendingMemory]) -> None:
            async with turns:
                own = scopes.settings_of(settings, scope).base
                for group in batches(mine, own.consolidation_llm_batch_size):
                    await self._batch(scope, group, own)

        try:
            async with asyncio.TaskGroup() as tasks:
                for scope in sorted(by_scope, key=scope_key):
                    tasks.create_task(one(scope, by_scope[scope]))
        except ExceptionGroup as failed:
            raise _first(failed) from None

    async def _unscoped(self, work: PendingMemory) -> None:
        """A memory whose scopes would be too many."""
        why = "all_combinations is for few tags: give the memory other observation_scopes"
        batch = await self._gathered(frozenset(), [work.stored], self.deps.settings)
        if batch is not None:
            self.report.failed += len(await commit.mark_failed(self.deps, self.claimed, batch, why))
            self.report.errors.append(why)

    async def _batch(
        self, scope: frozenset[str], facts: Sequence[StoredMemory], settings: ConsolidationSettings
    ) -> None:
        """One batch, to its end: committed, halved, or marked as failed."""
        batch = await self._gathered(scope, facts, settings)
        if batch is None or not batch.facts:
            self.report.waiting += len(facts)
            return
        self.report.waiting += len(facts) - len(batch.facts)
        if rest := await self._restated(batch):
            await self._batch(scope, rest, settings)
        if rest is not None:
            return
        reader = ActionReader(batch, translated=language(self.deps, batch) is not None)
        try:
            decided = await decide(self.deps, self.asker, batch, reader, settings)
        except (ModelFailed, ModelRefused, ModelCut, ModelTooLong) as error:
            self.report.actions_dropped += len(reader.dropped)
            await self._halved(batch, str(error), settings)
            return
        self.report.actions_dropped += len(reader.dropped)
        plan = await self._plan(batch, decided, settings)
        written = await commit.commit(self.deps, self.claimed, plan, self.report.done)
        self.report.add(written)
        if decided.open and len(decided.open) < len(batch.facts):
            again = [batch.facts[i] for i in decided.open if batch.facts[i].fact.id
                     not in written.waiting]  # fmt: skip
            if again:
                await self._batch(scope, again, settings)

    async def _restated(self, batch: Batch) -> list[StoredMemory] | None:
        """Commits what needs nobody's decision; the facts that are left then, None where there was
        none of that kind."""
        ingest = self.deps.ingest
        if batch.bank.head.vector_set != ingest.vector_set:
            return None
        found = await evidence(ingest.pool, batch)
        if found is None:
            return None
        own, decided = found
        plan = commit.CommitPlan(own, decided, [], {}, batch.bank.head.vector_set)
        self.report.add(await commit.commit(self.deps, self.claimed, plan, self.report.done))
        taken = {one.fact.id for one in own.facts}
        return [one for one in batch.facts if one.fact.id not in taken]

    async def _gathered(
        self, scope: frozenset[str], facts: Sequence[StoredMemory], settings: ConsolidationSettings
    ) -> Batch | None:
        try:
            return await gathered(
                self.deps, self.claimed.tenant, self.claimed.bank_id, scope, facts, settings
            )
        except StaleSnapshot:
            return None

    async def _plan(
        self, batch: Batch, decided: Decided, settings: ConsolidationSettings
    ) -> commit.CommitPlan:
        ingest = self.deps.ingest
        shown = [one.stored.fact.text for one in batch.observations]
        wanted = {
            action.text
            for action in decided.actions
            if action.do in ("create", "update")
            and (action.observation is None or action.text != shown[action.observation])
        }
        same_vectors = batch.bank.head.vector_set == ingest.vector_set
        fresh = sorted(wanted if same_vectors else wanted.union(shown))
        vectors: dict[str, Floats] = {}
        made_by = batch.bank.head.vector_set
        if fresh:
            made = [Fact(batch.facts[0].fact.id, text, FactType.OBSERVATION) for text in fresh]
            answer = await embedded(ingest.embedder, made, self.claimed.tenant)
            if same_vectors and answer.vector_set != made_by:
                raise ModelChanged(made_by, answer.vector_set)
            made_by = answer.vector_set
            vectors = dict(zip(fresh, answer.rows, strict=True))
        found = []
        if same_vectors and vectors:
            scans = await self._scans(batch, vectors)
            found = await twins(
                ingest.pool, batch, decided.actions, vectors, scans,
                settings.consolidation_dedup_threshold, self.asker,
            )  # fmt: skip
        return commit.CommitPlan(batch, decided, found, vectors, made_by)

    async def _scans(self, batch: Batch, vectors: Mapping[str, Floats]) -> dict[str, Scan]:
        """The bank's similarity to each text."""
        bank = batch.bank
        if bank.whole:
            scan = bank.vectors.scan
            return {text: await piece(bank, scan, vector) for text, vector in vectors.items()}
        split = self.deps.residency.split
        assert split is not None
        asked = [Probe(vector, NO_TERMS) for vector in vectors.values()]
        found = await split.readings(bank, asked, self.deps.recall)
        return {text: one.scan for text, one in zip(vectors, found, strict=True)}

    async def _halved(self, batch: Batch, reason: str, settings: ConsolidationSettings) -> None:
        if len(batch.facts) == 1:
            failed = await commit.mark_failed(self.deps, self.claimed, batch, reason)
            self.report.failed += len(failed)
            self.report.waiting += 1 - len(failed)
            self.report.errors.append(reason[:300])
            return
        middle = len(batch.facts) // 2
        for half in (batch.facts[:middle], batch.facts[middle:]):
            await self._batch(batch.scope, half, settings)

    async def _end(self, connection: Connection) -> None:
        """The end of the operation, and the next round where more waits."""
        claimed, report = self.claimed, self.report
        head = await banks.lock(connection, claimed.tenant, claimed.bank_id)
        await operations.finish(connection, claimed, report.wire(self.asker))
        await outbox.emit(connection, head, [report.told(claimed)])
        only = self._only()
        where, values = narrowed(only)
        more = await connection.fetchval(
            f"select exists (select from memory_units where bank = $1 and {queue.PENDING}{where})",
            head.bank,
            *values,
        )
        own = self.deps.settings.with_overrides(head.config)
        if more and own.enable_observations:
            moved = report.done + report.failed > 0
            wait = STALE_WAIT_S if report.waiting or not moved else 0.0
            await queue.next_round(connection, head.bank, dict(claimed.payload), wait)


def handler(deps: ConsolidationDeps) -> Handler:
    """Does operations of type `queue.TYPE`; see retrieval.ingest.operations.worker.Handler."""

    async def handle(ingest: WriteContext, claimed: Claim) -> None:
        try:
            await Round(replace(deps, ingest=ingest), claimed).run()
        except Overloaded as error:
            raise Parked(str(error), max(error.retry_after_s, 1.0)) from error
        except (Unavailable, DeadlineExceeded) as error:
            wait = getattr(error, "retry_after_s", 1.0)
            raise Parked(str(error), max(wait, PARK_S)) from error

    return handle


async def decide(
    deps: ConsolidationDeps,
    asker: Asker | None,
    batch: Batch,
    reader: ActionReader,
    settings: ConsolidationSettings,
) -> Decided:
    """What passes of the answer about a batch. ModelFailed and its kind where there is none."""
    if asker is None:
        assert deps.rules is not None
        try:
            said = await asyncio.to_thread(deps.rules, batch)
            return await asyncio.to_thread(reader.read, said, True)
        except NoJson as error:
            raise ModelFailed(str(error)) from None
    return await asker.read(
        prompts.messages(batch, language(deps, batch)),
        prompts.schema(),
        reader.read,
        max_tokens=prompts.completion_tokens(len(batch.facts)),
        questions=settings.consolidation_max_attempts,
    )


def language(deps: ConsolidationDeps, batch: Batch) -> str | None:
    """The language that the bank wants its texts in; None is that of the facts."""
    return deps.ingest.settings.with_overrides(batch.bank.head.config).llm_output_language


async def gathered(
    deps: ConsolidationDeps,
    tenant: str,
    bank_id: str,
    scope: frozenset[str],
    facts: Sequence[StoredMemory],
    settings: ConsolidationSettings,
) -> Batch:
    """The batch of these memories in the newest state of the bank; StaleSnapshot where that is
    rearranged again and again."""
    ingest = deps.ingest
    for attempt in range(_MOVES):
        head = await banks.head(ingest.pool, tenant, bank_id)
        analyser = ingest.analyser(ingest.settings.with_overrides(head.config))
        try:
            return await gather(
                ingest.pool, deps.residency, analyser, tenant, bank_id, scope, facts, settings,
                deps.recall,
            )  # fmt: skip
        except StaleSnapshot:
            if attempt == _MOVES - 1:
                raise
    raise AssertionError("unreachable")


async def waiting(
    deps: ConsolidationDeps,
    tenant: str,
    bank_id: str,
    settings: ConsolidationSettings,
    only: Sequence[Sequence[str]] | None,
    *,
    after: int = -1,
    limit: int,
) -> tuple[int, list[PendingMemory]]:
    """(rows read, works): memories to consolidate, oldest first, from behind ordinal `after`."""
    where, values = narrowed(only)

    async def look(
        connection: Connection,
    ) -> tuple[Sequence[Mapping[str, Any]], list[StoredMemory]]:
        bank = (await banks.head_of(connection, tenant, bank_id)).bank
        rows = await connection.fetch(
            "select id, consolidated_scopes, consolidation_group from memory_units"
            f" where bank = $1 and {queue.PENDING}{where} and ordinal > ${len(values) + 2}"
            f" order by ordinal limit ${len(values) + 3}",
            bank,
            *values,
            after,
            limit,
        )
        return rows, await load(connection, bank, [row["id"] for row in rows])

    rows, found = await read(deps.ingest.pool, look)
    state = {row["id"]: row for row in rows}
    works = []
    for stored in found:
        row = state[stored.fact.id]
        try:
            every = scopes.of_memory(
                stored.fact.observation_scopes,
                stored.fact.tags,
                settings.default_observation_scopes,
            )
        except InvalidInput:
            every = []
        done = set(row["consolidated_scopes"])
        todo = tuple(scope for scope in every if scope_key(scope) not in done)
        works.append(PendingMemory(stored, todo or tuple(every[:1]), row["consolidation_group"]))
    return len(rows), works


def narrowed(only: Sequence[Sequence[str]] | None) -> tuple[str, list[Any]]:
    """(SQL, values from $2 on): memories that have all tags of one of these scopes."""
    if not only:
        return "", []
    tests = " or ".join(f"tags @> ${i + 2}::text[]" for i in range(len(only)))
    return f" and ({tests})", [list(scope) for scope in only]


def batches(works: Sequence[PendingMemory], size: int) -> list[list[StoredMemory]]:
    """The memories of a scope in batches of `size`; those of a group together, up to GROUP_MOST."""
    groups: dict[UUID, list[StoredMemory]] = defaultdict(list)
    for work in works:
        if work.group is not None:
            groups[work.group].append(work.stored)
    found: list[list[StoredMemory]] = []
    single = [w.stored for w in works if w.group is None or len(groups[w.group]) == 1]
    for each in groups.values():
        if len(each) > 1:
            found += [each[at : at + GROUP_MOST] for at in range(0, len(each), GROUP_MOST)]
    return found + [single[at : at + size] for at in range(0, len(single), size)]


def _first(failed: BaseExceptionGroup[Any]) -> BaseException:
    error: BaseException = failed.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
