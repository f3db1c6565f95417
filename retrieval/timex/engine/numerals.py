"""Numbers in words: English "twenty-first", German "einundzwanzig", Chinese 二十一 and 二〇二四."""

from __future__ import annotations

from functools import lru_cache

from retrieval.timex.engine.grammar import Token, chars_of, kind_of

HAN_DIGITS = {
    "零": 0, "〇": 0, "○": 0, "一": 1, "二": 2, "两": 2, "俩": 2, "三": 3, "四": 4, "五": 5,
    "六": 6, "七": 7, "八": 8, "九": 9, "十": 10, "百": 100, "千": 1000, "万": 10_000,
    "廿": 20, "卅": 30,
}  # fmt: skip


HANGUL_DIGITS = dict(
    zip("일이삼사오육칠팔구십백천", (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 100, 1000), strict=True)
)


def hangul_year(written: str) -> int | None:
    """The year that Korean numerals spell, 천구백팔십사; None where they spell none."""
    total = digit = 0
    for character in written:
        value = HANGUL_DIGITS[character]
        if value < 10:
            if digit:
                return None
            digit = value
        else:
            total += (digit or 1) * value
            digit = 0
    return total + digit if 1000 <= total + digit <= 2999 else None


def han_number(written: str) -> int | None:
    """The value of a run of Han numerals; None where it is no well-formed number."""
    values = [HAN_DIGITS[c] for c in written]
    if len(values) > 1 and all(v < 10 for v in values):
        if len(values) == 2 and 0 not in values[:1] and len(written) == 2 and values[0] != 0:
            return None  # "三四": three or four
        return int("".join(map(str, values)))
    total = section = digit = 0
    for value in values:
        if value < 10:
            if digit:
                return None
            digit = value
        elif value == 10_000:
            total += (section + digit or 1) * value
            section = digit = 0
        elif value in (20, 30):
            section += value
        else:
            section += (digit or 1) * value
            digit = 0
    return total + section + digit


def combine(values: list[int]) -> int | None:
    """One number from number words in the order they were said; None where they do not fit.

    Two numbers of two digits side by side make a year: nineteen eighty-four.
    """
    total = current = 0
    for value in values:
        if value == 100:
            current = (current or 1) * 100
        elif value >= 1000:
            total += (current or 1) * value
            current = 0
        elif current == 0:
            current = value
        elif value == 0 and 10 <= current <= 20 and not total:
            current *= 100  # "nineteen oh five"
        elif (value < 10 and current % 10 == 0 and current % 100 >= 20) or (
            current % 100 == 0 and value < 100
        ):
            current += value
        elif value >= 20 and value % 10 == 0 and current % 100 and current % 100 < 10:
            current += value  # "ein und zwanzig"
        elif 10 <= current <= 20 and 10 <= value <= 99 and not total:
            current = current * 100 + value
        elif current > 1000 and current % 100 and current % 10 == 0 and value < 10:
            current += value
        else:
            return None
    return total + current


@lru_cache(maxsize=4096)
def _split(
    word: str, words: tuple[tuple[str, int], ...], joints: tuple[str, ...]
) -> tuple[int, ...] | None:
    if not word:
        return ()
    for part, value in words:
        if word.startswith(part):
            rest = _split(word[len(part) :], words, joints)
            if rest is not None:
                return (value, *rest)
    for joint in joints:
        if word.startswith(joint) and len(word) > len(joint):
            rest = _split(word[len(joint) :], words, joints)
            if rest is not None:
                return rest
    return None


def _units_first(values: tuple[int, ...]) -> list[int]:
    """ "Nine-and-eighty" as 89, so that the rest reads as in English."""
    joined: list[int] = []
    for value in values:
        if joined and joined[-1] < 10 and value in (20, 30, 40, 50, 60, 70, 80, 90):
            joined[-1] += value
        else:
            joined.append(value)
    return joined


_ORDINAL_ENDINGS = (
    "sten",
    "ste",
    "ster",
    "stes",
    "ten",
    "te",
    "ter",
    "de",
    "esimo",
    "esima",
    "nde",
)


def compound_number(
    word: str, numbers: tuple[tuple[str, int], ...], joints: tuple[str, ...]
) -> tuple[int, bool] | None:
    """(value, is it an ordinal) of number words written as one; None where it is none."""
    if len(word) > 40:
        return None
    values = _split(word, numbers, joints)
    if values is not None and len(values) > 1:
        value = combine(_units_first(values))
        return None if value is None else (value, False)
    for ending in _ORDINAL_ENDINGS:
        if word.endswith(ending) and len(word) > len(ending) + 2:
            values = _split(word[: -len(ending)], numbers, joints)
            if values:
                value = combine(_units_first(values))
                if value is not None:
                    return value, True
    return None


_NUM, _ORD, _YEAR, _AND, _DASH, _A = map(kind_of, ("NUM", "ORD", "YEAR", "AND", "DASH", "A"))


_ORDMARK, _ERA, _FIRSTYEAR = kind_of("ORDMARK"), kind_of("ERA"), kind_of("FIRSTYEAR")
_YMARK = kind_of("YMARK")
_JOINING = chars_of("AND") | {_DASH}
_NUMBERS = chars_of("NUM") - chars_of("ORD")
_MOST_WORDS = 12
"""A number in words has no more: "two thousand two thousand ..." takes time as its length does."""


def merge_numbers(tokens: list[Token], joined_by_and: bool) -> list[Token]:
    """Neighbouring number words as one token; a four-digit result is a year."""
    merged: list[Token] = []
    at = 0
    while at < len(tokens):
        token = tokens[at]
        if token.kind in (_ORDMARK, _ERA) and at + 1 < len(tokens):
            number = tokens[at + 1]
            if token.kind == _ERA and number.kind == _FIRSTYEAR:  # 元年: the first, and the mark
                year = int(str(token.value)) + 1
                middle = number.end - 1
                merged.append(Token(_YEAR, year, token.start, middle, str(year)))
                merged.append(Token(_YMARK, None, middle, number.end))
                at += 2
                continue
            if number.kind in _NUMBERS and isinstance(number.value, int):
                if token.kind == _ORDMARK:
                    made = Token(_ORD, number.value, token.start, number.end, number.text)
                else:
                    year = number.value + int(str(token.value))
                    made = Token(_YEAR, year, token.start, number.end, str(year))
                merged.append(made)
                at += 2
                continue
        if token.kind == _ORD and token.value in (20, 30) and at + 1 < len(tokens):
            unit = tokens[at + 1]
            if unit.kind == _ORD and isinstance(unit.value, int) and unit.value < 10:
                merged.append(Token(_ORD, int(token.value) + unit.value, token.start, unit.end))
                at += 2
                continue
        if token.kind not in _NUMBERS | {_YEAR} or token.text:
            merged.append(token)
            at += 1
            continue
        values = [int(token.value)]  # type: ignore[arg-type]
        best, best_kind, best_value = at + 1, token.kind, values[0]
        look = at + 1
        while look < len(tokens) and len(values) < _MOST_WORDS:
            step = tokens[look]
            if step.kind in _JOINING and look + 1 < len(tokens):
                # A dash joins only inside a word; "and" only below a hundred or a thousand.
                glued = step.start == tokens[look - 1].end and step.end == tokens[look + 1].start
                if step.kind == _DASH and not glued:
                    break
                if step.kind != _DASH and not joined_by_and and values[-1] not in (100, 1000):
                    break
                look += 1
                step = tokens[look]
            if (step.kind not in _NUMBERS and step.kind != _ORD) or step.text:
                break
            tried = combine([*values, int(step.value)])  # type: ignore[arg-type]
            if tried is None:
                break
            values.append(int(step.value))  # type: ignore[arg-type]
            look += 1
            best, best_kind, best_value = look, step.kind, tried
            if step.kind == _ORD:
                break
        if best > at + 1 and best_kind != _ORD:
            best_kind = _NUM
        # Russian years are ordinals: "в тысяча девятьсот девяносто девятом".
        kind = _YEAR if 1000 <= best_value <= 2999 else best_kind
        merged.append(Token(kind, best_value, token.start, tokens[best - 1].end))
        at = best
    return merged


def forget_words() -> None:
    """Empties what is remembered of words."""
    _split.cache_clear()
