"""Files that came with contents: kept once per bank, by what is in them, and shown with the texts
that refer to them.

A text refers to one by its placeholder. A placeholder means something only in a document that the
file came with: whoever writes one by hand sees nothing of others. What no document refers to any
more goes with the last reference, by a trigger.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import quote
from uuid import UUID

from retrieval.errors import InvalidInput, NotFound
from retrieval.store.database.pool import Connection, Pool, read

Kind: TypeAlias = Literal["image", "file"]

BYTES_MOST: Final = 20 << 20
"""Of one attachment."""
PER_ITEM_MOST: Final = 50
PART_BYTES: Final = 1 << 20
ID_DIGITS: Final = 12
ID: Final = re.compile(r"[0-9a-f]{12}")
PLACEHOLDER: Final = re.compile(r"⟦hs-att:([0-9a-f]{12})⟧")


def placeholder(id: str) -> str:
    return f"⟦hs-att:{id}⟧"


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file on its way into a document. hash: SHA-256 of its bytes, 32 of them. `data`: the bytes,
    or what reads them; None where they lie with the operation that stores the document."""

    kind: Kind
    media_type: str
    hash: bytes
    byte_size: int
    filename: str | None = None
    data: bytes | Callable[[], bytes] | None = None

    @property
    def id(self) -> str:
        return self.hash.hex()[:ID_DIGITS]


@dataclass(frozen=True, slots=True)
class Held:
    """A stored file, as it is served. Types and names are those that it was sent with last."""

    bank: int
    id: str
    hash: bytes
    byte_size: int
    kind: Kind
    media_type: str
    filename: str | None


# Writing: in the transaction of whoever writes the document


async def keep(
    connection: Connection,
    bank: int,
    document_id: str,
    attached: Sequence[Attachment],
    operation: UUID | None = None,
) -> None:
    """Stores files that the bank does not have yet, and that the document refers to them."""
    for one in attached:
        await store(connection, bank, one, operation)
        await connection.execute(
            "insert into document_attachments (bank, document_id, id, kind, media_type, filename)"
            " values ($1, $2, $3, $4, $5, $6) on conflict (bank, document_id, id) do update set"
            " kind = excluded.kind, media_type = excluded.media_type,"
            " filename = excluded.filename",
            bank, document_id, one.id, one.kind, one.media_type, one.filename,
        )  # fmt: skip
        if one.data is None:
            await connection.execute(
                "delete from operation_files where bank = $1 and operation_id = $2", bank, operation
            )


async def store(
    connection: Connection, bank: int, one: Attachment, operation: UUID | None = None
) -> None:
    """The bytes of a file, unless the bank has them. InvalidInput where they cannot be had."""
    new = await connection.fetchval(
        "insert into attachments (bank, id, hash, byte_size) values ($1, $2, $3, $4)"
        " on conflict (bank, id) do nothing returning true",
        bank, one.id, one.hash, one.byte_size,
    )  # fmt: skip
    if not new:
        held = await connection.fetchval(
            "select hash from attachments where bank = $1 and id = $2", bank, one.id
        )
        if held != one.hash:
            raise InvalidInput(f"the bank has another attachment of the id {one.id}")
        return
    if one.data is None:
        moved = await connection.execute(
            "insert into attachment_parts (bank, id, part, data) select bank, $3, part, data"
            " from operation_files where bank = $1 and operation_id = $2",
            bank, operation, one.id,
        )  # fmt: skip
        if moved == "INSERT 0 0" and one.byte_size:
            raise InvalidInput("the file is no longer kept: send it again")
        return
    data = one.data if isinstance(one.data, bytes) else await asyncio.to_thread(one.data)
    for part, begin in enumerate(range(0, len(data), PART_BYTES)):
        await connection.execute(
            "insert into attachment_parts (bank, id, part, data) values ($1, $2, $3, $4)",
            bank, one.id, part, data[begin : begin + PART_BYTES],
        )  # fmt: skip


async def let_go(
    connection: Connection, bank: int, document_id: str, texts: Iterable[str], more: Iterable[str]
) -> int:
    """Ends the document's references but those whose placeholders stand in its `texts`, and those
    to `more` ids; how many went."""
    kept = {id for text in texts for id in PLACEHOLDER.findall(text)} | set(more)
    status: str = await connection.execute(
        "delete from document_attachments where bank = $1 and document_id = $2 and id <> all($3)",
        bank,
        document_id,
        list(kept),
    )
    return int(status.rpartition(" ")[2])


# Reading


async def find(pool: Pool, tenant: str, bank_id: str, id: str) -> Held:
    """NotFound, in the same words whether the bank or the file is missing."""

    missing = NotFound("there is no such attachment")
    if not ID.fullmatch(id):
        raise missing
    row = await read(
        pool,
        lambda connection: connection.fetchrow(
            "select a.bank, a.id, a.hash, a.byte_size, d.kind, d.media_type, d.filename"
            " from banks b join attachments a using (bank)"
            " join document_attachments d using (bank, id)"
            " where b.tenant_id = $1 and b.bank_id = $2 and b.state = 'open' and a.id = $3"
            " order by d.created_at desc, d.document_id limit 1",
            tenant,
            bank_id,
            id,
        ),
    )
    if row is None:
        raise missing
    return Held(**dict(row))


async def chunks(
    pool: Pool, held: Held, begin: int = 0, end: int | None = None
) -> AsyncIterator[bytes]:
    """Its bytes [begin, end), a part at a time; no connection is held between two of them."""
    end = held.byte_size if end is None else min(end, held.byte_size)
    while begin < end:
        part, offset = divmod(begin, PART_BYTES)
        length = min(PART_BYTES - offset, end - begin)
        data = await read(
            pool,
            lambda connection, p=part, o=offset, n=length: connection.fetchval(  # type: ignore[misc]
                "select substr(data, $4 + 1, $5) from attachment_parts"
                " where bank = $1 and id = $2 and part = $3",
                held.bank, held.id, p, o, n,
            ),
        )  # fmt: skip
        if data is None or len(data) != length:
            raise NotFound("the attachment was removed while it was read")
        yield data
        begin += length


def _wire(bank_id: str, row: Mapping[str, Any]) -> dict[str, Any]:
    shown = {
        "id": row["id"],
        "hash": row["hash"].hex(),
        "kind": row["kind"],
        "media_type": row["media_type"],
        "byte_size": row["byte_size"],
        "url": f"/v1/default/banks/{quote(bank_id, safe='')}/attachments/{row['id']}",
    }
    if row["filename"] is not None:
        shown["filename"] = row["filename"]
    return shown


async def of_documents(
    connection: Connection, bank: int, bank_id: str, ids: Iterable[str]
) -> dict[str, dict[str, dict[str, Any]]]:
    """document id -> what it refers to, by id, as the API shows it, in the order of ids."""
    found: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for row in await connection.fetch(
        "select d.document_id, d.id, a.hash, d.kind, d.media_type, a.byte_size, d.filename"
        " from document_attachments d join attachments a using (bank, id)"
        " where d.bank = $1 and d.document_id = any($2) order by d.document_id, d.id",
        bank,
        list(set(ids)),
    ):
        found[row["document_id"]][row["id"]] = _wire(bank_id, row)
    return found


def named(text: str, own: Mapping[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of a document's attachments whose placeholders stand in a text, in its order."""
    return [own[id] for id in dict.fromkeys(PLACEHOLDER.findall(text)) if id in own]


async def show(pool: Pool, bank: int, bank_id: str, results: Sequence[dict[str, Any]]) -> None:
    """Adds `attachments` to memories as the API shows them ({text, document_id, chunk_id}): those
    that their text refers to, and the text that they were made from."""
    own = [one for one in results if one.get("document_id") is not None]
    if not own:
        return

    async def work(connection: Connection) -> tuple[dict[str, Any], dict[str, str]]:
        held = await of_documents(connection, bank, bank_id, [one["document_id"] for one in own])
        wanted = [one.get("chunk_id") for one in own if one["document_id"] in held]
        rows = await connection.fetch(
            "select chunk_id, chunk_text from chunks where bank = $1 and chunk_id = any($2)"
            " and strpos(chunk_text, '⟦hs-att:') > 0",
            bank,
            [id for id in wanted if id is not None],
        )
        return held, {row["chunk_id"]: row["chunk_text"] for row in rows}

    held, texts = await read(pool, work)
    for one in own:
        text = one["text"] + texts.get(one.get("chunk_id") or "", "")
        if shown := named(text, held.get(one["document_id"], {})):
            one["attachments"] = shown
