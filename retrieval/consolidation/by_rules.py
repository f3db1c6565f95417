"""Observations by rules: the stand-in for a language model where there is none.

Of the observations about a fact's subject: one that says nearly the same is updated to the newest
sentence; one that says the same of something else, at an earlier time, is over, and the fact says
what holds since; otherwise the fact is an observation of its own. Deterministic, without a network.
Its answers are checked as a model's are.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import orjson

from retrieval.bank.resident import ResidentBank
from retrieval.consolidation.actions import known_at, latest
from retrieval.consolidation.batch import Batch, Shown
from retrieval.consolidation.prompts import TEXT_CHARS
from retrieval.ingest.write.rows import raw_ids
from retrieval.ingest.write.stored import StoredMemory
from retrieval.llm.grounding import negations, numbers
from retrieval.text.folding import fold
from retrieval.types import Floats

ALIKE = 0.85
"""Similarity from which on two sentences about a subject say the same."""
SAME_FRAME = 0.5
"""Share of words that two sentences have in common, beside names, which say the same of something
else."""
_WORD = re.compile(r"\w+")
_SMALL = frozenset(
    ("a", "an", "the", "in", "at", "of", "to", "on", "for", "and", "is", "was", "has", "had", "are",
     "were", "be", "been")
)  # fmt: skip


def decide(batch: Batch) -> str:
    """The answer for a batch, as a model would write it."""
    bank = batch.bank
    facts = _vectors(bank, list(batch.facts))
    shown = _vectors(bank, [one.stored for one in batch.observations])
    actions: list[dict[str, Any]] = []
    taken: set[int] = set()
    for place, fact in enumerate(batch.facts):
        if len(fact.fact.text) > TEXT_CHARS:
            actions.append(_action("none", place, "the memory is too long"))
            continue
        about = [
            at
            for at, one in enumerate(batch.observations)
            if at not in taken and _same_subject(bank, fact, one)
        ]
        alike = [at for at in about if float(facts[place] @ shown[at]) >= ALIKE]
        alike = [at for at in alike if not _differs(bank, fact, batch.observations[at])]
        if alike:
            best = max(alike, key=lambda at: float(facts[place] @ shown[at]))
            newer = _later(fact, batch.observations[best])
            text = fact.fact.text if newer else batch.observations[best].stored.fact.text
            actions.append(_action("update", place, "it says the same", best, text))
            taken.add(best)
            continue
        ended = [
            at
            for at in about
            if batch.observations[at].stored.fact.valid_until is None
            and _same_frame(bank, fact, batch.observations[at])
            and _later(fact, batch.observations[at])
        ]
        for at in ended:
            actions.append(_action("end", place, "something else holds since", at))
            taken.add(at)
        actions.append(_action("create", place, "it is new", text=fact.fact.text))
    return orjson.dumps({"actions": actions}).decode()


def _action(
    do: str, fact: int, reason: str, observation: int | None = None, text: str | None = None
) -> dict[str, Any]:
    return {
        "reason": reason,
        "do": do,
        "observation": None if observation is None else f"O{observation + 1}",
        "facts": [f"F{fact + 1}"],
        "text": text,
        "from": None,
        "until": None,
    }


def _vectors(bank: ResidentBank, stored: list[StoredMemory]) -> Floats:
    """Unit vectors (n, d); zeros where the bank holds none here."""
    if not stored or not bank.whole:
        return np.zeros((len(stored), 1), np.float32)
    ordinals = bank.ordinal_of(raw_ids([one.fact.id for one in stored]))
    rows = bank.vectors.rows(np.maximum(ordinals, 0))
    return np.where((ordinals >= 0)[:, None], rows, np.float32(0))


def _same_subject(bank: ResidentBank, fact: StoredMemory, shown: Shown) -> bool:
    about = bank.entities.find(fact.fact.text).tolist()
    other = bank.entities.find(shown.stored.fact.text).tolist()
    return bool(about) and bool(other) and about[0] == other[0]


def _differs(bank: ResidentBank, fact: StoredMemory, shown: Shown) -> bool:
    """Whether they differ in a name, a number or a negation: then they do not say the same."""
    first, second = fact.fact.text, shown.stored.fact.text
    find = bank.entities.find
    return (
        numbers(first) != numbers(second)
        or negations(first) != negations(second)
        or set(find(first).tolist()) != set(find(second).tolist())
    )


def _same_frame(bank: ResidentBank, fact: StoredMemory, shown: Shown) -> bool:
    """Whether they say the same of different things: the words agree but for names and numbers."""
    first, second = fact.fact.text, shown.stored.fact.text
    find = bank.entities.find
    same_names = set(find(first).tolist()) == set(find(second).tolist())
    if same_names and numbers(first) == numbers(second):
        return False
    own, other = _frame(bank, first), _frame(bank, second)
    every = own | other
    return bool(own & other) and len(own & other) >= SAME_FRAME * len(every)


def _frame(bank: ResidentBank, text: str) -> set[str]:
    """The words of a text that say what is said of its names."""
    named = {
        word
        for number in bank.entities.find(text).tolist()
        for word in _WORD.findall(fold(bank.entities.name[number]))
    }
    words = {word for word in _WORD.findall(fold(text)) if not any(c.isdigit() for c in word)}
    return words - named - _SMALL


def _later(fact: StoredMemory, shown: Shown) -> bool:
    news, known = latest([fact]), known_at(shown)
    return news is not None and (known is None or news.date() >= known.date())
