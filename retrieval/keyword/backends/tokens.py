"""Query words for the back-ends whose query language has to be kept away from user text."""

from __future__ import annotations

import regex

_WORD = regex.compile(r"\w+")
_UNSPACED = regex.compile(
    r"[\p{Han}\p{Hiragana}\p{Katakana}ー]+|\p{Hangul}+|[\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{M}]+"
)


def words(text: str) -> list[str]:
    """Lower case; every sign that is neither word character nor space divides."""
    return _WORD.findall(text.lower())


def pieces(text: str) -> list[str]:
    """`words`, with runs of scripts written without spaces as overlapping pairs, each once.

    A question in such a script is one word, and as one phrase it is found only where it stands
    verbatim.
    """
    found: dict[str, None] = {}
    for word in words(text):
        at = 0
        for run in _UNSPACED.finditer(word):
            if run.start() > at:
                found[word[at : run.start()]] = None
            part = run.group()
            for i in range(max(len(part) - 1, 1)):
                found[part[i : i + 2]] = None
            at = run.end()
        if at < len(word):
            found[word[at:]] = None
    return list(found)
