"""Every route with its worst inputs: no fault of ours, no long hold of the event loop, no memory.

Whatever a request says, the loop that serves everybody is never held longer than HOLD_S at a time,
the answer is no 500, and the process does not grow beyond GROWTH_BYTES.
"""

from __future__ import annotations

import ctypes
import gc
import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import psutil
import pytest

from serve.settings import Settings
from tests.hold import longest_hold
from tests.hostile.catalogue import BODIES, NUMBERS, QUERIES, SEGMENTS, STRUCTURES, TEXTS
from tests.hostile.conftest import BANK
from tests.serve.conftest import Live
from tests.serve.test_bad_input import ALL_RIGHT, Operation, fields, operations, put

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]

HOLD_S = 0.05
TEXT_S = 6e-9
"""More for each byte of a body: one long text is parsed as one piece, which keeps the interpreter's
lock for a nanosecond a byte, and for several where the machine is busy."""
GROWTH_BYTES = 256 * 2**20
TRIES = 3
"""What holds the loop holds it every time; a machine that pauses does not."""

SHORT = 4_000
"""Characters of a text that is stored or asked at once; longer ones are tried as well."""
QUEUED = {"retain_memories"}
"""Long texts of these are queued, not worked on here."""
LARGE = {"retain_memories", "import_memories"}
SERVER = Settings().server


@dataclass(slots=True)
class Watched:
    """Sends requests and notes those that did harm."""

    live: Live
    harm: list[str]
    count: int = 0

    async def send(self, what: str, method: str, url: str, **sent: Any) -> None:
        longest = float("inf")
        allowed = HOLD_S + TEXT_S * len(sent.get("content") or b"")
        for _ in range(TRIES):
            async with longest_hold() as held:
                answer = await self.live.http.request(method, url, **sent)
            longest = min(longest, held.longest)
            if longest <= allowed:
                break
        self.count += 1
        if longest > allowed:
            self.harm.append(f"{what}: the loop was held {longest * 1000:.0f} ms")
        if answer.status_code >= 500 and answer.status_code not in (501, 503):
            self.harm.append(f"{what}: {answer.status_code} {answer.text[:200]}")
        if answer.status_code >= 400 and not _reason(answer.json()):
            self.harm.append(f"{what}: {answer.status_code} says nothing")


def _reason(body: dict[str, Any]) -> Any:
    """Why a request is refused: as the HTTP API says it, or the protocol of agents."""
    return body.get("detail") or (body.get("error") or {}).get("message")


def described() -> list[Operation]:
    from serve import app

    return operations(app.create(Settings()).openapi())


OPERATIONS = described()
RIGHT = {
    **ALL_RIGHT,
    "dry_run_extract_memories": {
        "content": "Ann keeps the harbour log.",
        "context": "x",
        "timestamp": "2025-01-01",
        "agent_name": "a",
        "retain_mission": "m",
        "retain_extraction_mode": "chunks",
        "retain_custom_instructions": "i",
        "retain_extract_causal_links": True,
        "retain_chunk_size": 3000,
        "entity_labels": [{"name": "PERSON"}],
        "entities_allow_free_form": True,
        "llm_output_language": "English",
    },
    "preview_prompt": {"operation": "retain"},
    "create_mental_model": {"id": "m", "name": "n", "source_query": "q", "tags": ["a"]},
    "create_knowledge_page": {"name": "n", "source_query": "q"},
}
WITH_BODY = [one for one in OPERATIONS if one.id in RIGHT]


def json_bytes(body: Any) -> bytes:
    return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")


def limit_of(operation: Operation) -> int:
    large = operation.id in LARGE
    return SERVER.max_body_bytes if large else SERVER.max_small_body_bytes


def nasty(size: int) -> Iterator[tuple[str, Any]]:
    for name, text in TEXTS.items():
        yield name, text * max(1, size // len(text.encode()))
    for name, make in STRUCTURES.items():
        yield name, make(size)
    yield from NUMBERS.items()


HEADERS = {"content-type": "application/json"}
_HERE = "a value that stands in no body"


def kept_bytes() -> int:
    """What the process holds once everything that is free has been given back to the system."""
    gc.collect()
    if sys.platform == "linux":
        with suppress(AttributeError):  # another C library
            ctypes.CDLL(None).malloc_trim(0)
    return int(psutil.Process().memory_info().rss)


@pytest.fixture
def watched(hostile: Live) -> Iterator[Watched]:
    before = kept_bytes()
    found = Watched(hostile, [])
    yield found
    growth = kept_bytes() - before
    assert found.count
    assert not found.harm, f"{len(found.harm)} of {found.count}:\n" + "\n".join(found.harm)
    assert growth <= GROWTH_BYTES, f"{growth >> 20} MiB more"


@pytest.mark.parametrize("operation", [pytest.param(one, id=one.id) for one in WITH_BODY])
async def test_every_field_with_short_values(watched: Watched, operation: Operation) -> None:
    right, url = RIGHT[operation.id], operation.url(BANK)
    for path in fields(right):
        for name, value in nasty(SHORT):
            body = json_bytes(put(right, path, value))
            what = f"{path} = {name}"
            await watched.send(what, operation.method, url, content=body, headers=HEADERS)


@pytest.mark.parametrize("operation", [pytest.param(one, id=one.id) for one in WITH_BODY])
async def test_top_fields_with_the_longest_values(watched: Watched, operation: Operation) -> None:
    right, url = RIGHT[operation.id], operation.url(BANK)
    if operation.id in QUEUED:
        right = {**right, "async": True}
    room = limit_of(operation) - len(json_bytes(right)) - 1_000
    paths = [path for path in fields(right) if len(path) == 1 or operation.id in LARGE]
    around = [json_bytes(put(right, path, _HERE)).split(json_bytes(_HERE)) for path in paths]
    for name, value in nasty(room // 2):  # escapes may double a text
        text = json_bytes(value)
        for path, (before, after) in zip(paths, around, strict=True):
            body, what = before + text + after, f"{path} = long {name}"
            await watched.send(what, operation.method, url, content=body, headers=HEADERS)


@pytest.mark.parametrize("operation", [pytest.param(one, id=one.id) for one in WITH_BODY])
async def test_whole_bodies(watched: Watched, operation: Operation) -> None:
    limit, url = limit_of(operation), operation.url(BANK)
    for name, make in BODIES.items():
        for size in (1_000, 64_000, limit, limit + 1):
            sent = {"content": make(size), "headers": HEADERS}
            await watched.send(f"{name} of {size}", operation.method, url, **sent)


@pytest.mark.parametrize("operation", [pytest.param(one, id=one.id) for one in OPERATIONS])
async def test_addresses(watched: Watched, operation: Operation) -> None:
    sent = {"json": RIGHT[operation.id]} if operation.id in RIGHT else {}
    url = operation.url(BANK)
    for parameter in operation.queries:
        for name, value in QUERIES.items():
            asked = f"{url}?{parameter['name']}={value}"
            await watched.send(f"{parameter['name']}={name}", operation.method, asked, **sent)
    places = [part for part in operation.path.split("/") if part.startswith("{")]
    for place in places:
        for name, value in SEGMENTS.items():
            if "bank_id" in place and operation.id == "delete_bank":
                continue
            odd = replace(operation, path=operation.path.replace(place, value))
            await watched.send(f"{place} = {name}", operation.method, odd.url(BANK), **sent)
    many = "&".join(f"{'x' * 10}{i}=1" for i in range(1_500))
    await watched.send("many parameters", operation.method, f"{url}?{many}", **sent)
    await watched.send(
        "many headers", operation.method, url, headers={f"x-{i}": "y" for i in range(200)}, **sent
    )


def test_nothing_was_left_out() -> None:
    """Each operation that reads a body is in the catalogue."""
    with_body = {one.id for one in OPERATIONS if one.method in ("POST", "PUT", "PATCH")}
    without = {"reflect", "regenerate_entity_observations", "retry_operation", "reprocess_document"}
    without |= {"test_bank_llm", "recover_consolidation"}
    without |= {"trigger_consolidation", "preview_consolidation"}  # need a model first
    without |= {f"{does}_mental_model" for does in ("refresh", "dry_run_refresh", "clear")}
    without |= {"clone_bank", "export_bank_transfer", "export_documents"}
    without |= {"test_webhook", "retry_webhook_delivery"}
    without |= {"import_bank_transfer", "import_documents", "file_retain"}  # files: tests/serve
    assert with_body - without <= set(RIGHT)
