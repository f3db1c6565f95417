"""What each reader makes of the exports of its system."""

from __future__ import annotations

import gzip
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest

from serve.cli.client import Api, ApiError
from serve.cli.filling import Filling
from serve.cli.sources import READERS
from serve.cli.sources.records import (
    BadRecord,
    LeftOut,
    Memory,
    ReadOptions,
    Record,
    SourceDocument,
)
from tests.serve.sources.server import Server

pytestmark = pytest.mark.unit


def read(kind: str, path: Path, **options: Any) -> list[Record]:
    return list(READERS[kind](path, ReadOptions(**options)))


def fields(records: list[Record]) -> list[dict[str, Any]]:
    return [dict(one.fields) for one in records if isinstance(one, Memory | SourceDocument)]


def left(records: list[Record]) -> list[str]:
    return [one.why for one in records if isinstance(one, LeftOut)]


MEM0 = [
    {"id": "1", "memory": "Ann rows", "created_at": "2024-05-01T10:00:00-07:00", "user_id": "u",
     "categories": ["sport"], "metadata": {"n": 1, "s": "x"}},
    {"id": "2", "content": "Bo sails", "state": "paused", "app_name": "a"},
    {"id": "3", "content": "gone", "state": "deleted"},
    {"id": "4", "memory": " "},
    {"memory": "nobody's"},
]  # fmt: skip


def test_mem0(tmp_path: Path) -> None:
    plain = tmp_path / "all.json"
    plain.write_text(json.dumps({"results": MEM0}))
    found = read("mem0", plain)
    first, second = (one for one in found if isinstance(one, Memory))
    assert first.fields == {
        "key": "mem0:1", "text": "Ann rows", "mentioned_at": "2024-05-01T10:00:00-07:00",
        "tags": ["user:u", "category:sport"], "metadata": {"n": "1", "s": "x"},
    }  # fmt: skip
    assert (second.invalid, second.scopes, "mentioned_at" in second.fields) == (
        "paused", {"app": "a"}, False,
    )  # fmt: skip
    assert left(found) == ["deleted"]
    assert sum(isinstance(one, BadRecord) for one in found) == 2
    archive = tmp_path / "export.zip"
    with zipfile.ZipFile(archive, "w") as files:
        files.writestr("memories.json", json.dumps(MEM0[:1]))
        lines = "\n".join(json.dumps(one) for one in MEM0[:2]).encode()
        files.writestr("x/memories.jsonl.gz", gzip.compress(lines))
        files.writestr("users.json", "[]")
    keys = [one["key"] for one in fields(read("mem0", archive))]
    assert keys == ["mem0:1", "mem0:2"]  # each once


def test_an_openmemory_archive_is_read_by_its_names(tmp_path: Path) -> None:
    archive = tmp_path / "export.zip"
    whole = {
        "user": {"id": "u-1", "user_id": "ann", "name": None},
        "apps": [{"id": "a-1", "name": "cursor"}],
        "categories": [{"id": "c-1", "name": "sport"}],
        "memories": [
            {"id": "1", "user_id": "u-1", "app_id": "a-1", "content": "Ann rows",
             "metadata": {}, "state": "active", "created_at": "2024-05-01T10:00:00+00:00",
             "archived_at": None, "deleted_at": None, "category_ids": ["c-1", "c-2"]},
            {"id": "2", "user_id": "u-1", "app_id": None, "content": "gone", "state": "deleted",
             "deleted_at": "2024-06-01T10:00:00+00:00", "category_ids": []},
        ],
        "export_meta": {"version": "1"},
    }  # fmt: skip
    lines = [
        {"id": "1", "content": "Ann rows", "state": "active", "app": "cursor",
         "categories": ["sport"]},
        {"id": "2", "content": "gone", "state": "deleted", "app": None, "categories": []},
    ]  # fmt: skip
    with zipfile.ZipFile(archive, "w") as files:
        files.writestr("memories.json", json.dumps(whole, indent=2))
        packed = gzip.compress("\n".join(map(json.dumps, lines)).encode())
        files.writestr("memories.jsonl.gz", packed)
    found = read("mem0", archive)
    (one,) = (each for each in found if isinstance(each, Memory))
    assert one.fields["tags"] == ["user:ann", "app:cursor", "category:sport"]
    assert one.scopes == {"user": "ann", "app": "cursor"}
    assert left(found) == ["deleted"]


def test_graphiti(tmp_path: Path) -> None:
    file = tmp_path / "graph.json"
    file.write_text(json.dumps({
        "nodes": [{"uuid": "n1", "name": "Ann", "summary": "An oarswoman"},
                  {"uuid": "n2", "name": "Club"}],
        "edges": [
            {"uuid": "e1", "fact": "Ann joined the club", "source_node_uuid": "n1",
             "target_node_uuid": "n2", "valid_at": "2024-01-01T00:00:00Z",
             "invalid_at": "2024-06-01T00:00:00Z", "created_at": "2024-02-01T00:00:00Z",
             "group_id": "g"},
            {"uuid": "e2", "fact": "Ann left", "expired_at": "2024-07-01T00:00:00Z"},
            {"uuid": "e3"}, {"fact": "nobody's"},
        ],
        "episodes": [{"uuid": "p1", "content": "Ann: I row.", "reference_time": "2024-01-02"}],
    }))  # fmt: skip
    found = read("zep", file)
    assert fields(found) == [
        {"document_id": "graphiti:p1", "content": "Ann: I row.",
         "timestamp": "2024-01-02T00:00:00+00:00"},
        {"key": "graphiti:e1", "text": "Ann joined the club", "type": "world",
         "occurred_start": "2024-01-01T00:00:00+00:00", "occurred_end": "2024-06-01T00:00:00+00:00",
         "mentioned_at": "2024-02-01T00:00:00+00:00", "entities": ["Ann", "Club"],
         "tags": ["group:g"]},
        {"key": "graphiti:e2", "text": "Ann left", "type": "world"},
    ]  # fmt: skip
    assert [one.invalid for one in found if isinstance(one, Memory)] == [None, "expired"]
    assert left(found) == ["summary of an entity", "edge without a fact"]
    assert "graphiti:summary:n1" in [
        one.get("key") for one in fields(read("zep", file, summaries=True))
    ]
    folder = tmp_path / "parts"
    folder.mkdir()
    (folder / "edges.json").write_text(json.dumps([{"uuid": "e", "fact": "It rains"}]))
    assert [one["key"] for one in fields(read("graphiti", folder))] == ["graphiti:e"]


def test_chatgpt(tmp_path: Path) -> None:
    def node(id: str, parent: str | None, role: str, *parts: Any, **more: Any) -> dict[str, Any]:
        message = {"author": {"role": role}, "content": {"parts": list(parts)}, **more}
        return {"id": id, "parent": parent, "message": message}

    conversation = {
        "conversation_id": "c", "title": "Rowing", "create_time": 1_700_000_000.5,
        "current_node": "d",
        "mapping": {
            "root": {"id": "root", "parent": None, "message": None},
            "s": node("s", "root", "system", "Be kind"),
            "a": node("a", "s", "user", "Hi", {"image": 1}),
            "b": node("b", "a", "assistant", "An old answer"),
            "c": node("c", "a", "assistant", "Hello"),
            "h": node("h", "c", "user", "hidden", weight=0),
            "d": node("d", "h", "user", "Bye"),
        },
    }  # fmt: skip
    archive = tmp_path / "chat.zip"
    with zipfile.ZipFile(archive, "w") as files:
        files.writestr("conversations-000.json", json.dumps([conversation, {"x": 1}]))
        files.writestr("user.json", "{}")
    found = read("chatgpt", archive)
    assert fields(found) == [
        {"document_id": "chatgpt:c", "content": "user: Hi\nassistant: Hello\nuser: Bye",
         "timestamp": "2023-11-14T22:13:20.500000+00:00", "context": "Rowing"},
    ]  # fmt: skip
    assert sorted(left(found)) == [
        "another branch", "image or file", *["system, tool or hidden turn"] * 2,
    ]  # fmt: skip
    assert sum(isinstance(one, BadRecord) for one in found) == 1


def test_the_files_beside_conversations_are_none(tmp_path: Path) -> None:
    talk = {"id": "c", "mapping": {"a": {"id": "a", "message": {
        "author": {"role": "user"}, "content": {"parts": ["Hi"]}}}}}  # fmt: skip
    claude = {"uuid": "u", "chat_messages": [{"sender": "human", "text": "Hi"}]}
    beside = {
        "shared_conversations.json": [{"id": "s", "conversation_id": "c", "title": "t"}],
        "user.json": {"id": "u"}, "message_feedback.json": [{"id": "f"}],
        "users.json": [{"uuid": "u"}], "projects.json": [{"uuid": "p"}],
    }  # fmt: skip
    for kind, content in (("chatgpt", talk), ("claude", claude)):
        folder = tmp_path / kind
        folder.mkdir()
        archive = tmp_path / f"{kind}.zip"
        with zipfile.ZipFile(archive, "w") as files:
            for name, one in {"conversations.json": [content], **beside}.items():
                (folder / name).write_text(json.dumps(one))
                files.writestr(f"data/{name}", json.dumps(one))
        for place in (folder, archive):
            assert len(found := read(kind, place)) == 1, found
            assert isinstance(found[0], SourceDocument)


def test_what_was_spoken_is_said_and_calls_of_tools_are_not(tmp_path: Path) -> None:
    def node(id: str, parent: str | None, role: str, parts: list[Any], **more: Any) -> Any:
        message = {"author": {"role": role}, "content": {"parts": parts}, **more}
        return {"id": id, "parent": parent, "message": message}

    spoken = {"content_type": "audio_transcription", "text": "Hello there", "direction": "in"}
    heard = {"content_type": "real_time_user_audio_video_asset_pointer"}
    hidden = {"is_visually_hidden_from_conversation": True}
    mapping = {
        "a": node("a", None, "user", [heard, spoken]),
        "b": node("b", "a", "assistant", ['{"prompt": "a boat"}'], recipient="dalle.text2im"),
        "c": node("c", "b", "user", ["about me"], metadata=hidden),
        "d": node("d", "c", "assistant", ["Here it is"], recipient="all"),
    }
    file = tmp_path / "conversations.json"
    file.write_text(json.dumps([{"id": "x", "current_node": "d", "mapping": mapping}]))
    found = read("chatgpt", file)
    assert fields(found)[0]["content"] == "user: Hello there\nassistant: Here it is"
    assert sorted(left(found)) == [
        "call of a tool", "image or file", "system, tool or hidden turn",
    ]  # fmt: skip
    file.write_text(json.dumps([{"uuid": "u", "chat_messages": [
        {"sender": "assistant", "text": "```\nThis block is not supported\n```\nDone.", "content": [
            {"type": "tool_use", "name": "search", "input": {}},
            {"type": "thinking", "thinking": "hm", "text": "hm"},
            {"type": "text", "text": "Done."}]}]}]))  # fmt: skip
    assert fields(read("claude", file))[0]["content"] == "assistant: Done."


def test_claude(tmp_path: Path) -> None:
    file = tmp_path / "conversations.json"
    file.write_text(json.dumps([
        {"uuid": "u", "name": "Talk", "created_at": "2024-03-04T05:06:07Z", "chat_messages": [
            {"sender": "human", "text": "Hi", "attachments": [
                {"file_name": "a.txt", "extracted_content": "inside"}, {"file_name": "b.png"}]},
            {"sender": "assistant", "text": "", "content": [{"type": "text", "text": "Hello"}]},
        ]},
        {"uuid": "v", "chat_messages": []},
    ]))  # fmt: skip
    found = read("claude", file)
    assert fields(found) == [
        {"document_id": "claude:u", "content": "human: Hi\na.txt: inside\nassistant: Hello",
         "timestamp": "2024-03-04T05:06:07+00:00", "context": "Talk"},
    ]  # fmt: skip
    assert left(found) == ["attachment without text", "conversation without turns"]


def test_langgraph(tmp_path: Path) -> None:
    file = tmp_path / "store.jsonl"
    file.write_text("\n".join([
        json.dumps({"namespace": ["u", "facts"], "key": "k", "created_at": "2024-01-01T00:00:00Z",
                    "value": {"content": "Ann rows", "n": 2}}),
        json.dumps({"prefix": "u.facts", "key": "l", "value": {"deep": {"text": "Bo sails"}}}),
        json.dumps({"namespace": [], "key": "m", "value": "plain", "expires_at": "2020-01-01"}),
        "{broken",
    ]))  # fmt: skip
    found = read("langgraph", file)
    assert fields(found) == [
        {"key": "langgraph:u/facts/k", "text": "Ann rows", "tags": ["namespace:u/facts"],
         "mentioned_at": "2024-01-01T00:00:00+00:00", "metadata": {"n": "2"}},
    ]  # fmt: skip
    assert left(found) == ["expired"]
    assert [one.why.partition(":")[0] for one in found if isinstance(one, BadRecord)][
        1
    ] == "no JSON"
    deep = fields(read("langmem", file, text_path="deep.text"))
    assert [one["text"] for one in deep] == ["Bo sails"]


def test_markdown(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "x.md").write_text("hidden")
    (tmp_path / "sub" / "a.md").write_text(
        "---\ntitle: Log\ntags: [sea, boat]\ndate: 2024-05-06\nmood: good\n---\nWe sailed.\n"
    )
    (tmp_path / "b.md").write_text("No front matter --- here")
    os.utime(tmp_path / "b.md", (1_700_000_000, 1_700_000_000))
    (tmp_path / "c.png").write_bytes(b"\x89PNG")
    (tmp_path / "d.md").write_bytes(b"\xff\xfe\xff")
    (tmp_path / "e.md").write_text("  \n")
    found = read("markdown", tmp_path)
    assert fields(found) == [
        {"document_id": "b.md", "content": "No front matter --- here",
         "timestamp": "2023-11-14T22:13:20+00:00"},
        {"document_id": "sub/a.md", "content": "We sailed.\n", "context": "Log",
         "timestamp": "2024-05-06T00:00:00+00:00", "tags": ["sea", "boat"],
         "metadata": {"mood": "good"}},
    ]  # fmt: skip
    assert sorted(left(found)) == ["another kind of file", "empty", "hidden", "not UTF-8"]


def test_front_matter_that_is_none(tmp_path: Path) -> None:
    for number, front in enumerate((
        "date: 2024-13-45", "tags: [sea, {a: 1}, null, 5]", "a: &x [1]\nb: *x", "1: one",
        "title: [x]", "[" * 500, "- list",
    )):  # fmt: skip
        (tmp_path / f"{number}.md").write_text(f"---\n{front}\n---\nWe sailed.\n")
    found = {one["document_id"]: one for one in fields(read("markdown", tmp_path))}
    assert len(found) == 7
    assert all("We sailed." in one["content"] for one in found.values())
    assert found["1.md"]["tags"] == ["sea", "5"]
    assert found["2.md"]["content"].startswith("---")  # an alias could say anything
    assert found["3.md"]["metadata"] == {"1": "one"}


def test_what_another_server_or_bank_has_is_not_here(tmp_path: Path) -> None:
    file = tmp_path / "all.json"
    file.write_text(json.dumps([{"id": "1", "memory": "Ann rows", "user_id": "u"}]))

    def sent(server: Server, **more: Any) -> int:
        Filling(server, "b", file, READERS["mem0"], ReadOptions(), **more).run()
        return len(server.memories)

    first, second = Server(), Server(url="http://two")
    assert (sent(first), sent(second)) == (1, 1)
    assert sent(Server()) == 0
    assert sent(Server(), again=True) == 1
    assert list((divided := Server()).memories) == []
    assert sent(divided, per="user") == 1
    assert list(divided.memories) == ["u/mem0:1"]


def test_a_run_resumes_and_sends_what_changed(tmp_path: Path) -> None:
    file = tmp_path / "all.json"
    many = [{"id": str(i), "memory": f"fact {i}", "user_id": f"u{i % 2}"} for i in range(10)]
    many[3]["memory"] = "bad"
    many[4]["state"] = "archived"
    file.write_text(json.dumps(many))

    def filling(api: Api, per: str | None = None) -> Filling:
        return Filling(api, "b", file, READERS["mem0"], ReadOptions(), 4, per)

    with pytest.raises(ApiError):
        filling(Server(dies_after=5)).run()
    server = Server()
    done = filling(server).run()
    assert done.rejected == 1
    assert done.unchanged + done.memories == 9
    assert done.unchanged > 0
    assert server.invalid == ["mem0:4"]
    (line,) = (tmp_path / "all.json.rejected").read_text().splitlines()
    assert json.loads(line)["record"]["key"] == "mem0:3"
    many[5]["memory"] = "another"
    file.write_text(json.dumps(many))
    again = filling(Server()).run()
    assert (again.memories, again.unchanged, again.rejected) == (1, 8, 1)
    divided = Server()
    filling(divided, "user").run()
    assert {key.partition("/")[0] for key in divided.memories} == {"u0", "u1"}
    counts, shown = filling(Server()).preview()
    assert (counts.memories, len(shown)) == (10, 10)
