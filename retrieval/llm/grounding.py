"""Whether a text says only what its sources say: numbers, names, script. Pure, and without a model.

A model that invents mostly invents these. What passes is not proved true; what fails was not said.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime

import regex

from retrieval import timex
from retrieval.text.folding import fold

_GROUPED = re.compile(r"(?<=\d)[.,' \u202f\u00a0](?=\d{3}(?!\d))")
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_SENTENCE = regex.compile(
    r"[.!?…][\"'”’)\]]*+\K\s+(?=[\p{Lu}\p{Lo}\p{N}\"'“‘(\[*#-])|(?<=[。！？])|\n+"
)
_NO_END = regex.compile(
    r"(?:^[\s>*#-]*\d{1,3}|(?<![\p{L}\p{M}])(?:\p{Lu}|Dr|Mr|Mrs|Ms|Prof|St|Mt|Sr|Jr|Gen|Sen|Rep|Gov|Lt"
    r"|Col|Capt|Hon|Rev|No|Nr|Vol|Fig|vs|etc|e\.g|i\.e|cf|ca|approx|z\.\s?B|d\.\s?h|u\.\s?a|bzw|Hr|Fr|Sra"
    r"|Mme|Mlle|Herrn|Inc|Ltd|Co|a\.k\.a))\.$"
)
_HANDLE = re.compile(
    r"\[\s*[FOM]\d+(?:\s*[,;]\s*[FOM]\d+)*\s*\]|\b[FOM]\d{1,4}\b"
    r"|\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b",
    re.IGNORECASE,
)
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u202a-\u202e\u2066-\u2069]")
_SCRIPTS = (
    "Latin", "Cyrillic", "Greek", "Arabic", "Hebrew", "Devanagari", "Bengali", "Tamil", "Thai",
    "Hangul", "Han", "Hiragana", "Katakana",
)  # fmt: skip
_SCRIPT = {name: regex.compile(rf"\p{{{name}}}") for name in _SCRIPTS}
_SAME = {"Hiragana": "Japanese", "Katakana": "Japanese"}


def numbers(text: str) -> set[str]:
    """The numbers of a text, digits of any script, without marks of thousands."""
    return set(_NUMBER.findall(_GROUPED.sub("", fold(text))))


def invented_numbers(
    text: str,
    sources: Iterable[str],
    *,
    reference_time: datetime | None = None,
    dates: Iterable[datetime | None] = (),
) -> set[str]:
    """Numbers that stand in `text` and in none of the sources.

    `dates` are times that the sources are known to mean: their years, days, hours may be said in
    any form, and so may times that the sources say relative to `reference_time`.
    """
    said = set().union(*(numbers(source) for source in sources))
    rest = numbers(text) - said
    if not rest:
        return set()
    known = [moment for moment in dates if moment is not None]
    if reference_time is not None:
        known.append(reference_time)
        for source in sources:
            for found in timex.find(source, reference_time):
                known += [m for m in (found.window.start, found.window.end) if m is not None]
    for moment in known:
        parts = (moment.year, moment.month, moment.day, moment.hour, moment.minute)
        said |= {str(part) for part in parts} | {f"{part:02d}" for part in parts}
        said |= {f"{moment:%H:%M}", f"{moment.hour}:{moment:%M}"}
    if any(":" in number for number in rest):  # 10:30 of a source that says 10.30
        said |= {number.replace(".", ":") for number in said}
    # A part of a longer number, such as the year of 2024.05.01, was said as well.
    pieces = {piece for number in said for piece in re.split(r"[.,:]", number)}
    pieces |= {piece.lstrip("0") or "0" for piece in pieces}
    return {
        number
        for number in rest
        if number not in said
        and not all((p.lstrip("0") or "0") in pieces for p in re.split(r"[.,:]", number))
    }


def invented_dates(
    text: str,
    sources: Iterable[tuple[str, datetime | None]],
    dates: Iterable[datetime],
    now: datetime,
) -> list[str]:
    """Months, weekdays, days and years that `text` names and no source does.

    `sources`: texts, and when each was said; `dates`: times that they are known to mean. Without a
    year a month or a day is the same in every year. Words relative to now are left alone.
    """
    named = [one for one in timex.find(text, now) if one.explicit or one.rule in _RECURRING]
    if not named:
        return []
    windows: list[tuple[datetime, datetime]] | None = None
    wrong = []
    said = list(sources)
    for one in named:
        if any(fold(one.text.strip(" .")) in fold(source) for source, _ in said):
            continue
        if windows is None:
            windows = [(moment, moment) for moment in dates]
            for source, reference_time in said:
                for found in timex.find(source, reference_time or now):
                    if found.window.start is not None and found.window.end is not None:
                        windows.append((found.window.start, found.window.end))
        if not any(_same_time(one, *window) for window in windows):
            wrong.append(one.text.strip(" ."))
    return wrong


_RECURRING = ("month", "month and day", "weekday")


def _same_time(said: timex.TimeExpression, start: datetime, end: datetime) -> bool:
    first, last = said.window.start, said.window.end
    if first is None or last is None or (start <= last and end >= first):
        return True
    if said.explicit or (end - start).days > 31:
        return False
    if said.rule == "weekday":
        return start.weekday() == first.weekday()
    if said.rule == "month":
        return start.month == first.month or end.month == first.month
    return (start.month, start.day) == (first.month, first.day)


def names_in(text: str, names: Iterable[str]) -> list[str]:
    """Those of `names` that stand in the text as whole words, whatever their case."""
    held = fold(text)
    found = []
    for name in names:
        wanted = fold(name).strip()
        if wanted and wanted in held and _whole(wanted, held):
            found.append(name)
    return found


def _whole(wanted: str, held: str) -> bool:
    at = held.find(wanted)
    while at >= 0:
        before, after = held[at - 1 : at], held[at + len(wanted) : at + len(wanted) + 1]
        joined = (before.isalnum() and _spaced(before)) or (after.isalnum() and _spaced(after))
        if not joined:
            return True
        at = held.find(wanted, at + 1)
    return False


def _spaced(letter: str) -> bool:
    """Whether the letter's script puts spaces between words."""
    return not regex.match(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Hangul}]", letter)


def invented_names(text: str, known: Iterable[str], sources: Sequence[str]) -> list[str]:
    """Names that the bank knows, stand in `text`, and are in none of the sources."""
    held = "\n".join(sources)
    return [name for name in names_in(text, known) if not names_in(held, [name])]


def main_script(text: str) -> str:
    """The script that most letters of a text are written in; "" where it has none."""
    counts: Counter[str] = Counter()
    for name, pattern in _SCRIPT.items():
        if found := len(pattern.findall(text)):
            counts[_SAME.get(name, name)] += found
    if counts["Japanese"] and counts["Han"]:
        counts["Japanese"] += counts.pop("Han")
    return counts.most_common(1)[0][0] if counts else ""


def scripts(texts: Iterable[str]) -> set[str]:
    """The main scripts of some texts. Japanese may be written in Han alone."""
    found = {main_script(text) for text in texts} - {""}
    return found | {"Han"} if "Japanese" in found else found


def has_machinery(text: str, sources: Iterable[str] = ()) -> bool:
    """Whether a text holds handles, ids or control characters, which no reader should see; what
    stands in a source alike ("the F1 race") is no handle, unless in brackets."""
    if _CONTROL.search(text):
        return True
    said: set[str] | None = None
    for match in _HANDLE.finditer(text):
        if len(match[0]) > 5 or match[0].startswith("["):
            return True
        if said is None:
            said = {word.casefold() for s in sources for word in re.findall(r"\w+", s)}
        if match[0].casefold() not in said:
            return True
    return False


_NEGATION = re.compile(
    r"\b(?:not|no|never|none|nobody|nothing|neither|nor|without|cannot|\w+n't|no longer"
    r"|nicht|nie|niemals|kein\w*|nichts|niemand|ohne|ne|pas|jamais|aucune?|rien|sans|non|mai"
    r"|niente|nessun\w*|senza|nunca|nada|nadie|ning[uú]n\w*|sin|jamás|não|nenhum\w*|sem|niet|nooit"
    r"|geen|niets|zonder|inte|aldrig|ingen|inget|utan|не|нет|ни|никогда|никто|без|değil|yok|asla)\b"
    r"|不|没|沒|无|無|未|ない|ません|なかった|않|없|아니|नहीं|मत|لا|ليس|لم|لن",
    re.IGNORECASE,
)


def negations(text: str) -> int:
    """How many words of a text negate."""
    return len(_NEGATION.findall(text.replace("’", "'")))


def has_controls(text: str) -> bool:
    """Whether a text holds characters that are no part of prose: controls other than white space,
    halves of surrogate pairs, private ones."""
    return any(
        unicodedata.category(letter) in ("Cc", "Cs", "Co") and letter not in "\n\r\t"
        for letter in text
    ) or bool(_CONTROL.search(text))


def sentences(text: str) -> list[tuple[int, int]]:
    """[start, end) of each sentence of a text, in order, without the white space between them."""
    found: list[tuple[int, int]] = []
    start = 0
    for cut in [*((m.start(), m.end()) for m in _SENTENCE.finditer(text)), (len(text), len(text))]:
        piece = text[start : cut[0]]
        left, right = len(piece) - len(piece.lstrip()), len(piece.rstrip())
        if right > left:
            first = start + left
            if found and _goes_on(text, found[-1], first):
                first = found.pop()[0]
            found.append((first, start + right))
        start = cut[1]
    return found


def _goes_on(text: str, before: tuple[int, int], next_start: int) -> bool:
    """Whether what looked like the end of a sentence was an abbreviation or a number of a list."""
    start, end = before
    return "\n" not in text[end:next_start] and bool(_NO_END.search(text[start:end]))
