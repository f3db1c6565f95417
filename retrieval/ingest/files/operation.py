"""The operation that turns an uploaded file into a retain of its text.

The bytes wait in the database until they are converted. The conversion's end, the queueing of the
retain and the removal of the bytes are one transaction, so that a crash leaves all or nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import IO, Any, Final
from uuid import uuid4

from retrieval.errors import InvalidInput, NotFound, TooMuch
from retrieval.ingest import attached
from retrieval.ingest.context import WriteContext
from retrieval.ingest.documents.planning import strategy
from retrieval.ingest.files.conversion import NotConverted, converted
from retrieval.ingest.files.detection import Kind
from retrieval.ingest.items import DOCUMENT_LIMIT, parse
from retrieval.settings import RetainSettings
from retrieval.store import banks, files, operations
from retrieval.store.attachments import BYTES_MOST
from retrieval.store.database.pool import Connection, Pool, read, write
from retrieval.store.operations import Claim
from retrieval.store.waiting import check_room

FILE: Final = "file_convert_retain"
RETAIN: Final = "retain"


@dataclass(frozen=True, slots=True)
class FileToRetain:
    """One file to retain. `item`: what a retain's item says beside its content. `media_type`: as it
    was declared."""

    file: IO[bytes]
    name: str
    size: int
    kind: Kind
    item: Mapping[str, Any]
    media_type: str = ""


async def submit(
    pool: Pool,
    tenant: str,
    bank_id: str,
    uploads: Sequence[FileToRetain],
    settings: RetainSettings,
    *,
    waiting_bytes: int,
    keeps: bool = False,
) -> list[str]:
    """Queues the files, one operation each, in one transaction: the operations' ids, in order.

    The bank is made if there is none. InvalidInput names the file and the field; RateLimited if the
    tenant has too much waiting. `keeps`: the files stay, attached to their documents; TooMuch for
    one that is larger than an attachment may be.
    """
    banks.check_id(bank_id)
    now = datetime.now(UTC)
    items = []
    for place, upload in enumerate(uploads):
        if keeps and upload.size > BYTES_MOST:
            raise TooMuch(
                f"{upload.name}: {upload.size} bytes, at most {BYTES_MOST >> 20} MB are kept",
                "files",
            )
        item = {key: value for key, value in upload.item.items() if value is not None}
        if "document_id" not in item:
            item["document_id"] = f"file_{uuid4()}"
        try:
            parse([{**item, "content": "x"}], None, now, 1)
        except InvalidInput as error:
            where = f"files_metadata[{place}]"
            field = (error.field or where).replace("items[0]", where)
            raise type(error)(str(error).replace("items[0]", where), field) from None
        items.append(item)
    named = [item["document_id"] for item in items]
    if len(set(named)) < len(named):
        raise InvalidInput("two files have the same document_id", "files_metadata")

    async def work(connection: Connection) -> list[str]:
        head = await banks.ensure(connection, tenant, bank_id)
        own = settings.with_overrides(head.config)
        for item in items:
            strategy(own, item.get("strategy"))
        await files.check_room(connection, tenant, sum(u.size for u in uploads), waiting_bytes)
        await check_room(connection, head.bank)
        made = []
        for upload, item in zip(uploads, items, strict=True):
            payload = {
                "name": upload.name,
                "kind": upload.kind,
                "bytes": upload.size,
                "item": item,
                "now": now.isoformat(),
                "keeps": keeps,
                "media_type": upload.media_type,
            }
            id, _ = await operations.create(
                connection,
                head.bank,
                FILE,
                payload,
                items_count=1,
                document_id=item["document_id"],
                lanes=[item["document_id"]],
            )
            await files.keep(connection, head.bank, id, upload.file)
            made.append(str(id))
        return made

    return await write(pool, work)


async def convert_retain(deps: WriteContext, claimed: Claim) -> None:
    """Converts one file and queues the retain of its text, in the file's place in its lane."""
    payload, pool = claimed.payload, deps.pool
    bank = await read(
        pool, lambda connection: banks.head_of(connection, claimed.tenant, claimed.bank_id)
    )
    deps.progress.at("converting", 0, 1)
    with tempfile.TemporaryFile() as held:
        if not await files.fetch(pool, bank.bank, claimed.operation_id, held):
            raise NotFound("the file is no longer kept: send it again")
        digest = await asyncio.to_thread(_digest, held) if payload.get("keeps") else None
        try:
            content = await converted(held, payload["kind"])
        except NotConverted as error:
            raise InvalidInput(f"{payload['name']}: {error}") from None
    if len(content) > DOCUMENT_LIMIT:
        raise InvalidInput(
            f"{payload['name']}: has {len(content)} characters of text, a document may have"
            f" {DOCUMENT_LIMIT}"
        )
    item = {**payload["item"], "content": content}
    if digest is not None:
        item["kept_file"] = attached.told(
            payload["name"], payload["media_type"], digest, payload["bytes"]
        )
    retaining = {"items": [item], "document_tags": [], "now": payload["now"]}
    id = uuid4()

    async def work(connection: Connection) -> None:
        told = {"operation_id": str(id), "kind": payload["kind"], "characters": len(content)}
        await operations.finish(connection, claimed, told)
        await operations.create(
            connection,
            bank.bank,
            RETAIN,
            retaining,
            operation_id=id,
            items_count=1,
            document_id=item["document_id"],
            lanes=[item["document_id"]],
            place=claimed.place,
        )
        if digest is None:
            await files.let_go(connection, bank.bank, claimed.operation_id)
        else:
            await files.hand_over(connection, bank.bank, claimed.operation_id, id)

    await write(pool, work)


def _digest(file: IO[bytes]) -> bytes:
    digest = hashlib.sha256()
    file.seek(0)
    while data := file.read(files.SLICE):
        digest.update(data)
    file.seek(0)
    return digest.digest()
