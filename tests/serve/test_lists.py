"""Lists: each page begins where the one before ended, and `q` finds what recall finds."""

from __future__ import annotations

from typing import Any

import pytest
import pytest_asyncio

from retrieval.store import containing, glance, keyset
from retrieval.store.database.pool import Connection, read
from retrieval.text.folding import fold
from retrieval.text.language import bare
from tests.serve.conftest import B, Live

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]

BANK = "paged"
LISTS = ("memories/list", "entities", "documents")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def paged(live: Live) -> Live:
    """Eleven memories: some without a time, some of one time, of three documents."""
    await live.import_memories(
        BANK,
        *(
            {
                "key": f"k{i}",
                "text": f"The kiln {i} is hot.",
                "entities": [f"Potter {i}", *(["Ann"] if i % 2 else [])],
                "document_id": f"d{i % 3}",
                **({"mentioned_at": f"2026-03-{1 + i // 2:02}"} if i % 4 else {}),
            }
            for i in range(11)
        ),
    )
    return live


async def get(live: Live, path: str, status: int = 200, **params: Any) -> dict[str, Any]:
    answer = await live.http.get(f"{B}/{BANK}/{path}", params=params)
    assert answer.status_code == status, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def walked(live: Live, path: str, **params: Any) -> list[Any]:
    items: list[Any] = []
    more: dict[str, Any] = {}
    while True:
        page = await get(live, path, limit=3, count="upto", **params, **more)
        items += page["items"]
        assert (page["total_is_estimate"], page["limit"]) == (False, 3)
        if page["next"] is None:
            return items
        assert len(page["items"]) == 3
        more = {"cursor": page["next"]}


@pytest.mark.parametrize("path", LISTS)
async def test_pages_are_the_list(paged: Live, path: str) -> None:
    whole = await get(paged, path, limit=100)
    assert "next" not in whole
    assert len(whole["items"]) == whole["total"] >= 3
    assert await walked(paged, path) == whole["items"]
    some = await get(paged, path, limit=100, q="1")
    assert 0 < some["total"] < whole["total"]
    assert await walked(paged, path, q="1") == some["items"]


async def test_pages_by_a_time_of_ones_own(paged: Live) -> None:
    params: dict[str, Any] = {"time_field": "mentioned_at", "start_date": "2026-03-02"}
    whole = await get(paged, "memories/list", limit=100, **params)
    assert await walked(paged, "memories/list", **params) == whole["items"]


async def test_what_is_written_meanwhile_moves_no_page(paged: Live) -> None:
    first = await get(paged, "memories/list", limit=3, count="upto")
    rest = (await get(paged, "memories/list", limit=100))["items"][3:]
    await paged.import_memories(
        BANK, {"key": "new", "text": "A new kiln.", "mentioned_at": "2100-01-01"}
    )
    later = await get(paged, "memories/list", limit=100, count="upto", cursor=first["next"])
    assert later["items"] == rest
    assert later["total"] == len(rest) + 4


async def test_a_long_list_is_counted_so_far(paged: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    assert glance.MOST == 10_000
    monkeypatch.setattr("retrieval.store.keyset.MOST", 4)
    page = await get(paged, "memories/list", limit=2, count="upto")
    assert (page["total"], page["total_is_estimate"]) == (4, True)


@pytest.mark.parametrize("path", LISTS)
@pytest.mark.parametrize("cursor", ["x", "bnVsbA", "W10", "WzEsMiwzLDRd"])
async def test_a_cursor_of_nobody(paged: Live, path: str, cursor: str) -> None:
    told = await get(paged, path, 400, cursor=cursor, count="upto")
    assert "cursor" in str(told["detail"])


@pytest.mark.parametrize("path", LISTS)
async def test_a_search_in_pages_ends_in_time(
    paged: Live, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyset, "SEARCH_S", 0.0)
    told = await get(paged, path, 504, q="kiln", count="upto")
    assert told["stage"] == "search"
    await get(paged, path, q="kiln")
    await get(paged, path, count="upto")


FOLDED = {
    "Café Müller": "cafe muller",
    "CAFE\u0301 Zoe\u0308": "café zoe",
    "Straße 5": "strasse 5",
    "Ge\u00adsamtkonzept": "GESAMTKONZEPT",
    "ΑΘΉΝΑ": "αθηνα",
    "ЁЛКА и чай": "елка и чай",
    "İzmir": "izmir",
    "Room １０１": "room 101",
    "ｱﾘｽ": "アリス",
    "أحمد": "احمد",
    "مُحَمَّد": "محمد",
    "שָׁלוֹם": "שלום",
    "O’Brien": "o'brien",
    "Đà Nẵng": "da nang",
    "Łódź": "lodz",
    "Æsir": "aesir",
    "A_B%C": "a_b%c",
}


async def test_lists_find_what_recall_finds(live: Live) -> None:
    bank = "folded-lists"
    made = [
        {"key": f"k{i}", "text": f"Of {name}.", "entities": [name], "document_id": f"{name} {i}"}
        for i, name in enumerate(FOLDED)
    ]
    await live.import_memories(bank, *made)
    for i, name in enumerate(FOLDED):
        answer = await live.http.put(f"{B}/{bank}-{i}", json={"name": name})
        assert answer.status_code == 200, answer.text
    lists = {
        "": ("banks", "name"),
        f"/{bank}/entities": ("items", "canonical_name"),
        f"/{bank}/memories/list": ("items", "text"),
        f"/{bank}/documents": ("items", "id"),
    }
    for name, asked in FOLDED.items():
        for path, (field, shown) in lists.items():
            for q in (name, asked, asked.upper()):
                answer = await live.http.get(f"{B}{path}", params={"q": q})
                found = [one[shown] for one in answer.json()[field]]
                assert len(found) == 1, (q, path, found)
                assert name in found[0]


async def test_names_are_folded_by_the_database_as_here(live: Live) -> None:
    texts = [
        fold(text) for text in [*FOLDED, *FOLDED.values(), "йод Йод и\u0306", "ﬀ ŒUVRE", "a'b"]
    ]
    texts += [fold("".join(map(chr, range(at, at + 64)))) for at in range(0xA0, 0x700, 64)]
    column = containing.bare("t")

    async def folded(connection: Connection) -> list[str]:
        rows = await connection.fetch(
            f"select {column} from unnest($1::text[]) with ordinality w(t, n) order by n", texts
        )
        return [row[0] for row in rows]

    assert await read(live.services.pool, folded) == [bare(text) for text in texts]
