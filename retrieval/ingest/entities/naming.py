"""Names in a text by their capital letters: a floor for where nothing better recognises them.

Runs of capitalised words that do not merely begin a sentence, and who speaks at the start of a
line, whatever the case. Where capitals say nothing (German writes every noun with one, a shout has
only capitals) and at the start of a sentence, a common given name tells.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib import resources

import regex

SCANNED = 50_000
"""Characters of a text that are looked at, from its beginning."""

LONGEST = 80
MOST_WORDS = 8
"""A name has no more characters and words than this: a longer run is a heading or a list."""

_LONGEST_RUN = 400

# Letters with case only: scripts written without spaces would run on into one name.
_LETTER = r"[\p{Lu}\p{Ll}\p{Lt}\p{M}\p{Nd}_&+#]"
_INITIALS = r"\p{Lu}\.(?:[\p{Lu}]\.)*+(?!\p{L})"
_SHORTENED = (
    r"(?:St|Mt|Ft|Dr|Mr|Mrs|Ms|Prof|Gen|Sen|Rep|Gov|Lt|Col|Capt|Sgt|Rev|Hon|Pres|Jr|Sr)\.(?!\w)"
)
_WORD = rf"(?:{_SHORTENED}|{_INITIALS}|[iev]?\p{{Lu}}(?:{_LETTER}|[.'’-](?={_LETTER}))*+)"
_LINK = r"(?:[ \t]++(?:of|the|de|la|del|van|von|der|den|da|di|dos|al|bin|ibn|y)(?=[ \t]))"
_GAP = r"[ \t]++"
_RUN = regex.compile(
    rf"(?<![\p{{Lu}}\p{{Ll}}\p{{Lt}}\p{{M}}\p{{Nd}}_'’]){_WORD}"
    rf"(?:{_LINK}{{0,2}}{_GAP}{_WORD}|(?<!['’]s)[ \t]\d{{1,9}}(?![\w.,:/-]{{0,9}}\d))*+"
)
_PART = regex.compile(rf"{_WORD}|\S++")
_INITIAL = regex.compile(r"\p{Lu}\.")
_CLASSES_TEXT = """
plan vitamin team group class type section part option room level grade phase hepatitis appendix
figure table exhibit building gate terminal line block size model series version schedule annex
point step unit area zone hall wing tier category channel
"""
_CLASSES = frozenset(_CLASSES_TEXT.split())
"""What is told apart by a letter: a full stop behind that letter ends the sentence."""

_LOOK_BACK = 24
_ENDS = '.!?:;。！？…\n"“”„«(（[*•>|'
_CLITIC = regex.compile(r"['’](?:s|m|ve|re|ll|d|S|M|VE|RE|LL|D)$")
_NEGATED = regex.compile(r"n['’]t$", regex.IGNORECASE)
_ELIDED = regex.compile(r"^(?:[CDJLMNST]|Qu)['’]\p{Ll}")
_CAPITALISED_ANYWAY = """
a about after again all almost already also although always am an and another any anyone anything
anyway are around as at be because been before being both but by can cannot could day despite did do
does done during each either else even ever every everyone everything finally first for from further
had has have having he hello hence her here hers hey hi him his how however i if in indeed inside
instead into is it its just last later least let like likewise look lot lots many may maybe me
meanwhile might mine more moreover most mostly mr mrs ms much must my near neither never
nevertheless next no none nor not nothing now of off often oh ok okay on once one only or other
others otherwise our ours out over own perhaps please quite rather really regarding same second she
should similarly since so some somebody someone something sometimes somewhere soon still such sure
than thank thanks that the their theirs them then there therefore these they this those though three
through thus to today together tomorrow tonight too two under unfortunately unless until up upon us
usually very was we welcome well were what whatever when whenever where whereas whether which while
who whoever whom whose why will with within without would wow yeah yep yes yesterday yet you your
yours january february march april june july august september october november december monday
tuesday wednesday thursday friday saturday sunday tue thu fri feb apr jul aug sep sept oct nov dec
note todo warning ps ain aren couldn didn doesn don't hadn hasn haven isn mustn needn shouldn wasn
weren won't wouldn elle nous vous ils elles je tu se si mais donc avec pour dans sur est c'est io
lui lei noi voi loro nel della pero però como cuando porque pero esta este está yo nosotros ele ela
eu nós as het een ik jij hij zij wij dat dit maar met voor hier aujourd'hui demain ayer hoy mañana
ieri oggi domani ontem hoje amanhã gisteren vandaag morgen вчера сегодня завтра я ты он она оно мы
вы они это этот эта эти тот как когда где что кто чей если но и а в на не да нет или потом тогда
теперь сейчас уже ещё мой моя мои наш наша у к с по за от для при после перед во со об о χθες σήμερα
αύριο και το η ο οι τα αυτό
"""
_COMMON = frozenset(_CAPITALISED_ANYWAY.split())
_ASKED_FOR_TEXT = """
ask call email text tell meet remind invite visit see thank help follow contact message ping make
give send show join bring buy get take find say told said met saw called asked talked speaking
according both use using reading watching listening working playing going trying
"""
_ASKED_FOR = frozenset(_ASKED_FOR_TEXT.split())
"""What a sentence begins with before a name."""

_ADDRESSED_TEXT = """
happy poor good great old young little big new nice lovely dear birthday congrats congratulations
"""
_ADDRESSED = frozenset(_ADDRESSED_TEXT.split())
"""What a sentence begins with before a given name; before another word it is part of the name."""

_COUNTED = frozenset(("one", "two", "three", "first", "second", "last", "now", "out", "up", "off"))
"""Common words that a name may end with."""

_WORDS = regex.compile(r"\p{L}+")
_GERMAN_TEXT = """
der die das den dem des und ist sind nicht ein eine einen einem einer von zu auf für im hat haben
sich wird wurde ich wir sie er es beim zum zur
"""
_OTHER_TEXT = "the and of to is with for are this that"
_GERMAN, _OTHER = frozenset(_GERMAN_TEXT.split()), frozenset(_OTHER_TEXT.split())
_GERMAN_WORDS = 2
"""Different ones in a text, and more than of _OTHER, for its capitals to be those of nouns."""

_SPEAKER = regex.compile(
    r"^[ \t]{0,8}(?:[-*>•][ \t]?){0,3}(?:[\[(][^\])\n]{1,40}[\])][ \t]{0,3})?"
    r"(?:<(?P<nick>\p{L}[\p{L}\p{M}\p{Nd}_.'’-]{1,29})>"
    r"|(?:\*\*|__)?(?P<name>\p{L}[\p{L}\p{M}.'’-]{1,29}(?: \p{L}[\p{L}\p{M}.'’-]{1,29})?)"
    r"(?:\*\*|__)?(?:[ \t]?[\[(][^\])\n]{1,40}[\])])?[ \t]?[:：](?:\*\*|__)?(?=\s))",
    regex.MULTILINE,
)
_NO_SPEAKERS_TEXT = """
action actions address agenda answer assistant author bot caption cc channel city code comment
comments conclusion context contact cost count customer data date default description details
document due email error example examples fact facts file fix from goal goals host hint id idea
ideas image info input issue item items key keywords language link links list location log message
messages method model name names notes number objective output owner page phone place plan price
priority problem product project query question questions reason reference references reply request
response result results role rule rules section size solution source speaker start state status step
steps subject summary system table tag tags task team text time tip title to topic total type update
url usage use user value version via warning website when where who why agent human moderator
interviewer narrator operator caller everyone both
"""
_NO_SPEAKERS = frozenset(_NO_SPEAKERS_TEXT.split())


@cache
def _given() -> frozenset[str]:
    """Common given names, lower-cased."""
    file = resources.files("retrieval.ingest.entities") / "given_names.txt"
    return frozenset(file.read_text(encoding="utf-8").split())


def is_given(word: str) -> bool:
    """Is the lower-cased word a common given name?"""
    return word in _given()


def _nouns_have_capitals(text: str) -> bool:
    words = {word.lower() for word in _WORDS.findall(text)}
    german = len(words & _GERMAN)
    return german >= _GERMAN_WORDS and german > len(words & _OTHER)


def _bare(word: str) -> str:
    """The word lower-cased, without what is hung onto it ("I'm", "Ann's") and full stops."""
    return _CLITIC.sub("", word).lower().rstrip("'’.")


def _common(word: str) -> bool:
    return word not in ("US", "IT", "WHO") and (
        _bare(word) in _COMMON
        or _NEGATED.search(word) is not None
        or _ELIDED.search(word) is not None
    )


def _starts_sentence(text: str, at: int) -> bool:
    before = text[max(0, at - _LOOK_BACK) : at]
    left = before.rstrip(" \t")
    if not left:  # the text's start, or more white space than stands inside a sentence
        return True
    if left[-1] == "-":  # a list's
        return left == "-" or left[-2] == "\n"
    return left[-1] in _ENDS and not _shortened(left)


def _shortened(left: str) -> bool:
    """Does the full stop belong to the word before it?"""
    word = left.split()[-1] if left[-1] == "." else ""
    return bool(regex.fullmatch(rf"{_SHORTENED}|{_INITIALS}", word))


def _split(run: str) -> Iterator[list[str]]:
    """The words of a run, parted where a sentence ends inside it or one owns the other."""
    words: list[str] = []
    for word in _PART.findall(run):
        last = words[-1] if words else ""
        if (
            (_INITIAL.fullmatch(last) and len(words) > 1 and words[-2].lower() in _CLASSES)
            or (last.endswith(".") and len(words) > 1 and _common(word))
            or (len(words) == 1 and last[-2:] in ("'s", "’s") and is_given(_bare(last)))
        ):
            yield words
            words = []
        words.append(word)
    yield words


def names(text: str, most: int = 50) -> list[str]:
    """Distinct names in order of first appearance, at most `most`; who speaks comes first.

    Linear in the text, of which only the first SCANNED characters count. No name is longer than
    LONGEST characters.
    """
    text = text[:SCANNED]
    if text.isupper():
        return []
    nouns = _nouns_have_capitals(text)
    speakers = _speakers(text)
    found = dict.fromkeys(speakers, "")
    seen: dict[tuple[str, bool, bool], list[tuple[str, bool]]] = {}
    named = 0
    for match in _RUN.finditer(text):
        run = match[0]
        if len(run) > _LONGEST_RUN:
            continue
        first = _starts_sentence(text, match.start())
        labels = text[match.end() : match.end() + 1] == ":"
        key = (run, first, labels)
        if key not in seen:
            seen[key] = list(_named(run, first, labels, nouns))
        for name, sure in seen[key]:
            lowered = name.lower()
            if not sure and lowered not in speakers:
                found.setdefault(lowered, "")  # a name if it is one elsewhere
            elif not found.get(lowered):
                found[lowered] = name
                named += 1
        if named >= most:
            break
    every = (name or speakers.get(key, "") for key, name in found.items())
    return [name for name in every if name][:most]


def _named(run: str, first: bool, labels: bool, nouns: bool) -> Iterator[tuple[str, bool]]:
    """The names in a run, and whether each is sure to be one.

    A word is not whose capital is asked for by the sentence that it begins.
    """
    for words in _split(run):
        name, whole = _name(words, first, nouns)
        if name:
            asked_for = first and whole and len(words) == 1 and not labels
            yield name, not asked_for or is_given(_bare(name)) or _telling(name)
        first = False


def _telling(word: str) -> bool:
    """Does the word look like a name wherever it stands (O'Brien, UA123, JavaScript)?"""
    inner = word[1:]
    return any(c.isdigit() for c in inner) or (
        any(c.isupper() for c in inner) and any(c.islower() for c in inner)
    )


def _name(words: list[str], first: bool, nouns: bool) -> tuple[str, bool]:
    """The name in a run of words, "" if there is none; and whether it begins where the run does."""
    count = len(words)
    while words and _common(words[0]) and not (words[0] == "Will" and words[1:] and not first):
        words = words[1:]
    if len(words) < count:  # "In 2011 California", "After the Amri"
        while words and not any(c.isupper() for c in words[0]):
            words = words[1:]
    if first and len(words) > 1 and _bare(words[0]) in _ASKED_FOR:
        words = words[1:]
    while first and words and _bare(words[0]) in _ADDRESSED and _given_follows(words):
        words = words[1:]
    if nouns:
        given = [i for i, word in enumerate(words) if is_given(_bare(word))]
        words = words[given[0] :] if given else []
    while words and _common(words[-1]) and not (words[1:] and _bare(words[-1]) in _COUNTED):
        words = words[:-1]
    heading = sum(word[0].isupper() and _common(word) for word in words) > 1
    abbreviated = all(map(_ABBREVIATED.fullmatch, words))
    if abbreviated or heading or len(words) > MOST_WORDS:
        return "", False
    name = _CLITIC.sub("", " ".join(words))
    if not _KEEPS_STOP.search(name):
        name = name.removesuffix(".")
    if not 2 <= len(name) <= LONGEST or not any(c.isalpha() for c in name):
        return "", False
    return name, len(words) == count


def _given_follows(words: list[str]) -> bool:
    return any(is_given(_bare(word)) for word in words[1:3])


_ABBREVIATED = regex.compile(rf"(?:{_SHORTENED})|Jr|Sr|Dr|Mr|Mrs|Ms|Prof|St")
_KEEPS_STOP = regex.compile(r"(?:\p{Lu}\. ?\p{Lu}|\b(?:Jr|Sr))\.$")


def _speakers(text: str) -> dict[str, str]:
    """Who speaks at the start of a line: given names, and others that take turns in sentences."""
    said: dict[str, str] = {}
    turns: Counter[str] = Counter()
    for match in _SPEAKER.finditer(text):
        label = match["nick"] or match["name"]
        lowered = label.lower()
        first = lowered.split()[0]
        if first in _COMMON or first in _NO_SPEAKERS or lowered in _NO_SPEAKERS:
            continue
        said.setdefault(lowered, label)
        turns[lowered] += _SENTENCE.match(text, match.end()) is not None
    talk = sum(count > 1 for count in turns.values()) > 1 and "</" not in text
    return {
        lowered: label if label != lowered else label.title()
        for lowered, label in said.items()
        if is_given(lowered.split()[0]) or (talk and turns[lowered] > 1 and " " not in lowered)
    }


_SENTENCE = regex.compile(r"(?:[ \t]++[^\s]{1,40}){3}")
