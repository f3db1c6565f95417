"""Whatever stands in an export where something else was expected is named, and ends no run."""

from __future__ import annotations

import copy
import gzip
import json
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from serve.cli.filling import Filling
from serve.cli.sources import READERS
from serve.cli.sources.records import BadRecord, LeftOut, Memory, ReadOptions, SourceDocument
from tests.serve.sources.server import Server

pytestmark = pytest.mark.unit

SAMPLES: dict[str, Any] = {
    "mem0": [
        {"id": "1", "memory": "Ann rows", "created_at": "2024-05-01T10:00:00-07:00",
         "user_id": "u", "state": "paused", "categories": ["sport", {"name": "sea"}],
         "metadata": {"n": 1, "deep": {"a": [1]}}},
    ],
    "zep": {
        "nodes": [{"uuid": "n1", "name": "Ann", "summary": "An oarswoman", "group_id": "g"}],
        "edges": [{"uuid": "e1", "fact": "Ann rows", "source_node_uuid": "n1",
                   "target_node_uuid": "n1", "valid_at": "2024-01-01T00:00:00Z",
                   "invalid_at": "2024-06-01T00:00:00Z", "group_id": "g"}],
        "episodes": [{"uuid": "p1", "content": "Ann: I row.", "group_id": "g",
                      "source_description": "chat", "reference_time": "2024-01-02"}],
    },
    "chatgpt": [
        {"conversation_id": "c", "title": "Rowing", "create_time": 1_700_000_000.5,
         "current_node": "a",
         "mapping": {
             "root": {"id": "root", "parent": None, "message": None},
             "a": {"id": "a", "parent": "root", "message": {
                 "author": {"role": "user"}, "recipient": "all", "weight": 1.0, "metadata": {},
                 "content": {"content_type": "text", "parts": ["Hi", {"text": "there"}]}}},
         }},
    ],
    "claude": [
        {"uuid": "u", "name": "Talk", "created_at": "2024-03-04T05:06:07Z", "chat_messages": [
            {"sender": "human", "text": "Hi",
             "content": [{"type": "text", "text": "Hi"}],
             "attachments": [{"file_name": "a.txt", "extracted_content": "inside"}],
             "files": [{"file_name": "b.png"}]},
        ]},
    ],
    "langgraph": [
        {"namespace": ["u", "facts"], "key": "k", "created_at": "2024-01-01T00:00:00Z",
         "expires_at": "2124-01-01T00:00:00Z", "value": {"content": {"text": "Ann"}, "n": [2]}},
    ],
}  # fmt: skip

ODD: tuple[Any, ...] = (
    None, True, 5, -1, 2**70, 1e308, "", " ", "x", "\0", "\ud800", [], [None], [[]], [5],
    ["x"], {}, {"a": None}, {"x": {"y": [None]}},
)  # fmt: skip


def spoiled(value: Any) -> Iterator[Any]:
    """The value with something odd in the place of each of its parts, one after the other; and
    without each."""

    def places(part: Any) -> Iterator[tuple[Any, ...]]:
        yield ()
        if isinstance(part, dict | list):
            for name, one in part.items() if isinstance(part, dict) else enumerate(part):
                for rest in places(one):
                    yield name, *rest

    for path in places(value):
        for odd in ODD if path else ():
            whole = copy.deepcopy(value)
            at = whole
            for name in path[:-1]:
                at = at[name]
            at[path[-1]] = odd
            yield whole
        if path and isinstance(path[-1], str):
            whole = copy.deepcopy(value)
            at = whole
            for name in path[:-1]:
                at = at[name]
            del at[path[-1]]
            yield whole


@pytest.mark.parametrize("kind", SAMPLES)
def test_every_odd_part_is_named(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "conversations.json"
    count = 0
    for content in spoiled(SAMPLES[kind]):
        file.write_text(json.dumps(content))
        for one in READERS[kind](file, ReadOptions(summaries=True)):
            assert isinstance(one, Memory | SourceDocument | BadRecord | LeftOut)
            if isinstance(one, BadRecord | LeftOut):
                continue
            orjson.dumps(dict(one.fields))
            assert all(value not in (None, "", [], {}) for value in one.fields.values())
            assert all(isinstance(tag, str) for tag in one.fields.get("tags", ()))
            text = one.fields.get("text", one.fields.get("content"))
            assert isinstance(text, str), content
            assert text.strip(), content
        count += 1
    assert count > 100


@pytest.mark.parametrize("kind", SAMPLES)
def test_files_that_are_none_of_the_kind(tmp_path: Path, kind: str) -> None:
    broken = tmp_path / "broken.zip"
    with zipfile.ZipFile(broken, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conversations.json", json.dumps(["x" * 1000] * 100))
        archive.writestr("memories.json", json.dumps(["y" * 1000] * 100))
    data = bytearray(broken.read_bytes())
    for begin in (60, 1200):
        data[begin : begin + 30] = b"\xff" * 30
    broken.write_bytes(data)
    for name, content in (
        ("a.json", b'{"x": ['), ("b.json", b"\xff\xfe"), ("c.json", b""),
        ("d.jsonl.gz", gzip.compress(b"{}" * 1000)[:-12]), ("e.jsonl.gz", b"no gzip"),
        ("broken.zip", bytes(data)), ("f.json", b"[" * 5_000),
        ("g.json", b"[" * 5_000 + b"]" * 5_000),
    ):  # fmt: skip
        file = tmp_path / name
        file.write_bytes(content)
        found, said = everything(kind, file)
        assert not any(isinstance(one, Memory | SourceDocument) for one in found)
        assert found or name.partition(".")[0] in said or "json" in said


def everything(kind: str, file: Path) -> tuple[list[Any], str]:
    """(records, why there are no more)."""
    found: list[Any] = []
    try:
        found.extend(READERS[kind](file, ReadOptions()))
    except ValueError as error:
        return found, str(error)
    return found, "json" if not found else ""


def test_what_is_rejected_is_kept_whatever_it_is(tmp_path: Path) -> None:
    file = tmp_path / "all.json"
    odd = {"memory": "nobody's", "n": 2**70, "deep": None}
    file.write_text(json.dumps([odd]))
    done = Filling(Server(), "b", file, READERS["mem0"], ReadOptions()).run()
    assert (done.memories, done.rejected) == (0, 1)
    (line,) = (tmp_path / "all.json.rejected").read_bytes().splitlines()
    assert json.loads(line)["record"] == odd
    folder = tmp_path / "notes"
    folder.mkdir()
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff.md")).write_text("A name that is no text.")
    done = Filling(Server(), "b", folder, READERS["markdown"], ReadOptions()).run()
    assert (done.documents, done.rejected) == (0, 1)
    assert "cannot be sent" in (tmp_path / "notes.rejected").read_text()
