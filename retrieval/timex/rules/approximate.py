"""Words that make a number vague: "about three weeks ago", "il y a environ un mois".

They change no window. Before a number or a unit they are taken out, so that the rules read the time
as if they were not there; elsewhere they say nothing of time.
"""

from __future__ import annotations

from retrieval.timex.engine.grammar import OTHER, Token, any_of, chars_of, kind_of

_VAGUE = chars_of("APPROX")
_ONLY, _FEW = frozenset({kind_of("APPROX")}), any_of("A FEW COUPLE")
_COUNTS = any_of("NUM A FEW COUPLE HALFWORD AMOUNT ADJACENT UNIT UTIME")
_YEAR, _UNITS = chars_of("YEAR"), any_of("UNIT UTIME")


def without_vagueness(tokens: list[Token]) -> list[Token]:
    """The tokens without words for "about" before what they make vague."""
    if not any(token.kind in _VAGUE for token in tokens):
        return tokens
    kept: list[Token] = []
    for at, token in enumerate(tokens):
        following = [one.kind for one in tokens[at + 1 : at + 3]]
        if token.kind not in _VAGUE:
            kept.append(token)
        elif not following or not _is_count(token, following):
            only = token.kind in _ONLY
            kept.append(Token(OTHER, None, token.start, token.end, token.text) if only else token)
    return kept


def _is_count(token: Token, kinds: list[str]) -> bool:
    if kinds[0] in _YEAR:
        return len(kinds) > 1 and kinds[1] in _UNITS
    if token.kind in _FEW and kinds[0] in _UNITS:
        return False  # Spanish "unos meses" are a few
    return kinds[0] in _COUNTS
