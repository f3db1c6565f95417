"""Numbers that are names or counts of things: version 2019, Room 2024, 2,000 steps, her nineties.

Looked at before any rule runs, as names are: such a number is no year, day or decade.
"""

from __future__ import annotations

from functools import cache

from retrieval.timex.engine.grammar import DATE, OTHER, Span, Token, chars_of
from retrieval.timex.engine.tables import word_lists
from retrieval.timex.engine.text import fold


@cache
def _words(name: str) -> frozenset[str]:
    """One of the lists in labels.toml, folded."""
    return frozenset(fold(word_lists("labels")[name]).split())


def _kinds(names: str) -> frozenset[str]:
    return frozenset[str]().union(*map(chars_of, names.split()))


_YEAR, _NUMBER = _kinds("YEAR"), _kinds("NUM YEAR MD")
_JOINING, _PARTS = _kinds("TO AND DASH UNTIL OF"), _kinds("EARLY MID LATE DASH THE")
_DAYS, _IN = _kinds("MD"), chars_of("IN") - chars_of("TO")
_MONTHS, _LINKING = _kinds("MON"), _kinds("OF THE FROM")
_NUMBERING = _kinds("NUM ORD ROMAN DOT DASH")
_CALLED = _MONTHS | _kinds("SEASON LONESEASON")
_DECADES, _ENDINGS = _kinds("DECADE"), _kinds("DECS")


def labels(folded: str, tokens: list[Token]) -> frozenset[int]:
    """Where the numbers start that are labels, counts or ages, whatever else they look like."""
    words = [folded[token.start : token.end] for token in tokens]
    unspaced = tuple(_words("unspaced"))
    found: set[int] = set()
    for at, token in enumerate(tokens):
        kind = token.kind
        if kind in _NUMBER or kind == DATE:
            led = folded[max(0, token.start - 8) : token.start].rstrip().endswith(unspaced)
            if (
                (led and _loose(token))
                or _is_label(words, tokens, at)
                or _is_count(words, tokens, at)
            ):
                found.add(token.start)
                found.update(_partner(tokens, at))
        elif kind in _DECADES or kind in _ENDINGS:
            found.update(_age(words, tokens, at))
        if kind in _MONTHS or kind in _YEAR:
            found.update(_street(words, tokens, at))
        if kind in _NUMBER and _is_address(words, tokens, at):
            found.update((token.start, tokens[at + 1].start))
    return frozenset(found)


def _loose(token: Token) -> bool:
    """Whether a token read from digits is no full date, or one with dots, as versions are."""
    if not isinstance(token.value, Span):
        return True
    return token.value.grain != "day" or not token.value.explicit or "." in token.text


def _is_label(words: list[str], tokens: list[Token], at: int) -> bool:
    if at == 0 or tokens[at - 1].kind != OTHER or not _loose(tokens[at]):
        return False
    before = words[at - 1]
    dotted = tokens[at].kind == DATE or "." in tokens[at].text
    return before in _words("versions") or (before in _words("things") and not dotted)


def _is_count(words: list[str], tokens: list[Token], at: int) -> bool:
    if not _loose(tokens[at]):
        return False
    if tokens[at].kind in _DAYS and not _words("streets").isdisjoint(words[at + 1 : at + 4]):
        return True
    after = words[at + 1] if at + 1 < len(words) else ""
    if after in _words("behind"):
        return True
    if tokens[at].kind in _YEAR and after in _words("ways"):
        return at == 0 or tokens[at - 1].kind not in _IN  # French "au 2020 rue Sherbrooke"
    if after not in _words("dated"):
        return after in _words("counted")
    ranged = at > 1 and tokens[at - 1].kind in _JOINING and tokens[at - 2].kind in _NUMBER
    return ranged or tokens[at].kind not in _YEAR


def _partner(tokens: list[Token], at: int) -> list[int]:
    """The other number of a range: "from 1900 to 2000 users", "in 1999 of 2000 cases"."""
    return [
        tokens[other].start
        for other in (at - 2, at + 2)
        if 0 <= other < len(tokens)
        and tokens[other].kind in _NUMBER
        and tokens[(at + other) // 2].kind in _JOINING
    ]


def _is_address(words: list[str], tokens: list[Token], at: int) -> bool:
    """ "1600 Summer Lane", "31 March Road"."""
    street = words[at + 2 : at + 3]
    return bool(street) and tokens[at + 1].kind in _CALLED and street[0] in _words("streets")


def _street(words: list[str], tokens: list[Token], at: int) -> list[int]:
    """What of a street's name stands up to a month or year: "rue du 4 Septembre"."""
    if (
        words[at + 1 : at + 2]
        and words[at + 1] in _words("ways")
        and at
        and tokens[at - 1].kind in _NUMBERING
    ):
        return [tokens[at - 1].start, tokens[at].start]  # Turkish "19 Mayıs Caddesi"
    first = at
    while first > 0 and at - first < 5 and tokens[first - 1].kind in _NUMBERING | _LINKING:
        first -= 1
    linked = tokens[first].kind in _LINKING
    if first < 1 or words[first - 1] not in _words("places" if linked else "ways"):
        return []
    numbered = any(token.kind in _NUMBERING for token in tokens[first:at])
    if tokens[at].kind in _MONTHS and not numbered:
        return []
    return [tokens[place].start for place in range(first, at + 1)]


def _age(words: list[str], tokens: list[Token], at: int) -> list[int]:
    """Where an age stands: "in her (early) twenties", "in his 90s"."""
    first = at - 1 if tokens[at].kind in _ENDINGS else at
    before = first - 1
    while before > 0 and tokens[before].kind in _PARTS:
        before -= 1
    if first < 1 or words[before] not in _words("owners"):
        return []
    return [tokens[place].start for place in range(before + 1, at + 1)]
