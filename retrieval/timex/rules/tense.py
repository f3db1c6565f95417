"""Whether a sentence tells of the past, by the shape of its verbs: "How was the weekend?"."""

from __future__ import annotations

import re
from functools import cache, lru_cache

from retrieval.timex.engine.grammar import Context
from retrieval.timex.engine.text import fold
from retrieval.timex.rules.chinese import told_in_the_past

QUESTION = 300
"""Characters: of a longer text a rule sees what lies around its times, and places in that."""

_PAST = {
    "en": r"\b(?:did|was|were|had|went|saw|met|spent|made|came|\w{2,12}ed)\b",
    "de": r"\b(?:war|waren|warst|wart|hatten?|passierte|machten?|sagten?|"
    r"(?:ging|kam|rief|schrieb|fuhr|traf|fand|sprach|blieb)(?:en)?|wurden?|kauften?|"
    r"ge(?!hen\b|ben\b|gen\b|gessen)\w{2,12}(?:t|en))\b",
    "fr": r"\b(?:etai\w{1,4}|j'ai|as-tu|a-t-\w+|avons|avez|ont|s'est|c'etait)\b",
    "es": r"\b(?:hizo|hice|hiciste|hicimos|hicieron|fue|fui|fuimos|fuiste|fueron|estuv\w+|paso|"
    r"estaba\w*|era|\w{2,12}aste)\b",
    "it": r"\b(?:era|erano|eravamo|stata|stato|(?:ho|hai|ha|abbiamo|avete|hanno) \w{2,12}[ts]o|"
    r"(?:siamo|sei|sono) \w{2,12}t[oaie])\b",
    "pt": r"\b(?:fez|fiz|fizemos|fizeram|foi|fui|fomos|foram|estav\w+|aconteceu|\w{2,12}ou)\b",
    "nl": r"\b(?:was|waren|had|hadden|deed|deden|ging|gingen|gebeurde|kwam|"
    r"kwamen|zei|zeiden|zag|zagen|schreef|sprak|gaf|nam|stond|liep|werd|werden|bleef|belde|kocht|"
    r"kochten|aten|"
    r"ge(?!ven\b|en\b)\w{2,12}(?:d|t|en|aan))\b",
    "sv": r"\b(?:hade|gjorde|gjort|hande|akte|gick|kom|sa|fick|sag|skrev|ringde|kopte|blev|tog|"
    r"\w{2,12}ade)\b",
    "pl": r"\b\w{2,12}(?:ł|ła|ło|ły|łem|łam|łes|łas|lismy|łysmy|li)\b",
    "ru": r"\b[а-я]{2,12}(?:л|ла|ло|ли)(?:сь|ся)?\b",
    "tr": r"\b\w{2,12}[dt][iıuu](?:k|m|n|lar|ler|niz|nız)?\b",
    "hi": r"(?:था|थे|थी|गया|गई|गए|हुआ|हुई|किया|की थी)(?![\u0900-\u097f])",
    "ja": r"(?:まし|でし|だっ|かっ)た",
}  # fmt: skip
_PLANNED = re.compile(
    r"\b(?:will|going to|planned|plan|plans|werden|wird|geplant|prevu|previsto|gepland|planerat|"
    r"zaplanowan\w+|запланирован\w*|planlan\w+)\b"
)


@cache
def _past(language: str) -> re.Pattern[str] | None:
    written = _PAST.get(language)
    return None if written is None else re.compile(fold(written) if language == "hi" else written)


def asks_about_the_past(context: Context) -> bool:
    """Whether the sentence has a verb in the past and no word for a plan."""
    if context.language == "zh":
        return told_in_the_past(context)
    return _told(context.language, context.text)


def tells_of_the_past(context: Context, besides: re.Pattern[str]) -> bool:
    """The same of the sentence without these words: a participle among them tells nothing."""
    if context.language == "zh":
        return told_in_the_past(context)
    return _told_besides(context.language, context.text, besides)


@lru_cache(maxsize=16)
def _told_besides(language: str, text: str, besides: re.Pattern[str]) -> bool:
    """Kept as `_told` is."""
    return _has_a_past_verb(language, besides.sub(" ", text))


@lru_cache(maxsize=8)
def _told(language: str, text: str) -> bool:
    """Kept for the text that is read: it may name many weekends."""
    return _has_a_past_verb(language, text) and _PLANNED.search(text) is None


def _has_a_past_verb(language: str, text: str) -> bool:
    if language == "ko":
        return any(map(_ends_in_past, text))
    pattern = _past(language)
    return pattern is not None and pattern.search(text) is not None


def _ends_in_past(character: str) -> bool:
    """Whether a Korean syllable closes with the sign of the past: 했, 갔, 었; not 있 and 겠."""
    code = ord(character) - 0xAC00
    return 0 <= code < 11_172 and code % 28 == 20 and character not in "있겠"


_AHEAD = {
    "en": r"\b(?:planned|scheduled|due|upcoming|coming up|booked for|agenda for|plans? for)\b",
    "de": r"\b(?:geplant|vorgesehen|angesetzt|fallig|ansteh\w*|steht .{1,60} an\b)",
    "fr": r"\b(?:prevue?s?|planifiee?s?|programmee?s?|au programme)\b",
    "es": r"\b(?:previst[oa]s?|programad[oa]s?|planead[oa]s?|planificad[oa]s?|agendad[oa]s?)\b",
    "it": r"\b(?:previst[oaie]|programmat[oaie]|in programma|pianificat[oaie])\b",
    "pt": r"\b(?:previst|programad|planejad|planead|marcad|agendad)[oa]s?\b",
    "nl": r"\b(?:gepland|ingepland|op het programma|op de agenda|op de planning)\b",
    "sv": r"\b(?:planerat|planerad|planerade|inplanerat|inbokat|pa schemat|pa programmet)\b",
    "pl": r"\b(?:zaplanowan\w+|planowan\w+)\b",
    "ru": r"\b(?:запланирован\w*|намечен\w*)\b",
    "tr": r"\b(?:planlandi|planlaniyor|planli|planlanan|planlanmis)\b",
    "hi": "निर्धारित|तय है|योजना",
    "ja": "の予定",
    "zh": "安排|计划|打算|预定",
    "ko": "일정[은이]|계획[은이]",
}


@cache
def _ahead(language: str) -> re.Pattern[str] | None:
    written = _AHEAD.get(language)
    return None if written is None else re.compile(fold(written) if language == "hi" else written)


def asks_what_is_planned(context: Context) -> bool:
    """Whether the sentence asks for what is planned, and tells nothing of the past."""
    planned = _ahead(context.language)
    if planned is None or not is_said(planned, context.text):
        return False
    return not tells_of_the_past(context, planned)


@lru_cache(maxsize=16)
def is_said(words: re.Pattern[str], text: str) -> bool:
    """Whether a text has one of the words; kept for the text that is read, with its many days."""
    return words.search(text) is not None
