"""The import command: batches that respect links, and going on after an interruption."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve.cli.client import Api, ApiError
from serve.cli.importer import BadLine, batches, import_jsonl

pytestmark = pytest.mark.unit


class FakeApi(Api):
    """Keeps what it is sent; fails after `good` calls."""

    def __init__(self, good: int = 1000) -> None:
        self.url = "http://test"
        self.calls: list[list[str]] = []
        self.good = good

    def import_memories(self, bank: str, memories: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        if len(self.calls) >= self.good:
            raise ApiError("gone")
        self.calls.append([memory["key"] for memory in memories])
        return {}


def write(path: Path, memories: Sequence[Mapping[str, Any]]) -> Path:
    path.write_bytes(b"\n".join(map(orjson.dumps, memories)))
    return path


def test_goes_on_where_it_was(tmp_path: Path) -> None:
    file = write(tmp_path / "m.jsonl", [{"key": str(i), "text": "t"} for i in range(10)])
    broken = FakeApi(good=2)
    with pytest.raises(ApiError):
        import_jsonl(broken, "b", file, batch=3, again=False)
    fresh = FakeApi()
    done = import_jsonl(fresh, "b", file, batch=3, again=False)
    assert (done.imported, done.skipped) == (4, 6)
    assert broken.calls + fresh.calls == [["0", "1", "2"], ["3", "4", "5"], ["6", "7", "8"], ["9"]]
    changed = write(file, [{"key": str(i), "text": "new" if i == 4 else "t"} for i in range(10)])
    later = FakeApi()
    import_jsonl(later, "b", changed, batch=3, again=False)
    assert later.calls == [["4"]]
    import_jsonl(later, "other", changed, batch=100, again=False)
    assert len(later.calls[-1]) == 10


@pytest.mark.parametrize(
    ("lines", "named"),
    [(b"{", "line 1"), (b'\n{"text": "t"}', "line 2"), (b'{"key":"a"}\n{"key":"a"}', "line 2")],
)
def test_a_bad_line_is_named(tmp_path: Path, lines: bytes, named: str) -> None:
    file = tmp_path / "m.jsonl"
    file.write_bytes(lines)
    api = FakeApi()
    with pytest.raises(BadLine, match=named):
        import_jsonl(api, "b", file, batch=3, again=False)
    assert not api.calls


@given(st.lists(st.lists(st.integers(0, 30), max_size=3), max_size=30), st.integers(1, 9))
def test_no_batch_names_a_later_key(targets: list[list[int]], size: int) -> None:
    memories = [
        {"key": str(i), "links": [{"to": str(t)} for t in names], "sources": [str(names[0])]}
        if names
        else {"key": str(i)}
        for i, names in enumerate(targets)
    ]
    parts = list(batches(memories, size))
    assert [m for part in parts for m in part] == memories
    known: set[str] = set()
    every = {memory["key"] for memory in memories}
    for part in parts:
        known |= {memory["key"] for memory in part}
        named = {link["to"] for memory in part for link in memory.get("links", ())}
        assert named & every <= known


@pytest.mark.parametrize("said", ["Wed, 21 Oct 2026 07:28:00 GMT", "soon", "-1", "0"])
def test_a_wait_that_is_no_number_of_seconds(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr("serve.cli.client.time.sleep", waits.append)
    answers = [httpx.Response(503, headers={"Retry-After": said}), httpx.Response(200, json={})]
    api = FakeApi()
    api._http = httpx.Client(
        base_url="http://test", transport=httpx.MockTransport(lambda _: answers.pop(0))
    )
    assert api.get("/health") == {}
    assert len(waits) == 1
    assert 0 < waits[0] < 1
