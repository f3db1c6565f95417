"""Made-up memories with the shape of real ones: Zipf-distributed words, names, dates, sessions.
The text makes no sense, its statistics do.

Seeded: the same arguments give the same bank everywhere.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from models.local.weights import find
from tests.bench.sets import Bank, Question
from tests.support.system import Memory

_FUNCTION_WORDS = (
    "the", "of", "and", "to", "a", "in", "that", "it", "is", "was", "for", "on", "with", "as",
    "at", "by", "from", "they", "we", "she", "he", "this", "about", "after", "before", "when",
    "while", "because", "so", "then", "there", "here", "into", "over", "out", "up",
)  # fmt: skip
_START = datetime(2023, 1, 1, tzinfo=UTC)

NAMES = 2_000
SESSION = 25
"""Memories per document."""


def bank(name: str, size: int, questions: int, seed: int = 7) -> Bank:
    """`size` memories of about 25 words in sessions of one day each over two years, and
    questions, no two alike, made of rare words of one memory each, every tenth with a month."""
    random = np.random.default_rng(seed)
    words = _vocabulary()
    names = [word.capitalize() for word in random.permutation(words)[:NAMES].tolist()]
    content = _zipf(random, len(words), size * 14).reshape(size, 14)
    small = random.integers(0, len(_FUNCTION_WORDS), (size, 11))
    people = _zipf(random, NAMES, size * 2).reshape(size, 2)
    days = np.sort(random.integers(0, 730, -(-size // SESSION)))
    memories: list[Memory] = []
    for row in range(size):
        spoken = [words[w] for w in content[row]] + [_FUNCTION_WORDS[w] for w in small[row]]
        spoken = [spoken[i] for i in random.permutation(len(spoken))]
        who = [names[p] for p in dict.fromkeys(people[row].tolist())]
        when = (_START + timedelta(days=int(days[row // SESSION]), hours=9)).isoformat()
        memories.append(
            {
                "key": f"m{row}",
                "text": f"{who[0]}: {' '.join(spoken)} {who[-1]}.",
                "entities": who,
                "occurred_start": when,
                "mentioned_at": when,
                "document_id": f"session-{row // SESSION}",
            }
        )
    asked: dict[str, Question] = {}
    while len(asked) < questions:
        row = int(random.integers(size))
        rare = sorted(content[row].tolist(), reverse=True)[:8]
        some = random.permutation(rare)[:5].tolist()
        text = f"what did {names[people[row][0]]} say about the " + " and ".join(
            words[w] for w in some
        )
        if row % 10 == 0:
            text += f" in {_START + timedelta(days=int(days[row // SESSION])):%B %Y}"
        asked[text] = Question(text, {f"m{row}": 1.0}, "synthetic")
    return Bank(name, tuple(memories), tuple(asked.values()))


def _vocabulary() -> list[str]:
    """The whole words of the packaged model's vocabulary, commonest first (some 20,000)."""
    lines = (find("packaged").path / "vocab.txt").read_text().split()
    return [word for word in lines if len(word) > 3 and word.isascii() and word.isalpha()]


def _zipf(random: np.random.Generator, size: int, count: int) -> NDArray[np.int64]:
    """`count` draws from 0 .. size - 1 where the r-th commonest has weight 1 / r."""
    weights = 1.0 / np.arange(1, size + 1)
    return np.searchsorted(np.cumsum(weights / weights.sum()), random.random(count)).clip(
        0, size - 1
    )
