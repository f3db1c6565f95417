"""Content over its life with a language model: what is asked, what stays, what waits."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any
from uuid import uuid4

import pytest

from retrieval.errors import (
    Conflict,
    DeadlineExceeded,
    FourfoldError,
    ModelCut,
    ModelExhausted,
    ModelFailed,
    ModelRefused,
    NotFound,
    Overloaded,
    RateLimited,
    Unavailable,
)
from retrieval.ingest.context import WriteContext
from retrieval.ingest.extract.by_model import ModelExtractor
from retrieval.ingest.operations import worker
from retrieval.ingest.retain import retain
from retrieval.settings import RetainSettings
from retrieval.store import banks, documents, memories, operation_views, operations
from retrieval.store.database.pool import Pool
from tests.retrieval.llm.scripted import Asked, Said, Scripted
from tests.retrieval.store.servers import Replica, database, deps

pytestmark = pytest.mark.integration


class Quoting(Scripted):
    """Every line of the content is a fact; `then` may answer or raise instead."""

    def __init__(self, then: Callable[[Asked], Any] | None = None, delay_s: float = 0.0) -> None:
        super().__init__()
        self.then = then
        self.delay_s = delay_s
        self.running: dict[str, int] = {}
        self.most_at_once = 0

    async def chat(self, operation: str, messages: Any, **more: Any) -> Said:
        tenant = more.get("tenant", "")
        self.running[tenant] = self.running.get(tenant, 0) + 1
        self.most_at_once = max(self.most_at_once, sum(self.running.values()))
        try:
            if self.delay_s:
                await asyncio.sleep(self.delay_s)
            self.answers.append(self._answer)
            return await super().chat(operation, messages, **more)
        finally:
            self.running[tenant] -= 1

    def _answer(self, asked: Asked) -> Any:
        if self.then is not None and (found := self.then(asked)) is not None:
            return found
        return {"facts": [{"what": line} for line in content(asked).splitlines() if line.strip()]}


def content(asked: Asked) -> str:
    return asked.user.split("Content:\n")[-1].split("\n", 1)[1].rsplit("\n</", 1)[0]


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    """A schema of its own: nothing of other tests is in the queue."""
    async with database(max_size=10) as opened:
        yield opened


@pytest.fixture
def bank() -> str:
    return f"bank-{uuid4().hex[:8]}"


def with_model(pool: Pool, llm: Scripted, **settings: Any) -> WriteContext:
    return deps(
        pool,
        extractor=ModelExtractor(llm),
        settings=RetainSettings(**{"retain_chunk_size": 200, **settings}),
    )


async def units(pool: Pool, bank: str, tenant: str = "default") -> dict[str, str]:
    """Ids by text."""
    found = await memories.list_memories(pool, tenant, bank, limit=1000)
    return {item["text"]: item["id"] for item in found["items"]}


async def put(ingest: WriteContext, bank: str, text: str, **item: Any) -> dict[str, int]:
    return await retain(ingest, "default", bank, [{"content": text, "document_id": "d", **item}])


async def told(pool: Pool, bank: str, id: str) -> dict[str, Any]:
    return await operation_views.get(pool, "default", bank, id)


async def until(holds: Callable[[], Any], within_s: float = 20.0) -> None:
    async with asyncio.timeout(within_s):
        while not await holds():  # noqa: ASYNC110 - others' work
            await asyncio.sleep(0.02)


def lines(count: int, about: str = "kiln") -> str:
    """Each line is a chunk of its own."""
    return "\n".join(f"Line {i:03} says that the {about} is warm. {'It is so. ' * 13}"
                     for i in range(count))  # fmt: skip


# Documents


async def test_a_line_on_top_of_twenty_chunks(pool: Pool, bank: str) -> None:
    llm = Quoting()
    ingest = with_model(pool, llm)
    text = lines(20)
    await put(ingest, bank, text)
    assert len(llm.asked) == 20
    before = await units(pool, bank)
    await put(ingest, bank, f"A new line stands on top.\n{text}")
    assert len(llm.asked) - 20 <= 2
    after = await units(pool, bank)
    assert before.items() <= after.items()
    assert "A new line stands on top." in after
    cut = text.replace("Line 010", "Line ten")  # one in the middle is another now
    asked = len(llm.asked)
    await put(ingest, bank, cut)
    assert len(llm.asked) - asked <= 3
    last = await units(pool, bank)
    assert len(before.items() & last.items()) >= 18


async def test_an_append_costs_what_is_new(pool: Pool, bank: str) -> None:
    llm = Quoting()
    ingest = with_model(pool, llm)
    await put(ingest, bank, lines(12))
    before, asked = await units(pool, bank), len(llm.asked)
    for i in range(3):
        await put(ingest, bank, lines(1, f"oven {i}"), update_mode="append")
    assert len(llm.asked) - asked <= 2 * 3
    after = await units(pool, bank)
    assert len(before.items() & after.items()) >= len(before) - 1
    assert len(after) == 15


async def test_the_same_content_twice_asks_nothing(pool: Pool, bank: str) -> None:
    llm = Quoting()
    ingest = with_model(pool, llm)
    await put(ingest, bank, lines(5))
    before = await units(pool, bank)
    usage = await put(ingest, bank, lines(5), tags=["other"])
    assert (len(llm.asked), usage["total_tokens"]) == (5, 0)
    assert await units(pool, bank) == before
    await put(ingest, bank, lines(5), document_id="again")  # other words of a caller, same chunks
    assert len(llm.asked) == 5


async def test_a_chunk_that_fails_stores_nothing_and_good_ones_are_paid(
    pool: Pool, bank: str
) -> None:
    bad = True

    def then(asked: Asked) -> Any:
        return "I cannot" if bad and "Line 002" in content(asked) else None

    llm = Quoting(then)
    ingest = with_model(pool, llm)
    with pytest.raises(ModelFailed, match="chunk 2 of document 'd'"):
        await put(ingest, bank, lines(4))
    with pytest.raises(NotFound):
        await banks.head(pool, "default", bank)
    paid = [content(asked)[:8] for asked in llm.asked]
    bad = False
    await put(ingest, bank, lines(4))
    again = [content(asked)[:8] for asked in llm.asked[len(paid) :]]
    assert again == ["Line 002"]
    assert len(await units(pool, bank)) == 4


async def test_a_half_of_a_chunk_is_not_paid_twice(pool: Pool, bank: str) -> None:
    bad = True

    def then(asked: Asked) -> Any:
        if len(content(asked)) > 500:
            raise ModelCut("the answer was cut")
        return "I cannot" if bad and "Second" in content(asked) else None

    llm = Quoting(then)
    ingest = with_model(pool, llm, retain_chunk_size=1000)
    text = f"First {'one ' * 100}.\nSecond {'two ' * 100}."
    with pytest.raises(ModelFailed, match="chunk 0 of document 'd'"):
        await put(ingest, bank, text)
    bad = False
    await put(ingest, bank, text)
    halves = [content(asked)[:6] for asked in llm.asked if len(content(asked)) <= 500]
    assert halves == ["First ", "Second", "Second", "Second"]
    assert len(await units(pool, bank)) == 2


async def test_after_a_failure_no_further_chunk_is_begun(pool: Pool, bank: str) -> None:
    def then(asked: Asked) -> Any:
        if "Line 001" in content(asked):
            raise ModelRefused("I would rather not")
        return None

    llm = Quoting(then)
    ingest = deps(
        pool,
        extractor=ModelExtractor(llm, at_once=2),
        settings=RetainSettings(retain_chunk_size=200),
    )
    with pytest.raises(ModelRefused, match="chunk 1"):
        await put(ingest, bank, lines(40))
    assert len(llm.asked) <= 4
    assert llm.most_at_once <= 2


async def test_ten_upserts_of_one_document(pool: Pool, bank: str) -> None:
    llm = Quoting(delay_s=0.01)
    ingest = with_model(pool, llm)
    texts = [lines(2, f"kiln {i}") for i in range(10)]
    await asyncio.gather(*(put(ingest, bank, text) for text in texts))
    found = await documents.get(pool, "default", bank, "d")
    assert found["original_text"] in texts
    assert sorted(await units(pool, bank)) == sorted(
        line.strip() for line in found["original_text"].splitlines()
    )
    assert len(llm.asked) == 20


async def test_two_appenders(pool: Pool, bank: str) -> None:
    llm = Quoting(delay_s=0.02)
    ingest = with_model(pool, llm)
    await put(ingest, bank, "The first line.")
    await asyncio.gather(
        *(put(ingest, bank, f"From {who}.", update_mode="append") for who in ("Ann", "Bo"))
    )
    found = await documents.get(pool, "default", bank, "d")
    assert sorted(found["original_text"].splitlines()) == [
        "From Ann.", "From Bo.", "The first line.",
    ]  # fmt: skip
    assert {"From Ann.", "From Bo."} <= set(await units(pool, bank))


# Operations


async def submit(
    ingest: WriteContext, bank: str, text: str, tenant: str = "default", **item: Any
) -> str:
    answer = await worker.submit(ingest, tenant, bank, [{"content": text, **item}])
    return str(answer["operation_id"])


async def test_what_an_operation_says_of_itself(pool: Pool, bank: str) -> None:
    open_ = asyncio.Event()

    class Waiting(Quoting):
        async def chat(self, *args: Any, **more: Any) -> Said:
            said = await super().chat(*args, **more)
            if len(self.asked) > 2:
                await open_.wait()
            return said

    llm = Waiting(lambda asked: {"facts": [*({"what": f"Ann {i}."} for i in "abcd"), {}]}
                  if "Line 000" in content(asked) else None)  # fmt: skip
    ingest = with_model(pool, llm)
    await put(ingest, bank, "\n".join(lines(4).splitlines()[2:3]), document_id="earlier")
    id = await submit(ingest, bank, lines(4), document_id="d")
    running = worker.Worker(ingest, poll_s=0.02)
    await running.start()
    try:

        async def shown() -> bool:
            progress = (await told(pool, bank, id))["progress"]
            return bool(progress and progress["processed"])

        await until(shown)
        progress = (await told(pool, bank, id))["progress"]
        assert (progress["stage"], progress["total"]) == ("extracting", 4)
        assert progress["at"] > "2020"
        open_.set()

        async def done() -> bool:
            status: str = (await told(pool, bank, id))["status"]
            return status == "completed"

        await until(done)
    finally:
        await running.stop()
    found = await told(pool, bank, id)
    progress = found["progress"]
    assert (progress["stage"], progress["processed"], progress["total"]) == ("storing", 7, 7)
    result = found["result_metadata"]
    assert (result["unit_ids_count"], result["chunks_total"], result["chunks_reused"]) == (7, 4, 1)
    assert result["extraction_errors_count"] == 1
    assert "chunk 0 of document 'd': fact 4" in result["extraction_errors_sample"][0]
    assert result["usage"]["input_tokens"] == 300


@pytest.mark.parametrize(
    ("error", "wait_s"),
    [
        (ModelExhausted("the account has no quota left", 4000.0), 900),
        (Overloaded("it failed lately and is left alone", 30.0), 30),
        (RateLimited("this tenant's budget is used up", 60.0), 60),
        (Unavailable("the language model", "no connection"), 10),
    ],
)
async def test_what_cannot_go_on_for_now_is_parked(
    pool: Pool, bank: str, error: FourfoldError, wait_s: float
) -> None:
    blocked = True

    def then(asked: Asked) -> Any:
        if blocked:
            raise error
        return None

    ingest = with_model(pool, Quoting(then))
    id = await submit(ingest, bank, "Ann likes tea.", document_id="d")
    behind = await submit(ingest, bank, "Bo likes tea.", document_id="d", update_mode="append")
    other = await submit(ingest, bank, "Cy likes tea.", document_id="other")
    one = worker.Worker(ingest)
    for _ in range(6):  # more often than an operation may fail
        assert await one.step()
        found = await told(pool, bank, id)
        assert (found["status"], found["retry_count"]) == ("pending", 0)
        assert str(error) == found["error_message"]
        left = await pool.fetchval(
            "select extract(epoch from next_retry_at - now())::float8 from operations"
            " where operation_id = $1::uuid", id,
        )  # fmt: skip
        assert wait_s - 5 <= left <= wait_s
        await pool.execute("update operations set next_retry_at = null"
                           " where operation_id = $1::uuid", id)  # fmt: skip
    assert (await told(pool, bank, behind))["error_message"] is None  # it waits in its lane
    blocked = False
    await pool.execute("update operations set next_retry_at = null")
    while await one.step():
        pass
    for each in (id, behind, other):
        found = await told(pool, bank, each)
        assert (found["status"], found["error_message"]) == ("completed", None)
    assert len(await units(pool, bank)) == 3


async def test_a_refused_chunk_ends_the_operation_at_once(pool: Pool, bank: str) -> None:
    def then(asked: Asked) -> Any:
        raise ModelRefused("I would rather not")

    ingest = with_model(pool, Quoting(then))
    id = await submit(ingest, bank, "Ann likes tea.", document_id="d")
    await worker.Worker(ingest).step()
    found = await told(pool, bank, id)
    assert (found["status"], found["retry_count"]) == ("failed", 0)
    assert found["error_message"] == "chunk 0 of document 'd': I would rather not"


async def test_a_retain_ends_with_its_time(pool: Pool, bank: str) -> None:
    def then(asked: Asked) -> Any:
        assert asked.more["deadline"] <= time.monotonic() + 5
        raise DeadlineExceeded("the language model's answer")

    ingest = with_model(pool, Quoting(then), retain_wall_timeout_s=5)
    with pytest.raises(DeadlineExceeded):
        await put(ingest, bank, "Ann likes tea.")
    id = await submit(ingest, bank, "Ann likes tea.")
    await worker.Worker(ingest).step()
    found = await told(pool, bank, id)
    assert (found["status"], found["retry_count"]) == ("pending", 1)
    assert "5 s (RETAIN_WALL_TIMEOUT)" in found["error_message"]


async def test_a_cancelled_operation_stops_asking(pool: Pool, bank: str) -> None:
    llm = Quoting(delay_s=0.1)
    ingest = deps(
        pool,
        extractor=ModelExtractor(llm, at_once=1),
        settings=RetainSettings(retain_chunk_size=200),
    )
    id = await submit(ingest, bank, lines(100), document_id="d")
    running = worker.Worker(ingest, poll_s=0.02)
    await running.start()
    try:

        async def begun() -> bool:
            return len(llm.asked) > 2

        await until(begun)
        await operation_views.cancel(pool, "default", bank, id)

        async def idle() -> bool:
            return not running.running

        await until(idle)
        assert len(llm.asked) < 50
    finally:
        await running.stop()
    assert (await told(pool, bank, id))["status"] == "cancelled"
    assert await units(pool, bank) == {}


async def test_killed_in_the_middle_nothing_is_lost_or_paid_twice(pool: Pool, bank: str) -> None:
    """The worker vanishes at every chunk of an operation, as by kill -9: it gives nothing back."""
    seen: list[str] = []
    last: int | None = None
    reached = asyncio.Event()

    class Mortal(Quoting):
        async def chat(self, *args: Any, **more: Any) -> Said:
            if len(seen) == last:  # what was answered before is kept by now
                reached.set()
                await asyncio.Event().wait()
            said = await super().chat(*args, **more)
            seen.append(content(self.asked[-1])[:8])
            return said

    llm = Mortal()
    ingest = deps(
        pool,
        extractor=ModelExtractor(llm, at_once=1),
        settings=RetainSettings(retain_chunk_size=200),
    )
    id = await submit(ingest, bank, lines(5), document_id="d")
    for answered in (2, 4):
        last = answered
        claimed = await operations.claim(pool, lease_s=0.0)
        assert claimed is not None
        task = asyncio.create_task(worker.HANDLERS["retain"](ingest, claimed))
        await reached.wait()
        reached.clear()
        task.cancel()
        with suppress(BaseException):
            await task
        await pool.execute("update document_turns set leased_until = now()")
    last = None
    await worker.Worker(ingest).step()
    assert (await told(pool, bank, id))["status"] == "completed"
    assert sorted(set(seen)) == sorted(seen) == [f"Line {i:03}" for i in range(5)]
    found = await units(pool, bank)
    assert len(found) == 5
    assert len((await Replica.of(pool, await banks.head(pool, "default", bank))).ids()) == 5
    with pytest.raises(Conflict):
        await operation_views.retry(pool, "default", bank, id)


async def test_a_small_tenant_does_not_wait_for_anothers_backlog(pool: Pool) -> None:
    llm = Quoting(delay_s=0.05)
    ingest = with_model(pool, llm)
    for i in range(60):
        await submit(ingest, "big", lines(3, f"kiln {i}"), "large")
    running = worker.Worker(ingest, slots=8, poll_s=0.02)
    await running.start()
    try:

        async def busy() -> bool:
            return len(running.running) >= 6

        await until(busy)
        assert len(running.running) == 6  # a quarter is left to others
        began = time.monotonic()
        await submit(ingest, "small", "Ann likes tea.", "little")

        async def stored() -> bool:
            with suppress(NotFound):
                return bool(await units(pool, "small", "little"))
            return False

        await until(stored)
        took_s = time.monotonic() - began
        waiting = await pool.fetchval("select count(*) from operations where status = 'pending'")
        assert waiting > 20, "the backlog is still there"
        assert took_s < 3
    finally:
        await running.stop()
    left = await pool.fetchval("select count(*) from operations where status = 'processing'")
    assert left == 0  # what was in hand is put back


def test_lines_are_chunks() -> None:
    assert all(150 < len(line) < 200 for line in lines(3).splitlines())
    assert re.match(r"Line 000", lines(1))


# Restatements


async def marks(pool: Pool, bank: str) -> dict[tuple[str, str], str | None]:
    """By document and text, the document whose memory is restated."""
    head = await banks.head(pool, "default", bank)
    rows = await pool.fetch(
        "select m.document_id, m.text, o.document_id as restated from memory_units m"
        " left join memory_units o on o.bank = m.bank and o.id = m.restates where m.bank = $1",
        head.bank,
    )
    return {(row["document_id"], row["text"]): row["restated"] for row in rows}


async def test_what_another_document_said_before_is_marked(pool: Pool, bank: str) -> None:
    ingest = with_model(pool, Quoting())
    await put(ingest, bank, "Ann likes tea.\nBo likes tea.", document_id="first", tags=["x"])
    await put(ingest, bank, "ann  likes TEA", document_id="second", tags=["x"])
    await put(ingest, bank, "Ann likes tea.", document_id="third", tags=["x"])
    await put(ingest, bank, "Ann likes tea.", document_id="other", tags=["y"])
    await put(ingest, bank, "Ann likes tea!\nCy likes tea.", document_id="fourth", tags=["x"])
    found = await marks(pool, bank)
    assert found["second", "ann  likes TEA"] == "first"
    assert found["third", "Ann likes tea."] == "first"  # not what only restates it
    assert found["fourth", "Ann likes tea!"] == "first"
    others = {key: mark for key, mark in found.items() if "nn" not in key[1]}
    assert set(others.values()) == {None}
    assert found["other", "Ann likes tea."] is None  # of others, by its tags
    assert found["first", "Ann likes tea."] is None


async def test_a_restatement_outlives_what_it_restates(pool: Pool, bank: str) -> None:
    ingest = with_model(pool, Quoting())
    for document in ("first", "second"):
        await put(ingest, bank, "Ann likes tea.", document_id=document)
    await put(ingest, bank, "Bo likes tea.", document_id="first")  # it says so no more
    await put(ingest, bank, "Ann likes tea.", document_id="third")
    found = await marks(pool, bank)
    assert found["third", "Ann likes tea."] == "second"
    await put(ingest, bank, "Ann likes tea.", document_id="second", tags=["new"])
    found = await marks(pool, bank)
    assert found["second", "Ann likes tea."] is None


async def test_documents_of_one_write_restate_each_other_once(pool: Pool, bank: str) -> None:
    ingest = with_model(pool, Quoting())
    items = [{"content": "Ann likes tea.", "document_id": name} for name in ("a", "b", "c")]
    await retain(ingest, "default", bank, items)
    found = await marks(pool, bank)
    assert [found[name, "Ann likes tea."] for name in ("a", "b", "c")] == [None, "a", "a"]
