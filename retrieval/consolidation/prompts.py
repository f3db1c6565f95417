"""What a language model is told when it makes observations out of facts.

The fixed part comes first and is the same for all banks; what a bank adds stands behind it. Facts
and observations are fenced data, one JSON object a line, under handles: ids are never shown.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import orjson

from retrieval.consolidation.batch import Batch, Shown
from retrieval.ingest.write.stored import StoredMemory
from retrieval.llm.blocks import PromptBlock, joined
from retrieval.llm.fences import RULE, fence, fenced

TEXT_CHARS = 2_000
"""Longest text of an observation."""

_TASK = f"""\
You keep the observations of an AI agent's long-term memory: sentences that say what holds, and \
what held, by the evidence of facts. You are given new facts (F1, F2, …) and the observations that \
may concern them (O1, O2, …), with some of the facts those were made from. Say what the new facts \
change.

- One observation for each facet of a subject: where somebody lives is one, whom they work for \
another, even if the words are alike.
- Update before you create: a fact about a facet that has an observation belongs to it. A fact \
that only says again what an observation says is more evidence for it: update it with its own text.
- State only what the facts say. Count nothing, add nothing up, conclude nothing. A number that is \
said anew takes the place of the old one.
- A correction ("Meta, not Google") is an update: the new text says what is right.
- A change ends a state: end the observation with the day of the change, and create one for the \
new state, from that day on. Only the same facet of the same subject can end it. The time of the \
events decides, not the order in which you learn of them: news of an earlier time ends nothing and \
replaces nothing; it gets an observation of its own, with its time.
- Where facts of about the same time disagree, cite both and say so.
- Write clean prose in the language of the facts, with names instead of pronouns and dates \
instead of "recently". Never write handles such as F1 or O2 into a text.
- Leave out what will not matter later (small talk, passing moods), unless the mission asks for it.

{RULE}"""

_ANSWER = f"""\
Answer with a JSON object whose "actions" are a list. Of each action:
- reason: why, in one sentence; decide only after it.
- do: "create", "update", "end", or "none" for facts that no observation is made of.
- observation: the handle of the observation to update or end, else null.
- facts: the handles of the facts that it rests on, at least one.
- text: of create and update, what the observation says, at most {TEXT_CHARS} characters; else null.
- from, until: ISO 8601 days since when or until when it holds, only if facts say so; else null. \
An end has the day of the change as until."""


def schema() -> tuple[str, dict[str, Any]]:
    """The shape of an answer, in what all providers' strict modes have in common."""
    nullable = {"type": ["string", "null"]}
    fields: dict[str, Any] = {
        "reason": {"type": "string"},
        "do": {"type": "string", "enum": ["create", "update", "end", "none"]},
        "observation": nullable,
        "facts": {"type": "array", "items": {"type": "string"}},
        "text": nullable,
        "from": nullable,
        "until": nullable,
    }
    return "actions", _closed({"actions": {"type": "array", "items": _closed(fields)}})


def _closed(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def blocks(mission: str | None, language: str | None) -> list[PromptBlock]:
    """The instructions; the same for every batch of a scope."""
    return [
        PromptBlock(_TASK, section="task"),
        PromptBlock(_ANSWER, section="answer"),
        PromptBlock(
            f"What the observations are to be about: {mission}" if mission else "",
            "observations_mission",
        ),
        PromptBlock(f"Write all texts in {language}." if language else "", "llm_output_language"),
    ]


def messages(batch: Batch, language: str | None) -> list[dict[str, str]]:
    """What is sent for one batch."""
    return [
        {"role": "system", "content": joined(blocks(batch.mission, language))},
        {"role": "user", "content": user(batch)},
    ]


def user(batch: Batch) -> str:
    """The facts and observations, as data."""
    name = fence()
    facts = "\n".join(_fact(i, fact) for i, fact in enumerate(batch.facts))
    parts = ["Facts:\n" + fenced(name, facts)]
    if batch.observations:
        shown = "\n".join(_observation(i, each) for i, each in enumerate(batch.observations))
        parts.append("Observations:\n" + fenced(name, shown))
    else:
        parts.append("There are no observations yet.")
    return "\n\n".join(parts)


def content_block() -> PromptBlock:
    """What stands in the place of facts and observations where a prompt is shown."""
    return PromptBlock("(the facts F1, F2, … and the observations O1, O2, …)", section="content")


def completion_tokens(count: int) -> int:
    """Room for the answer about so many facts."""
    return min(16_000, 1_000 + 400 * count)


def _fact(place: int, stored: StoredMemory) -> str:
    fact = stored.fact
    return _line(
        {
            "fact": f"F{place + 1}",
            "text": fact.text,
            "context": fact.context,
            "from": _day(fact.occurred_start),
            "until": _day(fact.occurred_end),
            "said": _day(fact.mentioned_at),
            "about": [name for _, name in stored.named],
        }
    )


def _observation(place: int, shown: Shown) -> str:
    fact = shown.stored.fact
    return _line(
        {
            "observation": f"O{place + 1}",
            "text": fact.text,
            "from": _day(fact.valid_from or fact.occurred_start),
            "until": _day(fact.valid_until),
            "evidence": fact.proof_count,
            "facts": [_said(source.text, source.when) for source in shown.sources],
        }
    )


def _said(text: str, when: datetime | None) -> str:
    return text if when is None else f"{text} [{_day(when)}]"


def _day(moment: datetime | None) -> str | None:
    """A day, with the time where it is not midnight."""
    if moment is None:
        return None
    midnight = (moment.hour, moment.minute, moment.second) == (0, 0, 0)
    return moment.date().isoformat() if midnight else moment.isoformat(timespec="minutes")


def _line(fields: dict[str, Any]) -> str:
    said = {key: value for key, value in fields.items() if value not in (None, "", [])}
    return orjson.dumps(said).decode()


def merge_messages(first: str, second: str) -> list[dict[str, str]]:
    """Whether two observations say the same."""
    name = fence()
    return [
        {
            "role": "system",
            "content": "Two observations of an AI agent's memory are very much alike. Do they say"
            " the same about the same subject, so that one of them is enough? If they differ in"
            " any fact, such as a name, a number, a time or a negation, they do not."
            ' Answer with a JSON object: "reason", one sentence, then "same", true or false.'
            f" {RULE}",
        },
        {"role": "user", "content": f"{fenced(name, first)}\n\n{fenced(name, second)}"},
    ]


def merge_schema() -> tuple[str, dict[str, Any]]:
    """The shape of that answer."""
    return "same", _closed({"reason": {"type": "string"}, "same": {"type": "boolean"}})
