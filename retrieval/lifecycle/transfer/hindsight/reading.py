"""Archives of the peer as bundles."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from uuid import NAMESPACE_URL, UUID, uuid5

import orjson

from retrieval.errors import InvalidInput
from retrieval.ingest import fields
from retrieval.ingest.documents.anchoring import content_hash
from retrieval.ingest.facts import Fact, Mention
from retrieval.lifecycle.transfer.archive import BadArchive
from retrieval.lifecycle.transfer.bundles import Bundle, Incoming, Kept, Stated
from retrieval.lifecycle.transfer.lines import Line
from retrieval.lifecycle.transfer.unpacking import Unpacker
from retrieval.text.folding import fold
from retrieval.types import CAUSAL, FactType

FILE_BYTES: Final = 64 << 20
"""Largest JSON file of an archive, unpacked."""
_BATCH: Final = 500
_SCOPES = ("per_tag", "combined", "all_combinations", "shared")
_TYPES: Final = {kind.wire: kind for kind in CAUSAL}


def check(unpacker: Unpacker) -> None:
    """BadArchive where the manifest counts more documents than there are."""
    said = (unpacker.peer or {}).get("document_count")
    found = len(_files(unpacker))
    if isinstance(said, int) and said != found:
        raise BadArchive(f"the archive has {found} documents, its manifest says {said}")


def _files(unpacker: Unpacker) -> list[str]:
    return [n for n in unpacker.names if n.startswith("documents/") and n.endswith(".json")]


class Bundles:
    """See bundles.py: Source. `whole`: a bank is made of it, with what is kept beside the
    documents."""

    def __init__(self, unpacker: Unpacker, *, whole: bool) -> None:
        assert unpacker.peer is not None
        self._unpacker = unpacker
        self._documents = unpacker.peer.get("archive_type", "documents") != "bank"
        self._whole = whole
        self._names = _files(unpacker)
        self._base = uuid5(NAMESPACE_URL, f"hindsight:{unpacker.bank_id}")

    def open(self) -> None:
        """Nothing to do: the files are read where they lie."""

    def close(self) -> None:
        """The archive is somebody else's."""

    @property
    def total(self) -> int:
        return len(self._names)

    def _json(self, name: str, default: Any = None) -> Any:
        if default is not None and not self._unpacker.has(name):
            return default
        try:
            return orjson.loads(self._unpacker.whole(name, FILE_BYTES))
        except orjson.JSONDecodeError:
            raise BadArchive(f"{name[:80]!r} is not JSON") from None

    def _id(self, document: object, place: object) -> UUID:
        return uuid5(self._base, f"{document}/{place}")

    def bundles(self, skip: int) -> Iterator[Bundle]:
        for name in self._names[skip:]:
            content = self._json(name)
            try:
                yield self._bundle(content)
            except (KeyError, TypeError, ValueError, AttributeError, InvalidInput) as error:
                said = f"{type(error).__name__}: {error}" if isinstance(error, KeyError) else error
                raise BadArchive(f"{name[:80]!r} holds what cannot be stored ({said})") from error

    def _bundle(self, content: Any) -> Bundle:
        id = fields.identifier(content["id"], "id")
        if id is None:
            raise ValueError("a document has no id")
        chunks: list[Line] = [
            {
                "chunk_index": int(each["chunk_index"]),
                "chunk_text": str(each["chunk_text"]),
                "content_hash": content_hash(str(each["chunk_text"])),
                "created_at": content.get("created_at") or _NOW,
            }
            for each in content.get("chunks") or ()
        ]
        known = {chunk["chunk_index"] for chunk in chunks}
        facts = content.get("facts") or []
        memories, links = [], []
        for place, fact in enumerate(facts):
            memories.append(self._memory(id, place, fact, known))
            for relation in fact.get("causal_relations") or ():
                kind, target = relation["relation_type"], relation["target_fact_index"]
                if kind in _TYPES and isinstance(target, int) and 0 <= target < len(facts):
                    links.append(Stated(self._id(id, place), self._id(id, target), kind, 1.0))
        columns = {
            "original_text": content.get("original_text") or None,
            "tags": list(fields.tags(content.get("tags"), "tags")),
            "retain_params": content.get("retain_params") or {},
            "created_at": content.get("created_at"),
            "metadata": (content.get("retain_params") or {}).get("metadata") or {},
        }
        return Bundle(id, columns, chunks, memories, links)

    def _memory(self, document: str, place: int, fact: Any, chunks: set[int]) -> Incoming:
        kind = fact["fact_type"]
        chunk = fact.get("chunk_index")
        scopes = fact.get("observation_scopes")
        start = fields.time(fact.get("occurred_start"), "occurred_start")
        mentioned = fields.time(fact.get("mentioned_at"), "mentioned_at")
        if start is None and mentioned is None:
            mentioned = fields.time(fact.get("event_date"), "event_date")
        created = fields.time(fact.get("created_at"), "created_at")
        marks = {
            name: fact[name]
            for name in ("consolidated_at", "consolidation_failed_at")
            if fact.get(name) is not None
        }
        if created is not None:
            marks["updated_at"] = created.isoformat()
        return Incoming(
            Fact(
                id=self._id(document, place),
                text=fields.text(fact["text"], "text"),
                fact_type=FactType.EXPERIENCE if kind == "experience" else FactType.WORLD,
                context=fields.optional_text(fact.get("context"), "context", fields.CONTEXT_LIMIT),
                occurred_start=start,
                occurred_end=fields.time(fact.get("occurred_end"), "occurred_end"),
                mentioned_at=mentioned,
                document_id=document,
                position=place,
                tags=fields.tags(fact.get("tags"), "tags"),
                metadata=fields.metadata(fact.get("metadata") or None, "metadata"),
                mentions=tuple(Mention(str(name)) for name in fact.get("entities") or ()),
                observation_scopes=scopes
                if isinstance(scopes, list) or scopes in _SCOPES
                else None,
                created_at=created,
            ),
            chunk if chunk in chunks else None,
            marks,
        )

    def observations(self, skip: int) -> Iterator[Sequence[Incoming]]:
        rows = self._json("observations.json", [])
        if not isinstance(rows, list):
            raise BadArchive("'observations.json' is no list")
        for begin in range(skip * _BATCH, len(rows), _BATCH):
            try:
                yield [
                    self._observation(begin + i, row)
                    for i, row in enumerate(rows[begin : begin + _BATCH])
                ]
            except (KeyError, TypeError, ValueError, AttributeError, InvalidInput) as error:
                raise BadArchive(
                    f"'observations.json' holds what cannot be stored ({type(error).__name__})"
                ) from error

    def _observation(self, place: int, row: Any) -> Incoming:
        sources = dict.fromkeys(
            self._id(each["document_id"], each["fact_index"]) for each in row.get("sources") or ()
        )
        return Incoming(
            Fact(
                id=self._id("observation", place),
                text=fields.text(row["text"], "text"),
                fact_type=FactType.OBSERVATION,
                occurred_start=fields.time(row.get("occurred_start"), "occurred_start"),
                occurred_end=fields.time(row.get("occurred_end"), "occurred_end"),
                mentioned_at=fields.time(row.get("mentioned_at"), "mentioned_at"),
                tags=fields.tags(row.get("tags"), "tags"),
                proof_count=fields.whole(row.get("proof_count"), "proof_count", 0),
                sources=tuple(sources),
            )
        )

    def kept(self) -> Kept:
        if not (self._documents or self._whole):
            return Kept()
        try:
            nodes = [_node(row) for row in self._json("knowledge_pages.json", [])]
            pages = {node["mental_model_id"] for node in nodes}
            history = defaultdict(list)
            for row in self._json("mental_model_history.json", []):
                history[row["mental_model_id"]].append(
                    {"previous_content": row["previous_content"], "changed_at": row["changed_at"]}
                )
            models = [
                {**_model(row), "is_page": row["id"] in pages, "history": history[row["id"]]}
                for row in self._json("mental_models.json", [])
            ]
            rules = self._json("directives.json", []) if self._whole else []
            directives = [_directive(row) for row in rules]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadArchive(
                f"what is kept beside the documents cannot be stored ({type(error).__name__})"
            ) from error
        return Kept(models, nodes, directives, self._bank() if self._whole else {})

    def _bank(self) -> Mapping[str, Any]:
        rows = self._json("banks.json", [])
        row = rows[0] if isinstance(rows, list) and rows and isinstance(rows[0], dict) else {}
        found: dict[str, Any] = {"name_folding": None}
        for name in ("name", "mission", "created_at"):
            if isinstance(row.get(name), str):
                found[name] = row[name]
        for name in ("disposition", "config"):
            if isinstance(value := _decoded(row.get(name)), dict):
                found[name] = value
        return found


_NOW = "now"


def _decoded(value: Any) -> Any:
    """A JSON column, which archives hold as it is or written out."""
    if not isinstance(value, str):
        return value
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return None


def _model(row: Any) -> Line:
    return {
        "id": str(row["id"]),
        "name": str(row["name"]),
        "source_query": str(row["source_query"]),
        "tags": list(row.get("tags") or ()),
        "max_tokens": int(row.get("max_tokens") or 2048),
        "trigger": _decoded(row.get("trigger")) or {},
        "revision": 0,
        "content": row.get("content") or "",
        "created_at": row.get("created_at") or _NOW,
        "updated_at": row.get("updated_at") or row.get("created_at") or _NOW,
        "last_refreshed_at": row.get("last_refreshed_at"),
        "pending_refresh": False,
        "failed_deltas": 0,
        "failed_fulls": 0,
        "citations": [],
    }


def _node(row: Any) -> Line:
    return {
        "id": str(row["id"]),
        "parent_id": row.get("parent_id"),
        "name": str(row["name"]),
        "name_key": fold(str(row["name"])),
        "mental_model_id": row.get("mental_model_id"),
        "managed": bool(row.get("managed")),
        "created_at": row.get("created_at") or _NOW,
        "updated_at": row.get("updated_at") or _NOW,
    }


def _directive(row: Any) -> Line:
    return {
        "id": str(UUID(str(row["id"]))),
        "name": str(row["name"]),
        "content": str(row["content"]),
        "priority": int(row.get("priority") or 0),
        "is_active": bool(row.get("is_active", True)),
        "tags": list(row.get("tags") or ()),
        "created_at": row.get("created_at") or _NOW,
        "updated_at": row.get("updated_at") or _NOW,
    }
