"""Questions that name a time by an event ("before Alice joined Google"), or ask for its length.

The words of each language that relate a time to an event stand either before the event's phrase
("before ...") or after it (Turkish "... önce", Japanese ...の後). They are looked for in the
languages that the text most resembles.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from functools import cache
from itertools import islice

from retrieval.timex.engine.analysis import covered, languages_of
from retrieval.timex.engine.text import Folded, fold
from retrieval.timex.expression import EventReference, Relation

# Longer words first within a relation; what is written with an article is no bare date.
_BEFORE_THE_EVENT: dict[str, dict[Relation, str]] = {
    "en": {
        "before": "before|prior to|ahead of|leading up to|in the run-up to",
        "after": "after|following (?=(?:the|a|his|her|my|our|their) )"
        "|in the wake of|right after|shortly after",
        "during": "while|during|throughout|in the course of|at the time of"
        "|when (?=(?:i|we|he|she|they|it|you) (?:was|were)\\b)|when (?=\\w+ (?:was|were) \\w)",
        "since": "ever since|since",
        "until": "up until|until|till",
    },
    "es": {
        "before": "antes de que|antes de|antes del|previo a",
        "after": "después de que|después de|después del|tras|luego de",
        "during": "mientras|durante",
        "since": "desde que|desde el|desde la|desde",
        "until": "hasta que|hasta el|hasta la|hasta",
    },
    "fr": {
        "before": "avant que|avant de|avant l'|avant",
        "after": "après que|après l'|après",
        "during": "pendant que|pendant|durant|lors de|lors du|tandis que",
        "since": "depuis que|depuis",
        "until": "jusqu'à ce que|jusqu'à|jusqu'au",
    },
    "de": {
        "before": "bevor|vor dem|vor der|ehe",
        "after": "nachdem|nach dem|nach der",
        "during": "während|als (?=(?:ich|wir|er|sie|es) )",
        "since": "seitdem|seit dem|seit der|seit",
        "until": "bis zum|bis zur|bis",
    },
    "it": {
        "before": "prima che|prima di|prima del|prima della|prima dell'",
        "after": "dopo che|dopo il|dopo la|dopo l'|dopo",
        "during": "mentre|durante",
        "since": "da quando",
        "until": "fino a quando|fino al|fino alla|finché",
    },
    "pt": {
        "before": "antes de|antes do|antes da|antes que",
        "after": "depois de|depois do|depois da|depois que|após",
        "during": "enquanto|durante",
        "since": "desde que|desde o|desde a",
        "until": "até que|até o|até a",
    },
    "nl": {
        "before": "voordat|voor de|voor het",
        "after": "nadat|na de|na het",
        "during": "terwijl|tijdens|toen (?=(?:ik|we|wij|hij|zij|ze) )",
        "since": "sinds|sedert",
        "until": "totdat|tot aan",
    },
    "sv": {
        "before": "innan|före",
        "after": "efter att|efter",
        "during": "medan|under",
        "since": "sedan",
        "until": "tills|fram till",
    },
    "ru": {
        "before": "до того как|до того, как|перед тем как|перед тем, как|перед|до",
        "after": "после того как|после того, как|после",
        "during": "пока|во время",
        "since": "с тех пор как|с тех пор, как|с момента",
        "until": "вплоть до",
    },
    "ar": {
        "before": "قبل أن|قبل",
        "after": "بعد أن|بعد",
        "during": "أثناء|خلال|بينما",
        "since": "منذ أن|منذ",
        "until": "حتى",
    },
}
_AFTER_THE_EVENT: dict[str, dict[Relation, str]] = {
    "tr": {
        "since": "(?:dan|den|tan|ten) beri",
        "before": "(?:dan|den|tan|ten) önce",
        "after": "(?:dan|den|tan|ten) sonra",
        "during": " sırasında| boyunca|ken",
        "until": "(?:a|e) kadar",
    },
    "zh": {
        "since": "以来",
        "before": "之前|以前",
        "after": "之后|以后",
        "during": "期间|的时候",
    },
    "ja": {
        "since": "以来",
        "before": "する前|の前に|の前|前に",
        "after": "した後|の後に|の後|後に|したあと",
        "during": "の間に|の間|中に|していたとき|のとき",
        "until": "するまで",
    },
    "ko": {
        "since": " 이래로| 이후로",
        "before": " 전에",
        "after": " 후에| 뒤에| 다음에",
        "during": " 동안| 중에",
        "until": " 때까지",
    },
    "hi": {
        "since": " के बाद से",
        "before": " से पहले| के पहले",
        "after": " के बाद",
        "during": " के दौरान",
    },
}
MAX_CHARACTERS = 4_000
"""An event, or a length of time, is looked for up to here: it stands in a question, and a longer
text is a document."""

_PHRASE = 300
_TRIED = 8
"""Most characters that an event's phrase has, and most phrases that are looked at: each is read as
if it were a question, since a plain date is no event."""

_STOP = re.compile(r"[?!,;]|\.(?=\s|$)")
# What also ends an event: where an English clause that opens a question ends without a comma, and
# any full stop where the relation stands behind the event.
_QUESTION = re.compile(r"\s(?=(?:what|who|whom|where|which|how|why|did|do|does)\b)")
_FULL_STOP = re.compile(r"[?!,;.]")
# What points back instead of naming an event, in the languages that stand before it.
_POINTERS = frozenset(
    fold(
        "that this it then all now them there me you him her us eso esto ello cela ca das dies "
        "quello questo isso isto dat dit это этого того"
    ).split()
)
_EMPTY = frozenset(
    fold(
        "the a an of in on at to and our my his her their el la los las le les l der die das den "
        "dem des il lo gli o os as do da de het een den det"
    ).split()
)


@cache
def _words(language: str) -> tuple[tuple[Relation, re.Pattern[str], bool], ...]:
    """Relations, what says them, and whether that stands before the event."""
    before = _BEFORE_THE_EVENT.get(language, {}).items()
    after = _AFTER_THE_EVENT.get(language, {}).items()
    return (
        *(
            (relation, re.compile(rf"(?<![^\W_])(?:{fold(words)})(?:(?<=')|\s)"), True)
            for relation, words in before
        ),
        *((relation, re.compile(fold(words)), False) for relation, words in after),
    )


def event_reference(text: str) -> EventReference | None:
    """The event by which a question names its time, or None.

    None also where the time is a plain date ("after 2023"), and where a length of time is asked
    for: an event is one end of that, no window. The leftmost relation counts, of the first eight.
    A text is read for MAX_CHARACTERS, an event for 300. Never raises; the caller finds out when
    the event was.
    """
    folded = Folded(text, MAX_CHARACTERS)
    if _ASKS_LENGTH.search(folded.text) is not None:
        return None
    for relation, start, end in sorted(_phrases(folded.text), key=lambda found: found[1])[:_TRIED]:
        if _names_an_event(folded.text[start:end]):
            first, last = folded.original_span(start, end)
            return EventReference(relation, text[first:last], first, last)
    return None


def _phrases(folded: str) -> Iterator[tuple[Relation, int, int]]:
    """What may be events: relation and place, trimmed; of one relation the first few."""
    for language in languages_of(folded):
        stops = [m.start() for m in _STOP.finditer(folded)]
        if language == "en":
            stops = sorted([*stops, *(m.start() for m in _QUESTION.finditer(folded))])
        full = [m.end() for m in _FULL_STOP.finditer(folded)]
        for relation, words, before in _words(language):
            done = 0
            for hit in islice(words.finditer(folded), _TRIED):
                if before:
                    start = hit.end()
                    at = bisect_left(stops, start)
                    end = stops[at] if at < len(stops) else len(folded)
                else:
                    end = hit.start()
                    at = bisect_right(full, end) - 1
                    start = max(done, full[at] if at >= 0 else 0)
                    done = hit.end()
                found = _trimmed(folded, start, end, before)
                if found is not None:
                    yield relation, *found


def _trimmed(folded: str, start: int, end: int, head: bool) -> tuple[int, int] | None:
    """A phrase without the space around it, and of a long one its head or its tail."""
    if end - start > _PHRASE:
        start, end = (start, start + _PHRASE) if head else (end - _PHRASE, end)
    phrase = folded[start:end]
    start += len(phrase) - len(phrase.lstrip())
    end -= len(phrase) - len(phrase.rstrip())
    return (start, end) if start < end else None


def _names_an_event(phrase: str) -> bool:
    words = phrase.split()
    if not words or (words[0] in _POINTERS and len(words) == 1):
        return False
    rest = phrase
    for start, end in reversed(covered(phrase)):
        rest = rest[:start] + " " + rest[end:]
    left = [w for w in re.findall(r"[^\W\d_]+", rest) if w not in _EMPTY]
    return bool(left) and not _only_numbers(phrase)


def _only_numbers(phrase: str) -> bool:
    return re.fullmatch(r"[\d\s./:-]+", phrase) is not None


def _any(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{fold(p)})" for p in patterns))


_UNITS_EN = "(?:days?|weeks?|months?|years?|hours?|minutes?)"
# Questions for a length of time: no window, whatever dates they name.
_ASKS_LENGTH = _any(
    r"\bhow long (?:ago|since|between|before|after|until|passed|had passed)\b",
    r"\bhow long (?:has it been|is it since|did it take)\b",
    rf"\bhow many {_UNITS_EN} (?:ago|between|since|before|after|until|had|have|has|passed|elapsed|"
    r"are there|were there|separate|lie|went by|from .{1,80}? (?:to|until))\b",
    rf"\bhow many {_UNITS_EN} (?:are |are there )?(?:in|to|of|per|an?) (?:an? )?"
    r"(?:day|week|month|year|hour|minute|quarter|decade|century)\b",
    r"\bhow much time (?:passed|elapsed|has passed|between|since)\b",
    r"\bcuánt[oa]s? (?:tiempo|días|semanas|meses|años) "
    r"(?:hace|ha pasado|han pasado|pasaron|entre|desde|hay entre)\b",
    r"\bhace cuánto\b",
    r"\bil y a combien\b|\bcombien de (?:temps|jours|semaines|mois|années) "
    r"(?:entre|depuis|se sont|y a|avant|après)\b",
    r"\bwie lange (?:ist es her|her|vor|nach|seit)\b|\bwie viele (?:tage|wochen|monate|jahre) "
    r"(?:zwischen|seit|vor|nach|liegen|lagen|vergingen)\b",
    r"\bvor wie (?:langer|vielen)\b",
    r"\bquant[oiea] (?:tempo|giorni|settimane|mesi|anni) (?:fa|tra|è passato|sono passat[ie])\b",
    r"\bhá quanto tempo\b|\bquantos (?:dias|anos|meses) (?:entre|desde|faz|há)\b",
    r"\bhoe lang geleden\b|\bhoeveel (?:dagen|weken|maanden|jaar) (?:geleden|tussen|sinds)\b",
    r"\bhur länge sedan\b|\bhur många (?:dagar|veckor|månader|år) (?:sedan|mellan)\b",
    r"\bne kadar (?:zaman )?önce\b|\bkaç (?:gün|hafta|ay|yıl) (?:önce|geçti)\b",
    r"(?<!\w)как давно|(?<!\w)сколько (?:времени|дней|недель|месяцев|лет) (?:назад|прошло|между)",
    "多久(?:以前|之前|前)|(?:隔了?|相隔|过了)多久|多少(?:天|周|个月|年)(?:前|之前|以前)",
    "(?:是|在|隔了?|过了)几(?:天|周|个月|年)",
    "どのくらい前|どれくらい前|何(?:日|週間|か月|ヶ月|年)前|何日間",
    "얼마나 오래 전|(?:며칠|몇 (?:일|주|달|개월|년)) (?:전(?:이|인|입|일까)|사이|동안)",
    "कितने (?:दिन|हफ्ते|महीने|साल) (?:पहले|बीच|हुए)",
    "منذ متى|كم (?:يوما|أسبوعا|شهرا|سنة) (?:بين|منذ|مضى)",
)


def asks_for_length(text: str) -> bool:
    """Whether a question asks how long ago, or how much time lies between: it gets no window."""
    return _ASKS_LENGTH.search(Folded(text, MAX_CHARACTERS).text) is not None
