"""Images and files between the texts of a content: kept once, shown with what refers to them, gone
with their document."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from retrieval.errors import InvalidInput, NotFound, TooMuch
from retrieval.ingest.attached import unfold
from retrieval.ingest.context import WriteContext
from retrieval.ingest.curation import delete_document
from retrieval.ingest.documents.chunking import layout
from retrieval.ingest.importing import import_memories
from retrieval.ingest.retain import retain
from retrieval.store import attachments, banks, chunks, documents, memories
from retrieval.store.attachments import placeholder
from retrieval.store.database.pool import Pool
from tests.retrieval.store.servers import deps

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 9000
T = "t"


def block(data: bytes, media_type: str = "image/png", name: str | None = None) -> dict[str, Any]:
    source = {"type": "base64", "media_type": media_type, "data": base64.b64encode(data).decode()}
    if media_type.startswith("image/"):
        return {"type": "image", "source": source}
    return {"type": "file", "source": source, "filename": name}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


@pytest.mark.unit
def test_blocks_become_a_text_with_placeholders() -> None:
    content = [text("Look:"), block(PNG), text("and"), block(b"x", "Text/CSV", "../a\u202e/b.csv")]
    said, held = unfold([*content, block(PNG)], "items[0]", 1000)
    one, other = held
    assert (one.kind, one.media_type, one.byte_size) == ("image", "image/png", len(PNG))
    assert (other.kind, other.media_type, other.filename) == ("file", "text/csv", "b.csv")
    marks = [placeholder(each.id) for each in held]
    assert said == f"Look:\n{marks[0]}\nand\n{marks[1]}\n{marks[0]}"
    wrong: list[tuple[Any, str, type[Exception]]] = [
        ([block(PNG)], "has no text", InvalidInput),
        ([text("a"), {"type": "audio"}], r"content\[1\]", InvalidInput),
        ([text("a"), block(b"")], "base64", InvalidInput),
        ([text("a"), {"type": "image", "source": {"type": "url"}}], "base64", InvalidInput),
        ([text("a"), {**block(b"x", "text/plain"), "type": "image"}], "image", InvalidInput),
        ([text("a"), block(b"x", "plain")], "media type", InvalidInput),
        ([text("a"), block(b"x", "a/b\r\nSet-Cookie: x")], "media type", InvalidInput),
        ([text("a"), block(bytes((20 << 20) + 1))], "20 MB", TooMuch),
        ([text("a"), *(block(bytes([i])) for i in range(51))], "more than 50", TooMuch),
    ]
    for blocks, reason, kind in wrong:
        with pytest.raises(kind, match=reason):
            unfold(blocks, "items[0]", 1000)


@pytest.mark.unit
def test_a_chunk_has_so_many_of_them() -> None:
    marks = [placeholder(f"{i:012x}") for i in range(20)]
    said = "Pictures:\n" + "\n".join(marks)
    cut = layout(said, 3000, attached_most=8).pieces(0, len(said))
    assert "".join(piece.text for piece in cut) == said
    assert [len(attachments.PLACEHOLDER.findall(piece.text)) for piece in cut] == [8, 8, 4]


async def held(pool: Pool, bank_id: str) -> int:
    bank = (await banks.head(pool, T, bank_id)).bank
    found: int = await pool.fetchval("select count(*) from attachments where bank = $1", bank)
    return found


@pytest.mark.integration
async def test_kept_shown_and_gone_with_the_document(pool: Pool) -> None:
    context: WriteContext = deps(pool)
    said = [
        text("The mill burns."),
        block(PNG),
        text("See the list."),
        block(b"a,b", "text/csv", "l"),
    ]
    await retain(context, T, "b", [{"content": said, "document_id": "d"}])
    shown = await documents.get(pool, T, "b", "d")
    image = next(one for one in shown["attachments"] if one["kind"] == "image")
    assert image["url"] == f"/v1/default/banks/b/attachments/{image['id']}"
    assert image["byte_size"] == len(PNG)
    assert image["hash"].startswith(image["id"])
    (chunk,) = (await chunks.of_document(pool, T, "b", "d"))["items"]
    assert [one["kind"] for one in chunk["attachments"]] == ["image", "file"]
    assert (await chunks.get(pool, T, chunk["chunk_id"]))["attachments"] == chunk["attachments"]
    (memory,) = (await memories.list_memories(pool, T, "b"))["items"]
    assert (await memories.get(pool, T, "b", memory["id"]))["attachments"] == chunk["attachments"]
    stored = await attachments.find(pool, T, "b", image["id"])
    assert b"".join([part async for part in attachments.chunks(pool, stored)]) == PNG
    for tenant, bank, id in ((T, "b", "0" * 12), (T, "b", "../x"), ("u", "b", image["id"])):
        with pytest.raises(NotFound, match="no such attachment"):
            await attachments.find(pool, tenant, bank, id)

    # By another document the same bytes are kept once; by hand a placeholder shows nothing.
    await retain(context, T, "b", [{"content": [text("Again."), block(PNG)], "document_id": "e"}])
    await import_memories(context, T, "b", [{"text": f"Ha {placeholder(image['id'])}"}])
    assert await held(pool, "b") == 2
    # What the new text still refers to stays, what it does not goes.
    again = f"It stood here: {placeholder(image['id'])}"
    await retain(context, T, "b", [{"content": again, "document_id": "d"}])
    assert [one["id"] for one in (await documents.get(pool, T, "b", "d"))["attachments"]] == [
        image["id"]
    ]
    await delete_document(context, T, "b", "d")
    assert await held(pool, "b") == 1
    await delete_document(context, T, "b", "e")
    assert await held(pool, "b") == 0
    number = (await banks.head(pool, T, "b")).bank
    left = await pool.fetchval("select count(*) from attachment_parts where bank = $1", number)
    assert left == 0
