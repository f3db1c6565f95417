"""Documents of an archive put beside what a bank holds: each by the path that a retain takes, in a
transaction of its own that notes that it is done. Entities are joined by name, links made anew."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, Literal, TypeAlias
from uuid import UUID, uuid5

from retrieval.errors import InvalidInput, NotFound
from retrieval.ingest.context import WriteContext
from retrieval.ingest.documents.writing import chunk_id
from retrieval.ingest.facts import Link
from retrieval.ingest.write import numbering
from retrieval.ingest.write.enrich import Vectors, prepare
from retrieval.ingest.write.transaction import Change, write
from retrieval.lifecycle.transfer import arriving, storing
from retrieval.lifecycle.transfer.archive import ArchiveContents, BadArchive
from retrieval.lifecycle.transfer.bundles import Bundle, BundleArchive, Incoming, Kept
from retrieval.lifecycle.transfer.merged import MergeProgress
from retrieval.lifecycle.transfer.restoring import REFUSED, dress, kind_of
from retrieval.lifecycle.transfer.storing import TargetBank
from retrieval.lifecycle.webhooks.vault import Vault
from retrieval.store import attachments, banks, building, operations, planner
from retrieval.store.database.pool import Connection, read
from retrieval.store.database.pool import write as transact
from retrieval.store.edge import iso
from retrieval.store.history import DocumentChange, record
from retrieval.store.operations import Claim
from retrieval.types import LinkType

Conflict: TypeAlias = Literal["skip", "replace", "new-id"]
"""What becomes of a document whose id the bank has already."""

_LINK_TYPES: Final = {kind.wire: kind for kind in LinkType}


async def merge(
    deps: WriteContext,
    claimed: Claim,
    source: BundleArchive,
    bank_id: str,
    rule: Conflict,
    building_bank: int | None,
) -> None:
    """Puts the documents of `source` into the bank, and completes the operation.

    building_bank: the bank is new and being built, and is opened at the end; else what was done
    stays where the merge is stopped. BadArchive for what cannot be stored.
    """
    merging = _Merge(deps, claimed, bank_id, rule, building_bank)
    try:
        await asyncio.to_thread(source.open)
        await merging.run(source)
    finally:
        await asyncio.to_thread(source.close)


class _Merge:
    def __init__(
        self,
        deps: WriteContext,
        claimed: Claim,
        bank_id: str,
        rule: Conflict,
        building_bank: int | None,
    ) -> None:
        self._deps = replace(deps, builds=building_bank is not None)
        self._claimed = claimed
        self._tenant = claimed.tenant
        self._vault = Vault(deps.pool)  # a merge brings no webhooks
        self._bank_id = bank_id
        self._rule = rule
        self._building = building_bank
        self._total = 0

    async def run(self, source: BundleArchive) -> None:
        done = await self._resumed()
        self._total = await asyncio.to_thread(lambda: source.total)
        bundles = source.bundles(done.bundles)
        while (
            bundle := await self._checked(None, asyncio.to_thread(next, bundles, None))
        ) is not None:
            done = await self._checked(bundle.document, self._bundle(bundle, done))
        batches = source.observations(done.observations)
        while (
            batch := await self._checked(None, asyncio.to_thread(next, batches, None))
        ) is not None:
            done = await self._checked(None, self._observations(batch, done))
        kept = await asyncio.to_thread(source.kept)
        await self._checked(None, self._finish(done, kept))

    async def _checked(self, document: str | None, work: Any) -> Any:
        try:
            return await work
        except (BadArchive, NotFound):
            raise
        except InvalidInput as error:
            about = "" if document is None else f"document {document[:100]!r}: "
            raise BadArchive(f"{about}{error}") from error
        except REFUSED as error:
            about = "rows" if document is None else f"document {document[:100]!r} holds rows"
            raise BadArchive(f"{about} that cannot be stored ({kind_of(error)})") from error

    async def _resumed(self) -> MergeProgress:
        row = await read(
            self._deps.pool,
            lambda c: c.fetchrow(
                "select progress from operations where operation_id = $1 and lease = $2",
                self._claimed.operation_id,
                self._claimed.lease,
            ),
        )
        kept = ((row and row["progress"]) or {}).get("merged")
        return MergeProgress(**kept) if kept else MergeProgress()

    async def _note(self, connection: Connection, stage: str, done: MergeProgress) -> None:
        at = await connection.fetchval("select now()")
        shown = {
            "stage": stage,
            "at": iso(at),
            "processed": done.bundles,
            "total": self._total,
            "detail": f"{done.bundles} of {self._total} documents",
            "merged": done.kept(),
        }
        await operations.proceed(connection, self._claimed, shown)
        await connection.execute(
            "update operations set deaths = 0 where operation_id = $1 and lease = $2",
            self._claimed.operation_id,
            self._claimed.lease,
        )

    def _new(self, id: UUID) -> UUID:
        """The id that stands for one that is taken: always the same, so that references find it."""
        return uuid5(self._claimed.operation_id, str(id))

    async def _there(
        self, connection: Connection, bank: int, ids: Sequence[UUID]
    ) -> dict[UUID, UUID]:
        """The memories of the bank that ids of the archive mean."""
        anew = {self._new(id): id for id in ids}
        rows = await connection.fetch(
            "select id from memory_units where bank = $1 and id = any($2)", bank, [*anew, *ids]
        )
        stored = {UUID(bytes=row["id"].bytes) for row in rows}
        found = {id: id for id in ids if id in stored}
        return found | {old: new for new, old in anew.items() if new in stored}

    # Documents

    async def _bundle(self, bundle: Bundle, done: MergeProgress) -> MergeProgress:
        deps = self._deps
        facts = [one.fact for one in bundle.memories]
        settings = await self._settings()
        after = replace(done, bundles=done.bundles + 1)
        if (
            self._rule == "skip"
            and bundle.document is not None
            and await self._has(bundle.document)
        ):
            prepared = None
        else:
            prepared = await prepare(deps, settings, facts, self._tenant) if facts else None

        async def work(change: Change) -> MergeProgress:
            connection, bank = change.connection, change.bank
            name = bundle.document
            if name is not None and await arriving.there(connection, bank, name):
                if self._rule == "skip":
                    skipped = replace(after, skipped=[*after.skipped, name])
                    skipped = skipped.plus(documents_skipped=1)
                    await self._note(connection, "documents", skipped)
                    return skipped
                if self._rule == "replace":
                    await arriving.clear(change, name)
                else:
                    name = await arriving.free_id(connection, bank, name)
            if facts and prepared is None:
                raise _Gone  # the document that was there a moment ago is not any more
            named = await self._named(change, bundle.memories, name, bundle.document)
            memories = [one for _, one in named]
            if name is not None:
                await self._row(change, name, bundle)
                if bundle.attached:
                    await attachments.keep(connection, bank, name, bundle.attached)
            if memories and prepared is not None:
                own = [one.fact for one in memories]
                again = prepared.with_facts(own)
                if len(own) < len(facts):
                    vectors = Vectors(
                        prepared.vectors[[place for place, _ in named]], prepared.vector_set
                    )
                    again = await prepare(deps, change.settings, own, self._tenant, vectors)
                links = await self._links(change, bundle, memories)
                await change.add(again, links)
                await arriving.mark(change, memories)
            if name is not None:
                event = DocumentChange(
                    name, "retain", operation_id=self._claimed.operation_id,
                    facts_added=len(memories),
                )  # fmt: skip
                await record(connection, bank, [event])
            change.touch()
            now = after.plus(
                documents_imported=int(name is not None),
                attachments_imported=len(bundle.attached),
                facts_imported=len(memories),
                invalidated_memories_imported=sum(m.invalidated is not None for m in memories),
            )
            if name != bundle.document and name is not None and bundle.document is not None:
                now = replace(now, remapped={**now.remapped, bundle.document: name})
            await self._note(connection, "documents", now)
            return now

        for _ in range(3):
            try:
                return await write(deps, self._tenant, self._bank_id, work)
            except _Gone:
                prepared = await prepare(deps, settings, facts, self._tenant)
        raise InvalidInput("the document keeps coming and going")

    async def _settings(self) -> Any:
        config = await read(
            self._deps.pool,
            lambda c: c.fetchval(
                "select config from banks where tenant_id = $1 and bank_id = $2",
                self._tenant,
                self._bank_id,
            ),
        )
        if config is None:
            raise banks.unknown(self._bank_id)
        return self._deps.settings.with_overrides(config)

    async def _has(self, document: str) -> bool:
        found = await read(
            self._deps.pool,
            lambda c: c.fetchval(
                "select true from documents d join banks b using (bank)"
                " where b.tenant_id = $1 and b.bank_id = $2 and d.document_id = $3",
                self._tenant,
                self._bank_id,
                document,
            ),
        )
        return bool(found)

    async def _named(
        self,
        change: Change,
        memories: Sequence[Incoming],
        name: str | None,
        former: str | None,
    ) -> list[tuple[int, Incoming]]:
        """(place, memory) under ids and keys that are free; without a document only those that are
        to come at all."""
        connection, bank = change.connection, change.bank
        ids = [one.fact.id for one in memories]
        keys = [one.fact.key for one in memories if one.fact.key is not None]
        rows = await connection.fetch(
            "select id, key from memory_units where bank = $1 and (id = any($2) or key = any($3))",
            bank,
            ids,
            keys,
        )
        taken = {UUID(bytes=row["id"].bytes) for row in rows}
        taken_keys = {row["key"] for row in rows}
        found = []
        for place, one in enumerate(memories):
            fact = one.fact
            known = fact.id in taken or (fact.key is not None and fact.key in taken_keys)
            if former is None and known and self._rule == "skip":
                continue
            if former is None and known and self._rule == "replace":
                found.append((place, one))  # it takes the stored one's place
                continue
            changes: dict[str, Any] = {"document_id": name}
            if fact.id in taken:
                changes["id"] = self._new(fact.id)
            if fact.key is not None and fact.key in taken_keys:
                changes["key"] = None
            if one.chunk is not None and name is not None:
                changes["chunk_id"] = chunk_id(self._bank_id, name, one.chunk)
            found.append((place, replace(one, fact=replace(fact, **changes))))
        return found

    async def _row(self, change: Change, name: str, bundle: Bundle) -> None:
        """The document's row and its chunks."""
        connection, bank = change.connection, change.bank
        await numbering.document_numbers(connection, bank, [name])
        await connection.execute(
            "update documents d set original_text = w.original_text, content_hash = w.content_hash,"
            " tags = coalesce(w.tags, '{}'), metadata = coalesce(w.metadata, '{}'),"
            " retain_params = coalesce(w.retain_params, '{}'),"
            " observation_scopes = w.observation_scopes,"
            " created_at = coalesce(w.created_at, d.created_at),"
            " updated_at = coalesce(w.updated_at, w.created_at, d.updated_at)"
            " from jsonb_populate_record(null::documents, $3) w"
            " where d.bank = $1 and d.document_id = $2",
            bank,
            name,
            dict(bundle.columns),
        )
        target = TargetBank(bank, self._tenant, self._bank_id, change.settings, self._vault)
        await storing.store_chunks(
            connection, target, [{**chunk, "document_id": name} for chunk in bundle.chunks]
        )

    async def _links(
        self, change: Change, bundle: Bundle, memories: Sequence[Incoming]
    ) -> list[Link]:
        """Those of the bundle's links both of whose ends are in the bank now."""
        own = {m.fact.id for m in memories}
        ends = {id for link in bundle.links for id in (link.source, link.target)}
        there = await self._there(change.connection, change.bank, list(ends))
        for id in ends:
            if (new := self._new(id)) in own:
                there[id] = new
            elif id in own:
                there[id] = id
        stored = await change.connection.fetch(
            "select from_id, to_id from links where bank = $1 and to_id = any($2)",
            change.bank,
            list(own),
        )
        # Links to a memory that takes another's place stay anyway.
        kept = {(UUID(bytes=row[0].bytes), UUID(bytes=row[1].bytes)) for row in stored}
        return [
            Link(there[one.source], there[one.target], _LINK_TYPES[one.type], float(one.weight))
            for one in bundle.links
            if one.source in there
            and one.target in there
            and (there[one.source] in own or (there[one.source], there[one.target]) not in kept)
        ]

    # What stands over them

    async def _observations(self, batch: Sequence[Incoming], done: MergeProgress) -> MergeProgress:
        deps = self._deps
        settings = await self._settings()
        after = replace(done, observations=done.observations + 1)

        async def chosen(connection: Connection, bank: int) -> list[Incoming]:
            """Those all of whose sources are there, and that are not there themselves."""
            wanted = {ref for one in batch for ref in one.fact.sources if isinstance(ref, UUID)}
            own = [one.fact.id for one in batch]
            there = await self._there(connection, bank, [*wanted, *own])
            found = []
            for one in batch:
                fact = one.fact
                sources = [there.get(ref) for ref in fact.sources]  # type: ignore[arg-type]
                if not sources or None in sources or (fact.id in there and self._rule != "new-id"):
                    continue
                id = self._new(fact.id) if fact.id in there else fact.id
                there[fact.id] = id
                found.append(
                    replace(
                        one,
                        fact=replace(
                            fact, id=id, key=None, document_id=None,
                            sources=tuple(s for s in sources if s is not None),
                        ),
                    )
                )  # fmt: skip
            return found

        async def work(change: Change) -> MergeProgress:
            found = await chosen(change.connection, change.bank)
            if found:
                facts = [one.fact for one in found]
                prepared = await prepare(deps, change.settings, facts, self._tenant, vectors(found))
                await change.add(prepared)
                await arriving.mark(change, found)
            now = after.plus(
                observations_imported=len(found), observations_skipped=len(batch) - len(found)
            )
            await self._note(change.connection, "observations", now)
            return now

        # Embedded before the bank is locked; the lock only says which of them come.
        every = await prepare(deps, settings, [one.fact for one in batch], self._tenant)
        place = {one.fact.text: i for i, one in enumerate(batch)}

        def vectors(found: Sequence[Incoming]) -> Vectors:
            rows = every.vectors[[place[one.fact.text] for one in found]]
            return Vectors(rows, every.vector_set)

        return await write(deps, self._tenant, self._bank_id, work)

    async def _finish(self, done: MergeProgress, kept: Kept) -> None:
        async def work(connection: Connection) -> Any:
            added = await self._keep(connection, kept)
            result = done.plus(**added).result(self._bank_id)
            await operations.finish(connection, self._claimed, result)
            await connection.execute(
                "update memory_units m set superseded_by = null from banks b"
                " where b.tenant_id = $1 and b.bank_id = $2 and m.bank = b.bank"
                " and m.superseded_by is not null and not exists (select from memory_units s"
                "  where s.bank = m.bank and s.id = m.superseded_by)",
                self._tenant,
                self._bank_id,
            )
            if self._building is not None:
                row = await building.lock(connection, self._building, self._claimed)
                config = storing.checked_config(kept.bank.get("config"))
                await dress(connection, self._building, kept.bank, config, ArchiveContents())
                await building.open_bank(connection, self._building, row["version"])
            return await banks.head_of(connection, self._tenant, self._bank_id)

        if self._building is not None:
            await planner.inform(self._deps.pool, self._building)
        self._deps.committed(await transact(self._deps.pool, work))

    async def _keep(self, connection: Connection, kept: Kept) -> dict[str, int]:
        """Mental models and pages that the bank does not have; directives of a new bank."""
        models, nodes = kept.models, kept.nodes
        if not models and not nodes and not kept.directives:
            return {}
        head = await banks.lock(
            connection, self._tenant, self._bank_id, building=self._building is not None
        )
        target = TargetBank(
            head.bank, self._tenant, self._bank_id, self._deps.settings, self._vault
        )
        known = await connection.fetch("select id from mental_models where bank = $1", head.bank)
        ids = {row[0] for row in known}
        new = [{**line, "watermark": head.next_ordinal} for line in models if line["id"] not in ids]
        for line in new:
            cited = [UUID(id) for id in line.get("citations") or ()]
            line["citations"] = list((await self._there(connection, head.bank, cited)).values())
        await storing.store_mental_models(connection, target, _plain(new))
        ids = {line["id"] for line in new} | ids
        rows = await connection.fetch(
            "select id, coalesce(parent_id, '') as parent, name_key, mental_model_id"
            " from knowledge_nodes where bank = $1",
            head.bank,
        )
        there = {row["id"] for row in rows}
        names = {(row["parent"], row["name_key"]) for row in rows}
        shown = {row["mental_model_id"] for row in rows}
        added = []
        for node in nodes:
            place = (node.get("parent_id") or "", node["name_key"])
            parent, model = node.get("parent_id"), node.get("mental_model_id")
            if (
                node["id"] in there
                or place in names
                or (parent is not None and parent not in there)
                or (model is not None and (model not in ids or model in shown))
            ):
                continue
            there.add(node["id"])
            names.add(place)
            added.append(node)
        await storing.store_knowledge(connection, target, added)
        directives = kept.directives if self._building is not None else ()
        await storing.store_directives(connection, target, directives)
        return {
            "mental_models_imported": len(new),
            "mental_model_history_imported": sum(len(m.get("history") or ()) for m in new),
            "knowledge_pages_imported": len(added),
            "directives_imported": len(directives),
        }


class _Gone(Exception):
    """What was there when the work was prepared is not there any more."""


def _plain(lines: Sequence[Any]) -> list[Any]:
    return [{**line, "citations": [str(id) for id in line["citations"]]} for line in lines]
