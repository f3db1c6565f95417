"""Names in a text by their capital letters: a floor for where nothing better recognises them.

Runs of capitalised words that do not merely begin a sentence. Where capitals say nothing (German
writes every noun with one, a shout has only capitals) and at the start of a sentence, a common
given name tells.
"""

from __future__ import annotations

from functools import cache
from importlib import resources

import regex

_WORD = r"\p{Lu}(?:[\w&+#]|[.'’-](?=\w))*"
_LINK = r"(?:\s(?:of|the|de|la|van|von|der|da|di|al|bin))"
_RUN = regex.compile(rf"{_WORD}(?:{_LINK}{{0,2}}\s{_WORD}|\s\d+\b)*")
_SENTENCE = regex.compile(r"(?:^|[.!?:;。！？]\s*|\n\s*|[\"“(]\s*)$")
_CAPITALISED_ANYWAY = """
a an and any are as at be but by can could day did do does for from had has have he her here
hey hi him his how i if in is it its let may me might mr mrs ms my no not now of oh ok okay on
or our out she should so some thanks that the their them then there these they this those to
today tomorrow up us was we well were what when where which while who why will with would yes
yesterday you your january february march april june july august september october november
december monday tuesday wednesday thursday friday saturday sunday note todo warning ps
"""
_COMMON = frozenset(_CAPITALISED_ANYWAY.split())
_WORDS = regex.compile(r"\p{L}+")
_GERMAN_TEXT = """
der die das den dem des und ist sind nicht ein eine einen einem einer von zu auf für im hat haben
sich wird wurde ich wir sie er es beim zum zur
"""
_OTHER_TEXT = "the and of to is with for are this that"
_GERMAN, _OTHER = frozenset(_GERMAN_TEXT.split()), frozenset(_OTHER_TEXT.split())
_GERMAN_WORDS = 2
"""Different ones in a text, and more than of _OTHER, for its capitals to be those of nouns."""


@cache
def _given() -> frozenset[str]:
    """Common given names, lower-cased."""
    file = resources.files("retrieval.ingest") / "given_names.txt"
    return frozenset(file.read_text(encoding="utf-8").split())


def _nouns_have_capitals(text: str) -> bool:
    words = {word.lower() for word in _WORDS.findall(text)}
    german = len(words & _GERMAN)
    return german >= _GERMAN_WORDS and german > len(words & _OTHER)


def names(text: str, most: int = 50) -> list[str]:
    """Distinct names in order of first appearance, at most `most`."""
    found: dict[str, str] = {}
    inside: set[str] = set()
    starts: list[str] = []
    if text.isupper():
        return []
    nouns = _nouns_have_capitals(text)
    for match in _RUN.finditer(text):
        words = match[0].split()
        while words and words[0].lower().rstrip("'’s.") in _COMMON:
            words.pop(0)
        if nouns:
            given = [i for i, word in enumerate(words) if word.lower() in _given()]
            words = words[given[0] :] if given else []
        while words and words[-1].lower() in _COMMON:
            words.pop()
        name = regex.sub(r"['’]s$", "", " ".join(words))
        if len(name) < 2 or name.isdigit():
            continue
        first_word = match[0].split()[0] == words[0]
        alone = first_word and len(words) == 1 and text[match.end() : match.end() + 1] != ":"
        known = words[0].lower() in _given()
        if alone and not known and _SENTENCE.search(text[: match.start()]):
            starts.append(name)  # a capital that the sentence asks for: a name if seen elsewhere
            found.setdefault(name.lower(), "")
        else:
            inside.add(name.lower())
            if not found.get(name.lower()):
                found[name.lower()] = name
    confirmed = {name.lower(): name for name in starts if name.lower() in inside}
    return [confirmed.get(key, name) for key, name in found.items() if name][:most]
