"""Facts of a chunk by rules: the stand-in for a language model where there is none.

A fact per sentence; names by their capitals; dates by the time grammar; what the narrator says in
the first person is an experience. Deterministic, without a network, marked as what it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import orjson

from retrieval.ingest.documents.chunking import chunk as cut
from retrieval.ingest.entities import naming
from retrieval.ingest.entities.mentions import distinct
from retrieval.ingest.extract import dates
from retrieval.ingest.extract.by_model import Chunk, ExtractionOutcome, Job
from retrieval.ingest.facts import ExtractedFact, Mention
from retrieval.types import FactType

SENTENCE_CHARS = 400
FACTS = 200
_SENTENCE = re.compile(r"(?<=[.!?…])[\"'”’)]*\s+|(?<=[。！？])|\n+")
_FIRST_PERSON = re.compile(
    r"\b(I|we|ich|wir|je|nous|yo|io|eu|ik|jag|я|мы|ben)\b|我|私|僕|저는|मैं", re.IGNORECASE
)
_SMALL_TALK = re.compile(
    r"^(hi|hey|hello|thanks?( you)?|ok(ay)?|yes|no|sure|great|bye|good (morning|night))\W*$",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class RuleExtractor:
    """See `ModelExtractor`, whose place it takes."""

    async def extract(
        self, job: Job, chunks: Sequence[Chunk], outcome: ExtractionOutcome
    ) -> list[list[ExtractedFact]]:
        """The facts of every chunk, in order; costs nothing and never fails."""
        outcome.chunks_total += len(chunks)
        return [facts(chunk.text, chunk.section.timestamp, job.narrator) for chunk in chunks]


def facts(text: str, timestamp: datetime | None, narrator: str) -> list[ExtractedFact]:
    """The sentences of a text that say something, each a fact."""
    found: dict[str, ExtractedFact] = {}
    for speaker, said in _turns(text):
        for sentence in _sentences(said):
            whole = f"{speaker}: {sentence}" if speaker else sentence
            if whole.casefold() not in found and len(found) < FACTS:
                found[whole.casefold()] = _fact(whole, sentence, speaker, timestamp, narrator)
    return list(found.values())


def _turns(text: str) -> list[tuple[str, str]]:
    """(speaker, what was said) of a conversation in JSON; other text is one turn of nobody."""
    if text.lstrip()[:1] not in ("[", "{"):
        return [("", text)]
    try:
        lines = [text] if text.lstrip().startswith("[") else text.split("\n")
        values = [value for line in lines if line.strip() for value in _list(orjson.loads(line))]
    except orjson.JSONDecodeError:
        return [("", text)]
    turns = []
    for value in values:
        if not isinstance(value, dict):
            return [("", text)]
        said = next((value[k] for k in ("content", "text", "message") if value.get(k)), None)
        who = next((value[k] for k in ("name", "speaker", "role", "author") if value.get(k)), "")
        turns.append((str(who), said if isinstance(said, str) else orjson.dumps(value).decode()))
    return turns


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def _sentences(text: str) -> list[str]:
    pieces = (
        piece.strip() for part in _SENTENCE.split(text) for piece in cut(part, SENTENCE_CHARS)
    )
    return [
        piece
        for piece in pieces
        if len(re.findall(r"\w", piece)) > 2 and not _SMALL_TALK.match(piece)
    ]


def _fact(
    whole: str, sentence: str, speaker: str, timestamp: datetime | None, narrator: str
) -> ExtractedFact:
    start = end = None
    if timestamp is not None:
        window = dates.the_one(dates.spoken(sentence, timestamp))
        if window is not None:
            window = dates.dated(window, timestamp)
            start, end = window.start, window.end
    own = speaker.casefold() in ("assistant", narrator.casefold()) if speaker else bool(narrator)
    names = [*([speaker] if speaker and speaker.casefold() not in ("user", "assistant") else []),
             *naming.names(sentence)]  # fmt: skip
    return ExtractedFact(
        whole,
        FactType.EXPERIENCE if own and _FIRST_PERSON.search(sentence) else FactType.WORLD,
        start,
        end,
        distinct([Mention(name) for name in names]),
    )
