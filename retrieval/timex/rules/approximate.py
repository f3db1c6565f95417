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
_NUMBER, _ENDS = any_of("NUM HALFWORD"), any_of("AGO LATER BEFORE PAFTER")
_AHEAD, _TAKEN = chars_of("PRELATER"), any_of("COUNT ORD MOD PREV PAST")


def number_first(tokens: list[Token]) -> list[Token]:
    """The tokens with Russian "недели три назад", "дня через три" (about so many) in the order of
    "три недели назад": what is counted stands behind the number again."""
    turned = list(tokens)
    for at in range(len(turned) - 1):
        unit, number = turned[at], turned[at + 1]
        if unit.kind not in _UNITS or (at and turned[at - 1].kind in _TAKEN):
            continue
        after = turned[at + 2] if at + 2 < len(turned) else None
        if number.kind in _AHEAD and after is not None and after.kind in _NUMBER:
            turned[at : at + 3] = _placed(turned[at : at + 3], [number, after, unit])
        elif number.kind in _NUMBER and after is not None and after.kind in _ENDS:
            turned[at : at + 2] = _placed(turned[at : at + 2], [number, unit])
    return turned


def _placed(places: list[Token], tokens: list[Token]) -> list[Token]:
    """The tokens at the places in the text that these have."""
    return [
        Token(token.kind, token.value, place.start, place.end, token.text)
        for place, token in zip(places, tokens, strict=True)
    ]


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
