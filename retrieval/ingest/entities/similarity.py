"""Whether two names can mean one thing, and how alike they are. Pure.

`likeness` judges the names alone. Names that differ only in punctuation, decoration or the way they
are put down are the same. Of all others those can mean one thing that differ in the spelling of a
long word, a title, a company's form, a short form of a given name, or in parts of a person's name
that one of them leaves out. Numbers, codes, Roman numerals, signs, single letters and words of
opposition tell apart, as does a name inside another. Where it says no, no evidence says otherwise:
two things as one are worse than one thing as two.

For the others `score` adds up 0.5 x likeness + 0.3 x co-occurrence + 0.2 x recency: the share of
the letters that the names have in common, the share of the fact's other names that the candidate is
known to appear with, and how recently it was seen (nothing after a week). Above ACCEPT the
candidate is meant.
"""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, combinations

import regex
from rapidfuzz import fuzz
from rapidfuzz.distance import OSA

from retrieval.ingest.entities.naming import is_given
from retrieval.ingest.entities.nicknames import are_forms
from retrieval.text import folding

ACCEPT = 0.6
SAME = 2.0
"""`likeness` of names that differ only in how they are put down."""

_NAME, _COOCCURRENCE, _RECENCY = 0.5, 0.3, 0.2
_RECENT_DAYS = 7.0
COMPARED = 120
"""Characters: a longer name is compared letter by letter only."""

_ENOUGH = 6
_ENOUGH_TO_RESPELL = 7
_ENOUGH_TO_MISSPELL = 9
"""Letters of a word for it to be the same without its article, in another spelling, and with a slip
in it: a shorter one that differs is another word (The Who, Sydney and Sidney, Iran and Iraq)."""

_LONGEST_WORD = 40
_INITIAL = 0.75
"""`likeness` of two names at most, where one has a letter for a word of the other."""

# Marks that are no part of a name. A sign that tells apart stays: C++, A-, B*, .NET, -5.
_DROPPED = regex.compile(
    r"(?<=[^\s\d])\.(?=[^\s\d])|(?<!\d)[.,]+(?=\s|$)|(?<=\d)[.,](?!\d)|(?<=[^\W\d])\.(?=\d)|,(?!\d)"
    r"|['\"()\[\]{}!?;:¡¿…·]"
)
_PASSES = 4
"""At most: what is dropped can leave a dot at an end, which is dropped in turn."""
_SPACED = regex.compile(r"(?<=\w)-(?=\w)|(?<=\s)-(?=\s)|(?<![\p{L}\d])-(?!\d)|[_/\\|\s]+")
_HYPHENATED = regex.compile(r"[a-z]{2}-[a-z]{2}")
"""Short as it is, nothing but the name without its hyphen: Wi-Fi, Hi-Fi."""
_DECORATION = regex.compile(
    r"[\p{So}\p{Extended_Pictographic}\U0001f3fb-\U0001f3ff"
    r"--[♀♂♠♣♥♦⚪⚫⬛⬜🔴🔵🟠-🟫\U0001f1e6-\U0001f1ff]]",
    regex.V1,
)
_AND = regex.compile(r"(?<=\s)&(?=\s)")
_NOT_LETTERS = regex.compile(r"[^\p{L}\p{M}]")
_NUMBER = regex.compile(r"\d+")
_ROMAN = regex.compile(r"m{0,3}(?:cm|cd|d?c{0,3})(?:xc|xl|l?x{0,3})(?:ix|iv|v?i{0,3})")
_NUMERALS = frozenset("ivx")
"""Letters that are a number where a name ends with one: Charles I is not Charles, nor is Malcolm X
Malcolm."""
_UNSPACED = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}]")
_TRIGRAM_WORD = regex.compile(r"\w+")

_MALE = frozenset(("mr", "sir", "herr", "señor"))
_FEMALE = frozenset(
    ("mrs", "ms", "miss", "mme", "madam", "madame", "lady", "frau", "señora", "sra")
)
_RANKS = """
dr doctor prof professor president gov governor sen senator rep gen general col colonel capt captain
lt sgt rev reverend hon judge chancellor minister mayor
"""
_TITLES = _MALE | _FEMALE | frozenset(_RANKS.split())
_FORMS_TEXT = """
inc incorporated ltd limited llc llp gmbh ag corp corporation co company plc sa srl bv nv oy ab kg
pty pte kk spa pvt sarl aps asa kgaa oyj
"""
_FORMS = frozenset(_FORMS_TEXT.split())
_ORGANISATIONS_TEXT = """
university college school institute academy tech technology hospital church bank city county state
street st road avenue square park lake river bay island islands airport station museum hotel club
team group foundation society union league party house hall center centre tower bridge beach hill
hills valley mountain mount fc united films records magazine times news post award prize act law
effect day hilton project
"""
_ORGANISATIONS = frozenset(_ORGANISATIONS_TEXT.split())
_PLACES_TEXT = """
jordan virginia victoria georgia florence sydney austin madison paris chelsea china india israel
carolina montana dakota savannah charlotte lincoln jackson houston dallas phoenix adelaide
alexandria santiago lima kenya brittany cuba jersey troy rome milan vienna geneva kent chester sofia
lee chen wang kim
"""
_PLACES = frozenset(_PLACES_TEXT.split())
"""Given names that are names of places or families as well."""

_OPPOSED = """
north south east west northern southern eastern western northeast northwest southeast southwest
central upper lower middle left right inner outer old new big little great small junior senior jr sr
elder younger male female men women boys girls in out pre post before after front back top bottom
first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth one two three four
five six seven eight nine ten eleven twelve king queen prince princess duke duchess father mother
brother sister son daughter uncle aunt day night spring summer autumn fall winter monday tuesday
wednesday thursday friday saturday sunday january february march april may june july august
september october november december red green blue yellow black white orange purple pink brown
alpha beta gamma delta epsilon zeta eta theta kappa lambda omega sigma mini micro nano macro mega
max pro plus lite import export input output internal external positive negative major minor
primary secondary
"""
_TELLING = frozenset(_OPPOSED.split())
"""Words that are there to tell one thing from another that is called the same."""

_SURNAMES_TEXT = """
brown green white black gray king may max day west north little winter summer august june april
prince young church hill
"""
_SURNAMES = frozenset(_SURNAMES_TEXT.split())
"""Those of them, and of organisations, that people are called as well."""

_AMERICAN = ((regex.compile(r"our(?=s?$)"), "or"), (regex.compile(r"tre(?=s?$)"), "ter"))
_SPELLINGS = (
    *_AMERICAN,
    (regex.compile(r"ph"), "f"),
    (regex.compile(r"th"), "t"),
    (regex.compile(r"ck|c(?![hiey])"), "k"),
    (regex.compile(r"y"), "i"),
    (regex.compile(r"z"), "s"),
    (regex.compile(r"w"), "v"),
    (regex.compile(r"([bdfgklmnprst])\1"), r"\1"),
)
_TRANSLITERATIONS = (
    # How German, French and English write letters of Cyrillic: щ, ч, ш, х, в, кс, е, and й.
    (regex.compile(r"schtsch|shch"), "sch"),
    (regex.compile(r"tsch|tch"), "ch"),
    (regex.compile(r"sch"), "sh"),
    (regex.compile(r"kh"), "h"),
    (regex.compile(r"ff$"), "v"),
    (regex.compile(r"ks"), "x"),
    (regex.compile(r"(?<=[aeiou])[jy](?=e)"), ""),
    (regex.compile(r"[iy][iyj]$"), "y"),
)
_SLAVIC = regex.compile(r".*(?:[eo](?:v|w|ff)|uk|[nh]ko|i(?:ts?)?ch|sk[iy][iyj]?|kin)")
"""How a name ends that is written so: Mitchell and Michell are two families."""
_CYRILLIC = regex.compile(r"tsch|tch|shch")
"""Letters together that only such a name has."""
_UMLAUTS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "å": "aa", "ø": "oe", "æ": "ae"})
_STROKES = str.maketrans({"ø": "o", "ł": "l", "đ": "d", "æ": "ae", "œ": "oe", "ð": "d", "þ": "th"})
_VOWELS = frozenset("aeiouy")
_CONFUSED = ({"a", "e"}, {"e", "i"}, {"i", "y"}, {"a", "o"}, {"e", "o"}, {"o", "u"})
"""Vowels that sound alike where nothing stresses them: behind the first of a word."""
_TELLING_END = regex.compile(r"[aeiouy](?:[dnt]e|n)")
"""Ends that differ in meaning, not in spelling: hexane and hexene, sulfate and sulfite; and
-sen and -son of families."""
_GREEK = regex.compile(r"\p{Greek}+")
_POINTED = regex.compile(r"[\p{Arabic}\p{M}]+|[\p{Hebrew}\p{M}]+")
_ALEFS = str.maketrans("\u0671\u0629", "\u0627\u0647")
_ANDS = frozenset(("and", "und", "et", "och", "og"))


def collapse(name: str) -> str:
    """The name with runs of white space as one space, and none around it."""
    return " ".join(name.split())


def bare(name: str) -> str:
    """The folded name without punctuation and decoration; marks that tell names apart stay."""
    folded = folding.key(name)
    plain = _DECORATION.sub("", folded)
    if not plain.strip():
        plain = folded
    before, tidy = "", _AND.sub("and", plain)
    for _ in range(_PASSES):
        if tidy == before:
            break
        before, tidy = tidy, " ".join(_SPACED.sub(" ", _DROPPED.sub("", tidy)).split())
    return tidy


def plain(name: str) -> str:
    """`bare` as typed without its accents: names of one `plain` are worth comparing."""
    return _stripped(bare(name))


_SHORTENED_FIRST = {"st": "saint", "mt": "mount", "ft": "fort"}
_SHORTENED = {
    "univ": "university", "dept": "department", "intl": "international", "natl": "national",
    "assn": "association", "govt": "government", "inst": "institute",
}  # fmt: skip
"""What is usually written short, in front of a name and anywhere in one."""


@dataclass(frozen=True, slots=True)
class NameForm:
    """A name taken apart once, to be compared with many.

    `bare` is "" for a name that is nothing but punctuation or too long to compare; `words` are
    those of the name itself, without `titles`, an article, and what a company is.
    """

    key: str
    bare: str
    words: tuple[str, ...]
    titles: frozenset[str]
    numbers: tuple[str, ...]

    @classmethod
    def of(cls, name: str) -> NameForm:
        key = folding.key(name)
        plain = bare(key) if len(key) <= COMPARED else ""
        words = plain.split()
        titles = []
        while len(words) > 1 and words[0] in _TITLES:
            titles.append(words.pop(0))
        if len(words) > 1 and words[0] == "the" and (len(words) > 2 or len(words[1]) >= _ENOUGH):
            words.pop(0)
        while len(words) > 1 and words[-1] in _FORMS:
            words.pop()
        if len(words) > 1:
            words = [_SHORTENED_FIRST.get(words[0], words[0]), *words[1:]]
            words = [_SHORTENED.get(word, word) for word in words]
        return cls(key, plain, tuple(words), frozenset(titles), tuple(_NUMBER.findall(plain)))


def likeness(a: NameForm, b: NameForm) -> float:
    """0: never one thing. SAME: one thing. Between 0 and 1: the share of letters in common, of
    names that can mean one thing if there is evidence."""
    if a.key == b.key:
        return SAME
    if not a.bare or not b.bare or a.numbers != b.numbers:
        return 0.0
    if a.bare == b.bare or _joined(a) == _joined(b):
        return SAME
    if (a.titles & _MALE and b.titles & _FEMALE) or (a.titles & _FEMALE and b.titles & _MALE):
        return 0.0
    if a.words == b.words:
        return 1.0 if len(a.words) > 1 or a.titles == b.titles else fuzz.ratio(a.bare, b.bare) / 100
    if len(a.words) == len(b.words):
        pairs = [(v, w) for v, w in zip(a.words, b.words, strict=True) if v != w]
        least = 2 if len(a.words) > 1 else 3
        if all(_unaccented(v, w, least) for v, w in pairs):
            return SAME if a.titles == b.titles else 1.0
        if any(1 in (len(v), len(w)) for v, w in pairs):
            return min(_shared(a, b), _INITIAL) if _word_by_word(a.words, b.words) else 0.0
        alike = _word_by_word(a.words, b.words)
    else:
        short, long = sorted((a, b), key=lambda form: len(form.words))
        alike = _part_of_a_person(short, long)
    return _shared(a, b) if alike else 0.0


def _joined(form: NameForm) -> str:
    """The name without its gaps, where that leaves no doubt ("Open AI", "OpenAI")."""
    letters = "".join(form.bare.split())
    enough = len(letters) >= 5 or (_HYPHENATED.fullmatch(form.key) and not is_given(letters))
    return letters if enough and not _NOT_LETTERS.search(letters) else form.bare


def _shared(a: NameForm, b: NameForm) -> float:
    return fuzz.ratio(" ".join(a.words), " ".join(b.words)) / 100


def _word_by_word(left: Sequence[str], right: Sequence[str]) -> bool:
    person = any(map(is_given, left)) or any(map(is_given, right))
    differ = [(v, w) for v, w in zip(left, right, strict=True) if v != w]
    for v, w in differ:
        if person and len(left) > 1 and (_initial(v, w) or _initial(w, v)):
            continue
        if not (_one_word(v, w) or ((v, w) == (left[0], right[0]) and are_forms(v, w))):
            return False
    return True


def _initial(letter: str, word: str) -> bool:
    """Does the letter stand for the word? Those that are numbers do not (Elizabeth I)."""
    return len(letter) == 1 and len(word) > 2 and word[0] == letter and letter not in _NUMERALS


def _one_word(a: str, b: str) -> bool:
    """Are two different words spellings of one?"""
    if len(a) > _LONGEST_WORD or len(b) > _LONGEST_WORD:
        return False
    if _NOT_LETTERS.search(a + b) or _UNSPACED.search(a + b):
        return False
    if a in _TELLING or b in _TELLING or _ROMAN.fullmatch(a) or _ROMAN.fullmatch(b):
        return False
    if _unaccented(a, b):
        return True
    if is_given(a) and is_given(b):
        return False
    short, long = sorted((a, b), key=len)
    if len(short) >= _ENOUGH_TO_RESPELL and _transliterated(short, long):
        return True
    if long.startswith(short) or long.endswith(short) or a[0] != b[0]:
        return False
    if len(short) >= 5 and _respelt(a, _AMERICAN) == _respelt(b, _AMERICAN):
        return True
    if len(short) < _ENOUGH_TO_RESPELL or OSA.distance(a, b, score_cutoff=4) > 4:
        return False
    if _respelt(a) == _respelt(b):
        return True
    if is_given(a) or is_given(b):  # Alexandria, Christiana: a letter makes another name of it
        return False
    return len(short) >= _ENOUGH_TO_MISSPELL and _misspelt(short, long)


def _unaccented(a: str, b: str, least: int = 3) -> bool:
    """Is one of them the other as typed without its accents? Of words from `least` letters on."""
    if a == b:
        return True
    plain, accented = (a, b) if a.isascii() else (b, a)
    if not plain.isascii() and len(a) > 2:
        return _left_out(a) == _left_out(b) or _unpointed(a, b)
    if accented.isascii() or not plain.isascii() or len(plain) < least:
        return a in _ANDS and b in _ANDS
    return plain in (_stripped(accented), _stripped(accented.translate(_UMLAUTS)))


def _left_out(word: str) -> str:
    """The word without the accents that its script often leaves out: Russian ё, Greek capitals."""
    return _stripped(word) if _GREEK.fullmatch(word) else word.replace("ё", "е")


def _unpointed(a: str, b: str) -> bool:
    """Is one the other without what Arabic and Hebrew mostly leave out: vowel signs, the hamza of
    an alef, the dots of a final he? Two words that differ in these themselves are two."""
    if not _POINTED.fullmatch(a) or not _POINTED.fullmatch(b):
        return False
    return a == _unpointed_form(b) or b == _unpointed_form(a)


def _unpointed_form(word: str) -> str:
    return _stripped(word).translate(_ALEFS)


def _stripped(word: str) -> str:
    apart = unicodedata.normalize("NFD", word.translate(_STROKES))
    return "".join(c for c in apart if not unicodedata.combining(c))


def _respelt(word: str, spellings: Sequence[tuple[regex.Pattern[str], str]] = _SPELLINGS) -> str:
    for pattern, other in spellings:
        word = pattern.sub(other, word)
    return word


def _transliterated(short: str, long: str) -> bool:
    """Are they one name of another script as two languages write it (Kowalchuk, Kowaltschuk)?"""
    if not (_SLAVIC.fullmatch(short) and _SLAVIC.fullmatch(long)):
        return False
    left, right = (_respelt(_respelt(word, _TRANSLITERATIONS)) for word in (short, long))
    if left == right:
        return True
    brief, other = sorted((left, right), key=len)
    written = _CYRILLIC.search(short) or _CYRILLIC.search(long)
    return bool(written) and len(brief) >= _ENOUGH_TO_MISSPELL and _misspelt(brief, other)


def _misspelt(short: str, long: str) -> bool:
    """One slip inside a long word: a letter too many, two in the wrong order, or a wrong vowel."""
    if short[-1] != long[-1] or OSA.distance(short, long, score_cutoff=1) != 1:
        return False
    if long.endswith("town") != short.endswith("town"):
        return False
    if len(short) < len(long) or sorted(short) == sorted(long):
        return True
    at = next(i for i, (v, w) in enumerate(zip(short, long, strict=True)) if v != w)
    if _VOWELS.isdisjoint(short[:at]) or _TELLING_END.fullmatch(short, at):
        return False
    return {short[at], long[at]} in _CONFUSED


def _part_of_a_person(short: NameForm, long: NameForm) -> bool:
    """Does `short` leave out parts of the person's name `long`: the surname, names between, or all
    but the surname where a title says that it is a person?"""
    words, every = short.words, long.words
    telling = (_ORGANISATIONS | _TELLING) - _SURNAMES
    if not telling.isdisjoint(every) or any(map(_odd, every)) or every[-1] in _NUMERALS:
        return False
    if len(every) - len(words) > 2:
        return False
    if len(words) == 1:
        (word,) = words
        given = is_given(word) or is_given(every[0])
        if word == every[0]:
            return given and len(word) > 1 and word not in _PLACES
        # A spouse has the same surname, and the same names beside it: a title does not tell.
        titled = bool(short.titles) and not short.titles & (_MALE | _FEMALE)
        return are_forms(word, every[0]) or (titled and word == every[-1] and len(word) > 1)
    if words[-1] != every[-1] and not _one_word(words[-1], every[-1]):
        return words == every[: len(words)] and is_given(every[0])
    first, other = words[0], every[0]
    if first != other and not are_forms(first, other):
        return False
    between, all_between = words[1:-1], every[1:-1]
    if between:
        return False
    return is_given(other) or all(len(word) == 1 for word in all_between)


def _odd(word: str) -> bool:
    """Not a plain word of a person's name: a number, a code, a Roman numeral, another script's."""
    if len(word) == 1:
        return not word.isalpha()
    return bool(_NOT_LETTERS.search(word) or _UNSPACED.search(word) or _ROMAN.fullmatch(word))


def recency(date: datetime | None, last_seen: datetime | None) -> float:
    if date is None or last_seen is None:
        return 0.0
    days = abs((date - last_seen).total_seconds()) / 86400
    return 1.0 - days / _RECENT_DAYS if days < _RECENT_DAYS else 0.0


def score(likeness: float, cooccurrence: float, recency: float) -> float:
    """0 to 1; `cooccurrence` and `recency` are shares in 0 to 1."""
    if likeness <= 0:
        return 0.0
    return (
        1.0
        if likeness >= SAME
        else _NAME * likeness + _COOCCURRENCE * cooccurrence + _RECENCY * recency
    )


def trigrams(name: str) -> frozenset[str]:
    """The trigrams of pg_trgm: per word, with two blanks before and one behind."""
    found: set[str] = set()
    for word in _TRIGRAM_WORD.findall(name.lower()):
        padded = f"  {word} "
        found.update(padded[i : i + 3] for i in range(len(padded) - 2))
    return frozenset(found)


def overlap(a: frozenset[str], b: frozenset[str]) -> float:
    """Jaccard similarity of two sets of trigrams."""
    return len(a & b) / len(a | b) if a and b else 0.0


def cluster(
    forms: Mapping[str, NameForm],
    counts: Mapping[str, int],
    apart: Callable[[str, str], bool],
    threshold: float,
    evidence: Callable[[str, str], tuple[float, float]],
    most: int = 250,
) -> dict[str, str]:
    """Each new name to the one that stands for it: the most mentioned of its cluster.

    Names are joined transitively where their trigrams overlap by `threshold` and `score` accepts
    them with their `evidence` (co-occurrence, recency); never two of which no evidence says that
    they are one, or that are `apart` (two names of one fact). Of more than `most` names only those
    are compared that are the same but for accents and punctuation. The result does not depend on
    the order of `forms`.
    """
    ordered = sorted(forms)
    grams = {name: trigrams(forms[name].bare) for name in ordered}
    pairs = []
    for a, b in _worth_comparing(ordered, most):
        alike = likeness(forms[a], forms[b])
        if alike <= 0:
            continue
        common = 1.0 if alike >= SAME else overlap(grams[a], grams[b])
        if common >= threshold and score(alike, *evidence(a, b)) > ACCEPT:
            pairs.append((common, a, b))
    group: dict[str, set[str]] = {name: {name} for name in ordered}
    for _, a, b in sorted(pairs, key=lambda pair: (-pair[0], pair[1], pair[2])):
        left, right = group[a], group[b]
        if left is right or any(
            likeness(forms[x], forms[y]) <= 0 or apart(x, y) for x in left for y in right
        ):
            continue
        left |= right
        for name in right:
            group[name] = left
    return {
        name: min(members, key=lambda n: (-counts.get(n, 0), n)) for name, members in group.items()
    }


def _worth_comparing(names: Sequence[str], most: int) -> Iterable[tuple[str, str]]:
    if len(names) <= most:
        return combinations(names, 2)
    typed: dict[str, list[str]] = defaultdict(list)
    for name in names:
        typed[plain(name)].append(name)
    # A few spellings each: their number must not make this quadratic.
    return chain.from_iterable(combinations(found[:_SPELT], 2) for found in typed.values())


_SPELT = 16
