"""Who proposes edits of a document: a language model, or rules."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson

from retrieval.llm.asking import Asker, ModelUsage
from retrieval.llm.fences import RULE, fence, fenced
from retrieval.llm.reading import NoJson, json_object, list_of
from retrieval.mental.delta import OPERATIONS, ShownFact
from retrieval.mental.document import Document
from retrieval.protocols import LLM

ANSWER_TOKENS = 6_000
SCOPE = "delta_operations"


@dataclass(frozen=True, slots=True)
class EditRequest:
    """A document, and what changed: `facts` are new; `replaced`: (what the document was told
    before, by a fact that says something else now); `mixed`: ids of blocks of which a part is no
    longer known, and `gone` what that part said."""

    tenant: str
    bank_id: str
    question: str
    document: Document
    facts: Sequence[ShownFact]
    replaced: Mapping[str, str] = field(default_factory=dict)
    mixed: Sequence[str] = ()
    gone: Sequence[str] = ()
    directives: Sequence[str] = ()
    max_tokens: int = 2048
    language: str | None = None
    turn: str = "refresh"
    deadline: float | None = None


@dataclass(frozen=True, slots=True)
class Proposal:
    """Edits as they were said: nothing of them is checked."""

    edits: Sequence[Any]
    usage: ModelUsage = field(default_factory=ModelUsage)
    llm_calls: tuple[Mapping[str, Any], ...] = ()


class Editor(Protocol):
    async def propose(self, request: EditRequest) -> Proposal:
        """Without a lock or a connection held. ModelFailed and what else protocols.LLM raises."""
        ...


_text = {"type": ["string", "null"]}
_texts = {"type": ["array", "null"], "items": {"type": "string"}}
_EDIT = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "reason": {"type": "string"},
        "op": {"type": "string", "enum": list(OPERATIONS)},
        "section_id": _text,
        "block_id": _text,
        "heading": _text,
        "blocks": _texts,
        "facts": _texts,
    },
    "required": ["reason", "op", "section_id", "block_id", "heading", "blocks", "facts"],
}
SCHEMA = (
    "document_edits",
    {
        "type": "object",
        "additionalProperties": False,
        "properties": {"operations": {"type": "array", "items": _EDIT}},
        "required": ["operations"],
    },
)

_SYSTEM = f"""You keep a document up to date. It answers one question; facts have changed since it
was
written. Propose the fewest edits that make it right again. What you do not name stays as it is, so
never write again what still holds.

{RULE}

Edits, each with `reason` first, in one JSON object {{"operations": [...]}}:
- add_section: heading, blocks; behind section_id, or at the end without one
- remove_section: section_id
- rename_section: section_id, heading
- replace_section_blocks: section_id, blocks
- append_block: section_id, blocks
- insert_block: behind block_id, or first in section_id; blocks
- replace_block: block_id, blocks
- remove_block: block_id

Rules:
- `blocks` are texts in markdown, without headings; one paragraph, list or table each.
- `facts` names the facts that an edit rests on (F1, F2, ...). Every edit that adds, replaces or
  removes something needs them, but for what is no longer known. Ids and F-names never stand in a
  text.
- State nothing that the named facts, or the block that is replaced, do not say.
- A fact about an earlier time does not replace what holds now: leave it out, or add it as history.
- Facts that have nothing to do with the question, or say nothing new, need no edit. No edits at all
  is a good answer: {{"operations": []}}.
- Write in the language of the document."""


@dataclass(frozen=True, slots=True)
class ModelEditor:
    """Asks a language model, once, and once more where its answer cannot be read."""

    llm: LLM

    async def propose(self, request: EditRequest) -> Proposal:
        asker = Asker(
            self.llm,
            "reflect",
            request.turn,
            request.tenant,
            request.bank_id,
            request.deadline,
            {"scope": SCOPE},
        )
        began = time.monotonic()
        edits = await asker.read(messages(request), SCHEMA, _read, max_tokens=ANSWER_TOKENS)
        spent = round((time.monotonic() - began) * 1000)
        return Proposal(edits, asker.usage, ({"scope": SCOPE, "duration_ms": spent},))


def _read(text: str, last: bool) -> Sequence[Any]:
    found = json_object(text)
    if not isinstance(found.get("operations"), list):
        raise NoJson("there is no list called operations")
    return list_of(found["operations"])


def messages(request: EditRequest) -> list[dict[str, str]]:
    """What the model is told."""
    name = fence()
    parts = [
        f"The question: {fenced(name, request.question)}",
        f"The document:\n{fenced(name, _lines(request.document))}",
    ]
    if request.facts:
        lines = "\n".join(_fact(fact, request.replaced) for fact in request.facts)
        parts.append(f"Facts that are new or changed:\n{fenced(name, lines)}")
    if request.mixed:
        gone = "\n".join(_json({"no longer known": text}) for text in request.gone)
        parts.append(
            f"A part of the blocks {', '.join(request.mixed)} is no longer known. Take out of them"
            f" what only these said, and keep the rest:\n{fenced(name, gone)}"
        )
    if request.directives:
        rules = "\n".join(f"- {one}" for one in request.directives)
        parts.append(f"Rules for what is written:\n{fenced(name, rules)}")
    parts.append(f"The document may have about {request.max_tokens} tokens.")
    if request.language:
        parts.append(f"Write in {request.language}.")
    return [
        {"role": "system", "content": _SYSTEM},
        {"role": "user", "content": "\n\n".join(parts)},
    ]


def _lines(document: Document) -> str:
    """The document, a section or block a line of JSON."""
    lines = []
    for section in document.sections:
        lines.append(_json({"section": section.id, "heading": section.heading}))
        for block in section.blocks:
            shown = {"block": block.id, "text": block.text}
            if block.as_of:
                shown["as of"] = block.as_of[:10]
            lines.append(_json(shown))
    return "\n".join(lines)


def _fact(fact: ShownFact, replaced: Mapping[str, str]) -> str:
    shown = {"fact": fact.handle, "text": fact.text}
    if fact.time:
        shown["about"] = fact.time[:10]
    if fact.id in replaced:
        shown["said before"] = replaced[fact.id]
    return _json(shown)


def _json(value: Mapping[str, Any]) -> str:
    return orjson.dumps(value).decode()


@dataclass(frozen=True, slots=True)
class RulesEditor:
    """Every new fact becomes a block at the end; what a changed one said before is replaced."""

    async def propose(self, request: EditRequest) -> Proposal:
        edits: list[dict[str, Any]] = []
        sections = request.document.sections
        held = {b.text.casefold() for b in request.document.blocks()}
        by_text = {b.text: b.id for b in request.document.blocks()}
        for fact in request.facts:
            before = by_text.get(request.replaced.get(fact.id, ""))
            if before is not None:
                edits.append(
                    {"op": "replace_block", "block_id": before, "blocks": [fact.text],
                     "facts": [fact.handle]}
                )  # fmt: skip
            elif fact.text.casefold() not in held:
                held.add(fact.text.casefold())
                edits.append(
                    {"op": "append_block", "section_id": sections[-1].id if sections else None,
                     "blocks": [fact.text], "facts": [fact.handle]}
                )  # fmt: skip
        edits += [{"op": "remove_block", "block_id": id} for id in request.mixed]
        return Proposal(edits)


__all__ = ["EditRequest", "Editor", "ModelEditor", "Proposal", "RulesEditor"]
