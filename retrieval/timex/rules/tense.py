"""Whether a sentence tells of the past, by the shape of its verbs: "How was the weekend?"."""

from __future__ import annotations

import re
from functools import cache, lru_cache

from retrieval.timex.engine.grammar import Context
from retrieval.timex.engine.text import fold
from retrieval.timex.rules.chinese import told_in_the_past

_PAST = {
    "en": r"\b(?:did|was|were|had|went|saw|met|spent|made|came|\w{2,12}ed)\b",
    "de": r"\b(?:war|waren|warst|wart|hatten?|gingen?|passierte|machten?|"
    r"ge(?!hen\b|ben\b|gen\b|gessen)\w{2,12}(?:t|en))\b",
    "fr": r"\b(?:etai\w{1,4}|j'ai|as-tu|a-t-\w+|avons|avez|ont|s'est|c'etait)\b",
    "es": r"\b(?:hizo|hice|hiciste|hicimos|hicieron|fue|fui|fuimos|fuiste|fueron|estuv\w+|paso|"
    r"estaba\w*|era|\w{2,12}aste)\b",
    "it": r"\b(?:era|erano|eravamo|stata|stato|(?:ho|hai|ha|abbiamo|avete|hanno) \w{2,12}[ts]o|"
    r"(?:siamo|sei|sono) \w{2,12}t[oaie])\b",
    "pt": r"\b(?:fez|fiz|fizemos|fizeram|foi|fui|fomos|foram|estav\w+|aconteceu|\w{2,12}ou)\b",
    "nl": r"\b(?:was|waren|had|hadden|deed|deden|ging|gingen|gebeurde|"
    r"ge(?!ven\b|en\b)\w{2,12}(?:d|t|en|aan))\b",
    "sv": r"\b(?:hade|gjorde|gjort|hande|akte|gick|\w{2,12}ade)\b",
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


@lru_cache(maxsize=8)
def _told(language: str, text: str) -> bool:
    """Kept for the text that is read: it may name many weekends."""
    if language == "ko":
        told = any(map(_ends_in_past, text))
    else:
        pattern = _past(language)
        told = pattern is not None and pattern.search(text) is not None
    return told and _PLANNED.search(text) is None


def _ends_in_past(character: str) -> bool:
    """Whether a Korean syllable closes with the sign of the past: 했, 갔, 었; not 있 and 겠."""
    code = ord(character) - 0xAC00
    return 0 <= code < 11_172 and code % 28 == 20 and character not in "있겠"
