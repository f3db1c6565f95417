"""Facts of many chunks by a batch of the model's provider, for operations that can wait.

A batch is noted before it is sent and named once the provider has it, so that whoever goes on after
a crash finds it there. Its answers go into the ledger; chunks that it did not answer well are asked
about singly, as if there were no batches.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from uuid import uuid4

from retrieval.errors import FourfoldError
from retrieval.ingest.extract import prompts
from retrieval.ingest.extract.by_model import (
    Chunk,
    ExtractionOutcome,
    Job,
    ModelExtractor,
    question,
    reader_of,
)
from retrieval.ingest.facts import ExtractedFact
from retrieval.ingest.operations.parking import Parked
from retrieval.llm.reading import NoJson
from retrieval.protocols import BatchLLM
from retrieval.store import batches as store
from retrieval.store.batches import ProviderBatch
from retrieval.store.database.pool import Pool

log = logging.getLogger(__name__)

CHUNKS_MOST = 10_000
CHARS_MOST = 40_000_000
"""Of one batch; the next is sent when it is answered."""
SWEEP_S = 5.0


@dataclass(frozen=True, slots=True)
class BatchExtractor:
    """Safe for concurrent use. `poll_s`: how often a batch is asked about."""

    singly: ModelExtractor
    batches: BatchLLM
    poll_s: float = 60.0

    async def extract(
        self, job: Job, chunks: Sequence[Chunk], outcome: ExtractionOutcome
    ) -> list[list[ExtractedFact]]:
        """As ModelExtractor.extract; Parked while a batch of the job's operation is with the
        provider."""
        collected = 0
        if job.pool is not None and job.operation is not None and chunks:
            collected = await self._batched(job, chunks, outcome)
        found = await self.singly.extract(job, chunks, outcome)
        outcome.chunks_reused -= collected
        return found

    async def _batched(self, job: Job, chunks: Sequence[Chunk], outcome: ExtractionOutcome) -> int:
        """Chunks that batches answered just now. Parked while one is not answered; afterwards all
        chunks are in the ledger that batches could help with."""
        assert job.pool is not None
        assert job.operation is not None
        by_key = {self.singly.key(job, chunk): chunk for chunk in chunks}
        collected = 0
        while True:
            known = await store.of_operation(job.pool, job.tenant, job.bank_id, job.operation)
            tried: set[bytes] = set()
            for batch in known:
                if batch.ended:
                    tried.update(batch.keys)
                    continue
                found = await self._collected(job, job.pool, batch, by_key, outcome)
                if found is not None:
                    collected += found
                    tried.update(batch.keys)
            kept = await self.singly.kept(job, list(by_key))
            todo = _some({k: c for k, c in by_key.items() if k not in kept and k not in tried})
            if not todo:
                return collected
            if not await self._sent(job, job.pool, todo):
                return collected
            job.progress.at("extracting", len(by_key) - len(todo), len(by_key))
            raise Parked(self._waits(len(todo), 0), self.poll_s)

    async def _sent(self, job: Job, pool: Pool, chunks: Mapping[bytes, Chunk]) -> bool:
        """False where the provider takes no such batch."""
        assert job.operation is not None
        mark, account = uuid4(), self.batches.account
        await store.intend(
            pool, job.tenant, job.bank_id, job.operation, mark, account, list(chunks)
        )
        asked = {
            key.hex(): (question(job, chunk, chunk.text), prompts.schema(chunk.settings))
            for key, chunk in chunks.items()
        }
        id = await self.batches.submit(
            "retain",
            asked,
            max_tokens=prompts.COMPLETION_TOKENS,
            tenant=job.tenant,
            bank=job.bank_id,
            mark=str(mark),
        )
        if id is None:
            log.warning("%s takes no batches: chunks are asked about one by one", account)
            await store.drop(pool, mark)
            return False
        await store.name(pool, mark, id)
        return True

    async def _collected(
        self,
        job: Job,
        pool: Pool,
        batch: ProviderBatch,
        by_key: Mapping[bytes, Chunk],
        outcome: ExtractionOutcome,
    ) -> int | None:
        """Good answers of a batch that are in the ledger now; None where the batch is lost, and may
        be sent again. Parked while it is not answered."""
        id = await self._id(pool, batch)
        state = None if id is None else await self.batches.look(id)
        if id is None or state is None:
            log.info("a batch of operation %s is not known to %s", job.operation, batch.account)
            await store.drop(pool, batch.mark)
            return None
        if not state.ended:
            total = state.total or len(batch.keys)
            job.progress.at("extracting", len(by_key) - total + state.processed, len(by_key))
            raise Parked(self._waits(total, state.processed), self.poll_s)
        good = 0
        job.progress.at("extracting", len(by_key) - len(batch.keys), len(by_key))
        about = {"scope": "extract_facts", "trace_id": job.trace_id}
        answers = self.batches.answers(
            id, "retain", tenant=job.tenant, bank=job.bank_id, about=about
        )
        async with aclosing(answers):
            async for name, answer in answers:
                outcome.usage.add(answer.usage)
                key = _key(name)
                chunk = by_key.get(key)
                if chunk is None:
                    continue
                reader = reader_of(job, chunk, chunk.text)
                try:
                    facts = await asyncio.to_thread(reader.read, answer.text, True)
                except NoJson:
                    continue  # asked about singly, where it is told what was wrong
                outcome.errors += [f"{chunk.where}: {problem}" for problem in reader.dropped]
                await self.singly.keep(job, chunk, key, facts)
                good += 1
        await store.end(pool, batch.mark)
        await self._forgotten(id)
        return good

    async def _id(self, pool: Pool, batch: ProviderBatch) -> str | None:
        """The provider's name of a batch, looked for where it was not noted any more."""
        if batch.account != self.batches.account:
            return None
        if batch.id is not None:
            return batch.id
        id = await self.batches.find(str(batch.mark))
        if id is not None:
            await store.name(pool, batch.mark, id)
        return id

    async def _forgotten(self, id: str) -> None:
        try:
            await self.batches.forget(id)
        except FourfoldError as error:
            log.info("files of a batch stay with the provider: %s", error)

    def _waits(self, total: int, processed: int) -> str:
        return f"its chunks are with {self.batches.account} as a batch: {processed} of {total} done"

    async def sweep(self, pool: Pool) -> None:
        """Stops batches whose operation was cancelled, failed or deleted."""
        for batch in await store.orphans(pool, self.batches.account):
            id = await self._id(pool, batch)
            if id is None:
                continue  # it may be on its way: looked for a while
            if (state := await self.batches.look(id)) is not None:
                if not state.ended:
                    await self.batches.cancel(id)
                await self._forgotten(id)
            await store.drop(pool, batch.mark)

    async def keep_swept(self, pool: Pool, every_s: float = SWEEP_S) -> None:
        """Sweeps until it is cancelled."""
        while True:
            await asyncio.sleep(every_s)
            try:
                await self.sweep(pool)
            except FourfoldError as error:
                log.info("batches could not be looked after: %s", error)
            except Exception:
                log.exception("batches could not be looked after")


def _some(chunks: Mapping[bytes, Chunk]) -> dict[bytes, Chunk]:
    """As many of them as one batch may hold."""
    taken: dict[bytes, Chunk] = {}
    chars = 0
    for key, chunk in chunks.items():
        chars += len(chunk.text)
        if taken and (len(taken) == CHUNKS_MOST or chars > CHARS_MOST):
            break
        taken[key] = chunk
    return taken


def _key(name: str) -> bytes:
    try:
        return bytes.fromhex(name)
    except ValueError:
        return b""
