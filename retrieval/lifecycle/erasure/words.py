"""What a process remembers of words that it has met, beside the banks that it holds."""

from __future__ import annotations

from retrieval.keyword import analyser
from retrieval.timex.engine import numerals, recognition


def forget() -> None:
    """Empties it. From any thread."""
    analyser.forget_words()
    recognition.forget_words()
    numerals.forget_words()
