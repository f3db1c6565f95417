"""An answer without a language model: the sentences of a bank that fit a question best.

Deterministic and marked as what it is. It stands in where `extractive` is the provider, and where a
model gave no answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from retrieval.llm.grounding import sentences
from retrieval.reflect.checking import at_hand, content_words
from retrieval.reflect.citing import CitedAnswer, Sentence
from retrieval.reflect.evidence import EvidenceItem
from retrieval.text import tokens
from retrieval.text.folding import fold

MARK = "[extractive]"
NOTHING = f"{MARK} Nothing that was found answers the question."
MOST_SENTENCES = 8
_FOREVER = datetime.max.replace(tzinfo=UTC)


def answer(question: str, items: Iterable[EvidenceItem], most_tokens: int) -> CitedAnswer:
    """The best sentences of the items that have to do with the question, in order of time, each
    citing its item."""
    chosen = _best(question, at_hand(question, items), most_tokens)
    if not chosen:
        return CitedAnswer(NOTHING)
    parts, made = [MARK], []
    size = len(MARK)
    for item, said in sorted(chosen, key=lambda pair: (_time(pair[0]), pair[0].handle)):
        parts.append(said)
        start = size + 1
        size = start + len(said)
        made.append(Sentence(start, size, said, (item,)))
    return CitedAnswer(" ".join(parts), tuple(made))


def _best(
    question: str, items: Sequence[EvidenceItem], most_tokens: int
) -> list[tuple[EvidenceItem, str]]:
    wanted = content_words(question)
    scored: dict[str, tuple[float, EvidenceItem, str]] = {}
    for item in items:
        for start, end in sentences(item.text):
            said = " ".join(item.text[start:end].split())
            shared = len(wanted & content_words(said)) / max(1, len(wanted))
            score = shared + item.similarity + 10 * item.weight
            key = fold(said).strip(" .!")
            if key and (key not in scored or scored[key][0] < score):
                scored[key] = (score, item, said if said[-1:] in ".!?。！？…" else f"{said}.")
    found: list[tuple[EvidenceItem, str]] = []
    left = most_tokens
    for _, item, said in sorted(scored.values(), key=lambda one: -one[0])[:MOST_SENTENCES]:
        left -= tokens.count(said) + 1
        if left < 0 and found:
            break
        found.append((item, said))
    return found


def _time(item: EvidenceItem) -> datetime:
    return min(item.dates, default=_FOREVER)


def structured(
    schema: Mapping[str, Any], items: Sequence[EvidenceItem]
) -> tuple[dict[str, Any] | None, str | None]:
    """(the properties that stand as "key: value" in what was found, what is missing)."""
    found: dict[str, Any] = {}
    for name, shape in schema.get("properties", {}).items():
        value = _value(name, items)
        if value is not None and (read := _typed(value, shape)) is not None:
            found[name] = read
    missing = [name for name in schema.get("required", ()) if name not in found]
    if missing or not found:
        which = ", ".join(missing) or "its properties"
        return None, f"without a language model no values were found for {which}"
    return found, None


def _value(name: str, items: Sequence[EvidenceItem]) -> str | None:
    words = r"[\s_-]+".join(re.escape(word) for word in re.split(r"[\s_-]+", name) if word)
    said = re.compile(
        rf"(?<!\w){words}\s*(?::|=|\bis\b|\bare\b|\bwas\b)\s*([^.;\n]+)", re.IGNORECASE
    )
    for item in items:
        for key, value in (item.fields.get("metadata") or {}).items():
            if fold(key) == fold(name):
                return str(value)
        if match := said.search(item.text):
            return match[1].strip()
    return None


def _typed(value: str, shape: Any) -> Any:
    kind = shape.get("type") if isinstance(shape, Mapping) else None
    if kind in ("integer", "number"):
        match = re.search(r"-?\d+(?:\.\d+)?", value)
        if match is None:
            return None
        number = float(match[0])
        return int(number) if kind == "integer" and number == int(number) else number
    if kind == "boolean":
        return {"yes": True, "true": True, "no": False, "false": False}.get(fold(value).strip())
    if kind == "array":
        return [part.strip() for part in re.split(r",|\band\b", value) if part.strip()]
    return value if kind == "string" else None
