"""What a run has shown to the model, under handles that mean nothing outside of it.

A handle is a letter (F: fact, O: observation, M: mental model) and a number. What the model cites
or asks to see more of is looked up here, so that it can name only what this run retrieved.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

import orjson

from retrieval.reflect.seams import FoundModel
from retrieval.text import tokens

Kind = Literal["fact", "observation", "model"]
LETTER: Mapping[Kind, str] = {"fact": "F", "observation": "O", "model": "M"}

_REFERENCE = re.compile(r"[FOM]\d{1,6}")
_RANK_SHARE = 60.0
"""The constant of reciprocal ranks, as in the fusion of a recall."""

FACT_FIELDS = (
    "context", "occurred_start", "occurred_end", "mentioned_at", "document_id", "chunk_id",
    "tags", "metadata",
)  # fmt: skip


@dataclass(slots=True)
class EvidenceItem:
    """One memory, observation or mental model. `fields` are a recall's; `names` its entities;
    `also` are texts shown as belonging to it: chunks, documents. `weight`: how high it ranked."""

    handle: str
    kind: Kind
    id: str
    text: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    similarity: float = 0.0
    stale: bool = False
    also: list[str] = field(default_factory=list)
    weight: float = 0.0

    @property
    def said_at(self) -> datetime | None:
        moment = self.fields.get("mentioned_at")
        return moment if isinstance(moment, datetime) else None

    @property
    def dates(self) -> list[datetime]:
        """The times that it is known to mean."""
        found = (self.fields.get(k) for k in ("occurred_start", "occurred_end", "mentioned_at"))
        return [moment for moment in found if isinstance(moment, datetime)]

    @property
    def sources(self) -> list[str]:
        """All texts that the model was shown of it."""
        context = self.fields.get("context")
        shown = [self.text, " ".join(self.names), str(self.fields.get("document_id") or "")]
        metadata = self.fields.get("metadata") or {}
        return [*shown, *([context] if context else []), *metadata.values(), *self.also]

    def line(self, *, names: bool = False) -> str:
        """One line of JSON: text inside it can neither end the line nor become another item."""
        shown: dict[str, Any] = {"id": self.handle}
        if self.kind == "model":
            shown["name"] = self.fields.get("name", "")
        shown["text"] = self.text
        if self.fields.get("type") == "experience":
            shown["of"] = "the agent itself"
        if (start := self.fields.get("occurred_start")) is not None:
            shown["happened"] = _when(start)
        if (end := self.fields.get("occurred_end")) is not None and end != start:
            shown["until"] = _when(end)
        if (said := self.fields.get("mentioned_at")) is not None:
            shown["stated"] = _when(said)
        if document := self.fields.get("document_id"):
            shown["stated_in"] = document
        if context := self.fields.get("context"):
            shown["context"] = context
        if names and self.names:
            shown["names"] = list(self.names)
        if self.stale:
            shown["outdated"] = "newer statements are not part of it yet"
        return orjson.dumps(shown).decode()


def _when(moment: Any) -> str:
    if not isinstance(moment, datetime):
        return str(moment)
    if (moment.hour, moment.minute) == (0, 0):
        return moment.date().isoformat()
    return moment.strftime("%Y-%m-%dT%H:%M")


class EvidenceSet:
    """The items of one run."""

    def __init__(self) -> None:
        self._by_handle: dict[str, EvidenceItem] = {}
        self._by_id: dict[tuple[bool, str], EvidenceItem] = {}
        self._counts: dict[Kind, int] = {"fact": 0, "observation": 0, "model": 0}

    @property
    def items(self) -> tuple[EvidenceItem, ...]:
        return tuple(self._by_handle.values())

    def memory(self, result: Mapping[str, Any], rank: int) -> tuple[EvidenceItem, bool]:
        """The item of a recall's result that stood at this rank (from 0); is it new?"""
        kind: Kind = "observation" if result["type"] == "observation" else "fact"
        similarity = (result.get("scores") or {}).get("semantic") or 0.0
        fields = {key: result[key] for key in ("type", *FACT_FIELDS) if key in result}
        names = tuple(result.get("entities") or ())
        return self._add(kind, result["id"], result["text"], fields, rank, names, similarity)

    def model(self, found: FoundModel, rank: int) -> tuple[EvidenceItem, bool]:
        fields = {"name": found.name, "mentioned_at": found.refreshed_at}
        item, new = self._add("model", found.id, found.text, fields, rank)
        item.stale = found.is_stale
        return item, new

    def _add(
        self,
        kind: Kind,
        id: str,
        text: str,
        fields: Mapping[str, Any],
        rank: int,
        names: tuple[str, ...] = (),
        similarity: float = 0.0,
    ) -> tuple[EvidenceItem, bool]:
        key = (kind == "model", id)
        item = self._by_id.get(key)
        new = item is None
        if item is None:
            self._counts[kind] += 1
            handle = f"{LETTER[kind]}{self._counts[kind]}"
            item = EvidenceItem(handle, kind, id, text, fields, names)
            self._by_id[key] = self._by_handle[handle] = item
        item.weight += 1 / (_RANK_SHARE + rank)
        item.similarity = max(item.similarity, similarity)
        return item, new

    def forget(self, items: Iterable[EvidenceItem]) -> None:
        """Takes back what was found but not shown."""
        for item in items:
            self._by_handle.pop(item.handle, None)
            self._by_id.pop((item.kind == "model", item.id), None)

    def find(self, reference: str) -> EvidenceItem | None:
        """The item that a handle or an id of this run stands for."""
        reference = reference.strip().strip("[]()")
        if _REFERENCE.fullmatch(reference.upper()):
            return self._by_handle.get(reference.upper())
        low = reference.lower()
        return self._by_id.get((False, low)) or self._by_id.get((True, reference))

    def best(self, n: int | None = None) -> list[EvidenceItem]:
        """The items that ranked highest over all searches, at most `n`; in the order of handles."""
        ranked = sorted(self.items, key=lambda item: -item.weight)[:n]
        chosen = {item.handle for item in ranked}
        return [item for item in self.items if item.handle in chosen]


def within(lines: Sequence[str], budget: int) -> int:
    """How many of the lines, from the first on, fit a budget in tokens."""
    total = 0
    for count, cost in enumerate(tokens.counts(lines).tolist()):
        total += cost + 1
        if total > budget:
            return count
    return len(lines)
