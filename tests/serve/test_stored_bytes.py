"""A tenant's limit of stored bytes: checked inside each write, right to the byte."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from retrieval.store import limits
from retrieval.store.tenants import DEFAULT_TENANT
from tests.serve.conftest import B, Live

pytestmark = pytest.mark.integration

COUNTED = """
select b.stored_bytes,
    coalesce((select sum(2048 + octet_length(text) + coalesce(octet_length(context), 0)
        + coalesce(pg_column_size(metadata), 0)) from memory_units m where m.bank = b.bank), 0)
    + coalesce((select sum(256 + coalesce(octet_length(original_text), 0)
        + pg_column_size(metadata) + pg_column_size(retain_params))
        from documents d where d.bank = b.bank), 0)
    + coalesce((select sum(256 + octet_length(chunk_text)) from chunks c where c.bank = b.bank), 0)
    as counted
from banks b where bank_id = $1"""


@pytest_asyncio.fixture(loop_scope="session")
async def unlimited(live: Live) -> AsyncIterator[None]:
    yield
    await limits.change(live.services.pool, DEFAULT_TENANT, {"max_stored_bytes": None})


async def stored(live: Live, bank: str) -> int:
    row = await live.services.pool.fetchrow(COUNTED, bank)
    assert row["stored_bytes"] == row["counted"]
    found: int = row["stored_bytes"]
    return found


async def retain(live: Live, bank: str, **item: Any) -> int:
    answer = await live.http.post(f"{B}/{bank}/memories", json={"items": [item]})
    return answer.status_code


async def test_the_sum_follows_every_kind_of_write(live: Live) -> None:
    bank = "counted"
    await retain(live, bank, content="The harbour is deep. " * 400, document_id="d", context="sea")
    first = await stored(live, bank)
    assert first > 8_000
    await retain(live, bank, content="The harbour is deep.", document_id="d")
    second = await stored(live, bank)
    assert second < first
    await live.import_memories(
        bank, {"key": "k", "text": "An imported one", "metadata": {"a": "b"}}
    )
    assert await stored(live, bank) > second
    (memory,) = [
        m
        for m in (await live.http.get(f"{B}/{bank}/memories/list")).json()["items"]
        if m["text"] == "An imported one"
    ]
    for change in ({"text": "A longer text of it"}, {"state": "invalidated"}, {"state": "valid"}):
        answer = await live.http.patch(f"{B}/{bank}/memories/{memory['id']}", json=change)
        assert answer.status_code == 200, answer.text
        await stored(live, bank)
    assert (await live.http.delete(f"{B}/{bank}/documents/d")).status_code == 200
    await stored(live, bank)
    assert (await live.http.delete(f"{B}/{bank}/memories")).status_code == 200
    assert await stored(live, bank) == 0


@pytest.mark.usefixtures("unlimited")
async def test_a_write_beyond_the_limit_leaves_nothing(live: Live) -> None:
    pool, text = live.services.pool, "The lighthouse burns. " * 100
    assert await retain(live, "bounded", content=text, document_id="first") == 200
    held = await stored(live, "bounded")
    total = await pool.fetchval(
        "select sum(stored_bytes)::bigint from banks where tenant_id = 'default'"
    )
    await limits.change(pool, DEFAULT_TENANT, {"max_stored_bytes": total + 3000})
    body = {"items": [{"content": text, "document_id": "second"}]}
    answer = await live.http.post(f"{B}/bounded/memories", json=body)
    assert answer.status_code == 413
    assert f"may store {total + 3000} bytes" in answer.json()["detail"]
    assert await stored(live, "bounded") == held
    memories = {"memories": [{"key": "k", "text": text}, {"key": "l", "text": text}]}
    answer = await live.http.post(f"{B}/bounded/memories/import", json=memories)
    assert answer.status_code == 413
    assert await retain(live, "another-bank", content=text) == 413  # all banks count together
    assert (await live.recall("bounded", "What burns?"))["results"]  # reading goes on
    # a tenant that holds too much already may delete, and then write again
    await limits.change(pool, DEFAULT_TENANT, {"max_stored_bytes": 1})
    assert await retain(live, "bounded", content="A short one.") == 413
    assert (await live.http.delete(f"{B}/bounded/documents/first")).status_code == 200
    await limits.change(pool, DEFAULT_TENANT, {"max_stored_bytes": 0})
    assert await retain(live, "bounded", content=text) == 200


@pytest.mark.usefixtures("unlimited")
async def test_what_waits_in_the_queue_counts_as_well(live: Live) -> None:
    pool = live.services.pool
    await retain(live, "queueing", content="The mill turns.", document_id="first")
    bank = await pool.fetchval("select bank from banks where bank_id = 'queueing'")
    total = await pool.fetchval(
        "select sum(stored_bytes)::bigint from banks where tenant_id = 'default'"
    )
    words = " ".join(hex(n) for n in range(100_000, 102_000))  # does not compress to nothing
    await pool.execute(
        "insert into operations (operation_id, bank, type, status, payload)"
        " values (gen_random_uuid(), $1, 'retain', 'failed', $2)",
        bank,
        {"items": [{"content": words}]},
    )
    await limits.change(pool, DEFAULT_TENANT, {"max_stored_bytes": total + 4_000})
    queued = {"async": True, "items": [{"content": "short", "document_id": "second"}]}
    answer = await live.http.post(f"{B}/queueing/memories", json=queued)
    assert answer.status_code == 413
    assert f"may store {total + 4_000} bytes" in answer.json()["detail"]
    assert await retain(live, "queueing", content="short", document_id="third") == 413
    listed = (await live.http.get(f"{B}/queueing/operations")).json()["operations"]
    assert [one["status"] for one in listed] == ["failed"]
    gone = await live.http.delete(f"{B}/queueing/operations/{listed[0]['id']}/delete")
    assert gone.status_code == 200, gone.text
    answer = await live.http.post(f"{B}/queueing/memories", json=queued)
    assert answer.status_code == 200, answer.text
