"""What a reader sees as the same text is the same text, whatever its code points. Pure.

Unicode's compatibility forms and case folding do most of it. What they leave apart, though nobody
can see it, is listed here: characters that show nothing, the many apostrophes, quotes and dashes,
digits of other scripts, letters that two keyboards write with two code points, and letters of one
script inside a word of another.
"""

from __future__ import annotations

import unicodedata

import regex

REVISION = 1
"""Of what `fold` makes the same. Stored keys of an older one are rebuilt."""

_UNSEEN = regex.compile(r"[\p{DI}\p{Cc}\ufff9-\ufffb--[\t\n\v\f\r\x1c-\x1f\x85]]", regex.V1)
_SPACE = regex.compile(r"[^\S\t\n\v\f\r\x1c-\x1f\x85]|\u2800")
_CROWD = regex.compile(r"(\p{M}{30})\p{M}+")
"""More marks on one letter than anybody writes: Unicode's stream-safe limit. Putting a run of marks
in order takes a time quadratic in its length."""

_MARKS = str.maketrans(
    # Before compatibility forms, which would make some of these a blank and a mark.
    dict.fromkeys("`´‘’‚‛′‵ʹʻʼʽˈˊˋ‹›＇｀՚׳ꞌ", "'")
    | dict.fromkeys("“”„‟″‶〝〞〟«»＂״", '"')
    | dict.fromkeys("‐‑‒–—―⁃−﹘﹣－֊־", "-")
    | dict.fromkeys("〜∼～", "~")
    | dict.fromkeys("⁄∕", "/")
    | dict.fromkeys("™℠ـ", "")  # no letters of the name; and tatweel, which only stretches a word
)
_ALIKE = str.maketrans(
    # After case folding. Turkish writes the capital of i and of ı as others write that of i.
    {"ı": "i", "ș": "ş", "ț": "ţ", "ǝ": "ə", "ɡ": "g", "ɑ": "a"}
    | {"ی": "ي", "ى": "ي", "ے": "ي", "ک": "ك", "ڪ": "ك", "ہ": "ه", "ە": "ه", "ھ": "ه"}
)
_DIGIT = regex.compile(r"[\p{Nd}--[0-9]]", regex.V1)
_DOTTED = regex.compile("([iі])\u0307+")  # what case folding makes of İ

# Thai and Lao: sara am in two parts around a tone mark, and two of one vowel for another.
_STACKED = regex.compile("([\u0e4d\u0ecd])([\u0e48-\u0e4b\u0ec8-\u0ecb])([\u0e32\u0eb2])")
_DOUBLED = regex.compile("เเ")

# Letters written as a conjunct and a joiner before they had code points of their own.
_JOINED = regex.compile("[\u0d23\u0d28\u0d30\u0d32\u0d33\u0d15]\u0d4d\u200d|\u09a4\u09cd\u200d")
_OWN = dict(
    zip("\u0d23\u0d28\u0d30\u0d32\u0d33\u0d15\u09a4", "\u0d7a\u0d7b\u0d7c\u0d7d\u0d7e\u0d7f\u09ce",
        strict=True)
)  # fmt: skip

_LATIN = dict(
    [*zip("аеорсухіјѕһԁԛԝАВЕЅІЈКМНОРСТХУҺԀԚԜ", "aeopcyxijshdqwABESIJKMHOPCTXYhdQW", strict=True),
     *zip("ονΑΒΕΖΗΙΚΜΝΟΡΤΥΧ", "ovABEZHIKMNOPTYX", strict=True)]
)  # fmt: skip
_OTHERS = {
    "Cyrillic": dict(zip("aeopcyxijshABESIJKMHOPCTXY", "аеорсухіјѕһАВЕЅІЈКМНОРСТХУ", strict=True)),
    "Greek": dict(zip("oABEZHIKMNOPTYX", "οΑΒΕΖΗΙΚΜΝΟΡΤΥΧ", strict=True)),
}
_MEETING = regex.compile(
    r"\p{Latin}\p{M}*[\p{Cyrillic}\p{Greek}]|[\p{Cyrillic}\p{Greek}]\p{M}*\p{Latin}"
)
_WORD = regex.compile(r"[\p{L}\p{M}]+")
_SCRIPTS = {name: regex.compile(rf"\p{{{name}}}") for name in ("Latin", "Cyrillic", "Greek")}


def _one_script(match: regex.Match[str]) -> str:
    """A word in two scripts as it looks in one; as it stands where it looks like neither."""
    word = match[0]
    written = {name: set(script.findall(word)) for name, script in _SCRIPTS.items()}
    latin = written.pop("Latin")
    others = {name for name, letters in written.items() if letters}
    if latin and others:
        if all(letter in _LATIN for name in others for letter in written[name]):
            return "".join(_LATIN.get(letter, letter) for letter in word)
        (name,) = others if len(others) == 1 else ("",)
        own = _OTHERS.get(name, {})
        if latin <= own.keys():
            return "".join(own.get(letter, letter) for letter in word)
    return word


def unified(text: str) -> str:
    """`fold` without its case folding: what a reader sees, in one spelling for all.

    Capitals stay, and letters that only some keyboards tell apart. Linear; thread-safe.
    """
    if text.isascii():
        return _UNSEEN.sub("", text)
    text = _JOINED.sub(lambda match: _OWN[match[0][0]], text)
    text = _SPACE.sub(" ", _UNSEEN.sub("", text)).translate(_MARKS)
    text = unicodedata.normalize("NFKC", _CROWD.sub(r"\1", text)).translate(_MARKS)
    text = _DOUBLED.sub("แ", _STACKED.sub(r"\2\1\3", text))
    text = _DIGIT.sub(lambda match: str(unicodedata.decimal(match[0], match[0])), text)
    return _in_one_script(text)


def fold(text: str) -> str:
    """The text as a key for comparing: case, width, invisible characters and look-alikes folded.

    Accents, vowel signs and punctuation stay, as does white space: line ends as they are, every
    other blank as one space. Idempotent. Linear in the text, which may become longer (a ligature of
    Arabic is eighteen letters). Thread-safe.
    """
    if text.isascii():
        return _UNSEEN.sub("", text.lower().replace("`", "'"))
    # Before case folding capitals still tell what they look like; it may make more that do.
    text = _DOTTED.sub(r"\1", unified(text).casefold().translate(_ALIKE))
    text = _UNSEEN.sub("", text).translate(_MARKS)
    return unicodedata.normalize("NFKC", _in_one_script(text))


def _in_one_script(text: str) -> str:
    return _WORD.sub(_one_script, text) if _MEETING.search(text) else text


def key(text: str) -> str:
    """`fold` with every run of white space as one space and none around it: a name's key."""
    return " ".join(fold(text).split())
