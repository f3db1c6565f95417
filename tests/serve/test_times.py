"""Times over HTTP: the caller's offset, a named zone of the recall or the bank, and dates."""

from typing import Any

import pytest

from tests.serve.conftest import B, Live

pytestmark = pytest.mark.integration

MEMORIES = [
    {"text": "Ana paid the rent for May.", "occurred_start": "2026-05-31T00:00:00Z"},
    {
        "text": "Ana repaired the boat.",
        "occurred_start": "2026-06-30T00:00:00Z",
        "occurred_end": "2026-06-30T23:59:59.999999Z",
    },
    {"text": "Ana swam to the island.", "occurred_start": "2026-06-29T16:00:00Z"},
    {"text": "Ana saw the doctor.", "occurred_start": "2026-06-30T16:00:00Z"},
]


async def asked(live: Live, bank: str, query: str, **body: Any) -> tuple[dict[str, Any], set[str]]:
    """The window of a recall, and what the temporal arm's filter left."""
    found = await live.recall(bank, query, trace=True, temporal_mode="filter", **body)
    window = found["trace"]["query"]["temporal_constraint"]
    return window, {result["text"].split()[1] for result in found["results"]}


@pytest.fixture(scope="session")
def bank() -> str:
    return "dated"


async def filled(live: Live, bank: str) -> None:
    await live.import_memories(
        bank, *({"key": str(i), "mentioned_at": None, **m} for i, m in enumerate(MEMORIES))
    )


async def test_the_offset_of_the_caller(live: Live, bank: str) -> None:
    await filled(live, bank)
    window, texts = await asked(
        live, bank, "What did Ana do last month?", query_timestamp="2026-07-01T03:00:00+09:00"
    )
    assert window["start"] == "2026-06-01T00:00:00+09:00"
    assert window["end"] == "2026-06-30T23:59:59.999999+09:00"
    assert texts == {"repaired", "swam"}
    window, texts = await asked(
        live, bank, "What did Ana do last month?", query_timestamp="2026-06-30T18:00:00Z"
    )
    assert window["start"] == "2026-05-01T00:00:00+00:00"
    assert texts == {"paid"}


async def test_yesterday_by_date_and_by_instant(live: Live, bank: str) -> None:
    await filled(live, bank)
    question = "What did Ana do yesterday?"
    at = "2026-07-01T03:00:00"
    for body in (
        {"query_timestamp": f"{at}+09:00"},
        {"query_timestamp": at, "timezone": "Asia/Tokyo"},
        {"query_timestamp": f"{at}+09:00", "timezone": "America/New_York"},
    ):
        window, texts = await asked(live, bank, question, **body)
        assert window["start"] == "2026-06-30T00:00:00+09:00"
        assert texts == {"repaired", "swam"}, body
    _, texts = await asked(live, bank, question, query_timestamp=at)
    assert texts == {"repaired", "saw"}


async def test_windows_of_the_caller(live: Live, bank: str) -> None:
    await filled(live, bank)
    day = {"start": "2026-06-30", "end": "2026-06-30T23:59:59.999999"}
    window, texts = await asked(live, bank, "Ana", temporal_window=day, timezone="Asia/Tokyo")
    assert window["start"] == "2026-06-30T00:00:00+09:00"
    assert texts == {"repaired", "swam"}
    _, texts = await asked(live, bank, "Ana", temporal_window=day)
    assert texts == {"repaired", "saw"}
    day = {"start": "2026-06-30T00:00:00+09:00", "end": "2026-06-30T23:59:59+09:00"}
    _, texts = await asked(live, bank, "Ana", temporal_window=day)
    assert texts == {"repaired", "swam"}


async def test_the_zone_of_a_bank(live: Live) -> None:
    await filled(live, "zoned")
    for path, method, body in (
        ("zoned", "PUT", {"timezone": "asia/tokyo"}),
        ("zoned/config", "PATCH", {"updates": {"timezone": "Asia/Tokyo"}}),
    ):
        answer = await live.http.request(method, f"{B}/{path}", json=body)
        assert answer.status_code == 200, answer.text
        config = (await live.http.get(f"{B}/zoned/config")).json()
        assert config["overrides"]["timezone"] == "Asia/Tokyo"
    window, texts = await asked(
        live, "zoned", "What did Ana do yesterday?", query_timestamp="2026-07-01T03:00:00"
    )
    assert window["start"] == "2026-06-30T00:00:00+09:00"
    assert texts == {"repaired", "swam"}
    # a recall's own wins; an offset wins over both
    window, _ = await asked(
        live,
        "zoned",
        "What did Ana do yesterday?",
        query_timestamp="2026-07-01T03:00:00",
        timezone="Europe/Berlin",
    )
    assert window["start"] == "2026-06-30T00:00:00+02:00"
    found = await live.recall("zoned", "What did Ana do today?", trace=True)
    assert found["trace"]["query"]["timestamp"].endswith("+09:00")
    assert found["trace"]["query"]["temporal_constraint"]["start"].endswith("T00:00:00+09:00")


@pytest.mark.parametrize("zone", ["Mars/Olympus", "+09:00", "", "America", 9, ["UTC"]])
async def test_a_zone_that_is_none(live: Live, zone: Any) -> None:
    url = f"{B}/zoneless"
    await live.http.put(url, json={})
    recalled = await live.http.post(f"{url}/memories/recall", json={"query": "x", "timezone": zone})
    assert recalled.status_code == 422
    assert recalled.json()["detail"][0]["loc"] == ["body", "timezone"]
    put = await live.http.put(url, json={"timezone": zone})
    assert put.status_code == 422
    assert put.json()["detail"][0]["loc"] == ["body", "timezone"]
    patched = await live.http.patch(f"{url}/config", json={"updates": {"timezone": zone}})
    assert patched.status_code in (400, 422)
    assert "timezone" in patched.text
    assert (await live.http.get(f"{url}/config")).json()["overrides"] == {}


async def test_contents_keep_the_day_of_their_writer(live: Live) -> None:
    """Dates without a year in a content are read by its own clock, and stored as dates."""
    url = f"{B}/writers"
    settings = {"updates": {"retain_date_text": True, "timezone": "Asia/Tokyo"}}
    await live.http.put(url, json={})
    assert (await live.http.patch(f"{url}/config", json=settings)).status_code == 200
    text = "The ferry to the island left on 5 May 2024."
    for number, at in enumerate(["2024-06-01T03:00:00+09:00", "2024-06-01T03:00:00", None]):
        item = {"content": f"{text} ({number})", "timestamp": at, "document_id": f"d{number}"}
        answer = await live.http.post(f"{url}/memories", json={"items": [item]})
        assert answer.status_code == 200, answer.text
    listed = (await live.http.get(f"{url}/memories/list")).json()["items"]
    assert len(listed) == 3
    for memory in listed:
        got = (await live.http.get(f"{url}/memories/{memory['id']}")).json()
        assert got["occurred_start"].startswith("2024-05-05T00:00:00"), got
        assert got["occurred_end"].startswith("2024-05-05T23:59:59"), got
    mentioned = sorted(str(memory["mentioned_at"]) for memory in listed)
    assert mentioned[0].startswith("2024-05-31T18:00:00")
    assert mentioned[1].startswith("2024-05-31T18:00:00")
