"""Text to weighted terms: one analyser for memories and queries, so both sides always agree.

A text is divided at white space into chunks and each chunk, analysed once and cached, is a string
of 64-bit term hashes. A warm analyser therefore costs a dictionary look-up per word.

Terms are blake2b hashes of the folded, stemmed term: the same in every process and on every
platform, in the standard library, and paid once per distinct chunk. Two of a million terms share
a hash with probability 3e-8.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, TypeAlias
from weakref import WeakValueDictionary

import numpy as np
import regex
import Stemmer
from numpy.typing import NDArray

from retrieval.errors import InvalidInput
from retrieval.keyword import identifier, script
from retrieval.messages import message
from retrieval.text import folding
from retrieval.text.language import AUTO, Words, bare, check, fold, guess, stop_words
from retrieval.types import Floats

Terms: TypeAlias = NDArray[np.uint64]

_REVISION: Final = 2
"""Raise with any change of code that changes the terms of some text."""

SIGNAL_WEIGHT: Final = 2.0
"""Questions ask by name and date, and a memory has each of them once as a signal. On LoCoMo turns
with speaker and date as signals recall@10 was 0.633 without, 0.652 at 0.5, 0.658 at 1, 0.663 at 2
and 0.665 at 3 (k1 1.2, b 0.75)."""

_STOP: Final = "\0"
"""Marks stop words, which are terms of their own: a stem never collides with one."""

_CACHED_CHUNKS: Final = 1 << 17
_CACHED_LENGTH: Final = 40
_LONGEST_CHUNK: Final = 8_000
"""Characters without white space that are analysed in one go. A regular expression holds the
interpreter until it is through."""
_CLAUSE_END = regex.compile(r"[\p{Sentence_Terminal}\p{Terminal_Punctuation}]")

_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}々〇〆ー"
_CLUSTERED = r"\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_WORD = rf"[[\p{{L}}\p{{M}}\p{{N}}]--[{_UNSPACED}\p{{Hangul}}{_CLUSTERED}]]+"
_JOINT = r"(?:://|::|[-./\\:@&+=\#%?~'·]|_+|(?<=\d),(?=\d{3}))"
_PICTURE = r"\p{Extended_Pictographic}[\ufe0f\U0001f3fb-\U0001f3ff]*"
_PIECE = regex.compile(
    rf"""(?P<east_asian>[{_UNSPACED}]+)
    | (?P<hangul>\p{{Hangul}}+)
    | (?P<clustered>[{_CLUSTERED}]+)
    | (?P<keyed>[A-Za-z](?:\+\+|\#)(?![\w+#]))
    | (?P<joined>{_WORD}(?:{_JOINT}{_WORD})*)
    | (?P<emoji>\p{{RI}}{{2}}|{_PICTURE}(?:\u200d{_PICTURE})*)
    | (?P<symbol>[\p{{So}}\p{{Sc}}[\p{{Sm}}--\p{{ASCII}}]--[$]])""",
    regex.VERBOSE | regex.VERSION1,
)
_VARIANTS = regex.compile("[\ufe0f\U0001f3fb-\U0001f3ff]")
_EMOJI = regex.compile(rf"({_PICTURE}(?:\u200d{_PICTURE})+)")
_HALF_SPACE = regex.compile(r"(?<=\p{Arabic}\p{M}*)\u200c(?=\p{Arabic})")
"""Divides the parts of a Persian word as a hyphen does an English one."""
_APART = str.maketrans({"—": " ", "―": " ", "٫": ".", "٬": ","})
"""Dashes that hold words apart where shorter ones join them; and the separators of numbers."""
_ENDINGS = frozenset(("s", "t", "d", "m", "re", "ve", "ll"))
_ELIDED = frozenset(("l", "d", "j", "m", "t", "s", "c", "n", "qu", "un", "dell", "all", "nell"))
_EDGES = "\"'.,;:!?()[]{}<>*“”‘’…—–"


@dataclass(frozen=True, slots=True)
class IndexedText:
    """What a memory gives to the keyword arm. Signals are entity names and readable dates."""

    text: str
    context: str | None = None
    text_signals: str | None = None


@message
@dataclass(frozen=True, slots=True)
class Query:
    """Distinct terms of a query, uint64 ascending, with their counts, float32."""

    terms: Terms
    weights: Floats

    def __len__(self) -> int:
        return len(self.terms)


def term_hash(term: str) -> bytes:
    """8 bytes, little-endian."""
    return blake2b(term.encode("utf-8", "surrogatepass"), digest_size=8).digest()


class _Chunks(dict[str, bytes]):
    """Chunk to the hashes of its terms, filled on first use and bounded."""

    def __init__(self, terms: Callable[[str], Iterable[str]]) -> None:
        super().__init__()
        self._terms = terms
        _filled[id(self)] = self

    def __missing__(self, chunk: str) -> bytes:
        packed = b"".join(map(term_hash, self._terms(chunk)))
        if len(chunk) <= _CACHED_LENGTH:
            if len(self) >= _CACHED_CHUNKS:
                self.clear()
            self[chunk] = packed
        return packed

    def pack(self, text: str) -> bytes:
        chunks = text.split()
        if len(text) > _LONGEST_CHUNK:  # only then one of them can be too long
            chunks = [part for chunk in chunks for part in _parts(chunk)]
        return b"".join(map(self.__getitem__, chunks))


_filled: WeakValueDictionary[int, _Chunks] = WeakValueDictionary()


def forget_words() -> None:
    """Empties what all analysers of this process remember. From any thread."""
    for chunks in list(_filled.values()):
        chunks.clear()


def _parts(chunk: str) -> Iterator[str]:
    """The chunk, if need be in parts of _LONGEST_CHUNK characters at most: behind a sign that ends
    a sentence or a clause where there is one in the second half of a part."""
    start = 0
    while len(chunk) - start > _LONGEST_CHUNK:
        end = start + _LONGEST_CHUNK
        ends = [m.end() for m in _CLAUSE_END.finditer(chunk, start + _LONGEST_CHUNK // 2, end)]
        yield chunk[start : (end := ends[-1] if ends else end)]
        start = end
    yield chunk[start:]


class Analyser:
    """Analyses texts of one bank's language. Thread-safe; make one per set of options and keep it.

    language: a Snowball name, "none" (no stemming, no stop words) or "auto": each text's language
    is guessed from its stop words and every word is indexed as it stands too.
    Text in another script than the language's own is stemmed by its script where Snowball can.
    segmenter: "bigram", or "jieba" for Han text (needs that package).
    signal_weight: how much one term of `IndexedText.text_signals` counts.
    """

    def __init__(
        self,
        language: str = "english",
        segmenter: str = "bigram",
        *,
        signal_weight: float = SIGNAL_WEIGHT,
    ) -> None:
        self.language = check(language)
        self.segmenter = segmenter
        self.signal_weight = signal_weight
        self._cut = _cutter(segmenter)
        self._words: dict[str, Words] = {}
        self._chunks: dict[str, _Chunks] = {}
        self._stops = np.sort(
            np.frombuffer(
                b"".join(
                    term_hash(_STOP + word)
                    for word in sorted(frozenset[str]().union(*stop_words().values()))
                ),
                "<u8",
            )
        )
        self.version = self._fingerprint()
        """Names the terms this analyser makes; stored with a bank and part of its postings' kind.
        It covers the options, the stemmer, the stop words and the terms of a sample text."""

    def terms(self, text: str, *, query: bool = False) -> Sequence[str]:
        """The terms of a text in reading order, as strings; stop words are left out."""
        words = self._words_of(text)
        return [
            term
            for chunk in text.split()
            for term in _analyse(chunk, words, query, self._cut)
            if not term.startswith(_STOP)
        ]

    def query(self, text: str) -> Query:
        """The terms to score. Stop words count only where the query has nothing else."""
        words = self._words_of(text)
        content: list[str] = []
        stops: list[str] = []
        for chunk in text.split():
            for term in _analyse(chunk, words, True, self._cut):
                (stops if term.startswith(_STOP) else content).append(term)
        if not content and not stops:  # function words of a script without spaces
            content = [
                term for chunk in text.split() for term in _analyse(chunk, words, False, self._cut)
            ]
        hashes = np.frombuffer(b"".join(map(term_hash, content or stops)), "<u8")
        unique, counts = np.unique(hashes, return_counts=True)
        return Query(unique.astype(np.uint64), counts.astype(np.float32))

    def weigh(self, documents: Sequence[IndexedText]) -> dict[str, NDArray[Any]]:
        """The postings segment of these documents, in their order (retrieval/keyword/postings.py).

        tf counts text and context as 1 and signals as `signal_weight`; length is a document's sum
        of tf without stop words.
        """
        packed: list[bytes] = []
        sizes: list[int] = []
        for document in documents:
            text = document.text
            if document.context:
                text = f"{text}\n{document.context}"
            signals = document.text_signals
            chunks = self._chunks_of(text)
            body = chunks.pack(text)
            extra = chunks.pack(signals) if signals else b""
            packed += (body, extra)
            sizes += (len(body) >> 3, len(extra) >> 3)
        return _grouped(
            np.frombuffer(b"".join(packed), "<u8"),
            np.array(sizes, np.int64).reshape(-1, 2),
            self.signal_weight,
            self._stops,
        )

    def _language_of(self, text: str) -> str:
        return guess(text) if self.language == AUTO else self.language

    def _words_of(self, text: str) -> Words:
        return self._words_in(self._language_of(text))

    def _words_in(self, language: str) -> Words:
        words = self._words.get(language)
        if words is None:
            words = self._words[language] = Words(language, exact=self.language == AUTO)
        return words

    def _chunks_of(self, text: str) -> _Chunks:
        language = self._language_of(text)
        chunks = self._chunks.get(language)
        if chunks is None:
            words, cut = self._words_in(language), self._cut
            chunks = _Chunks(lambda chunk: _analyse(chunk, words, False, cut))
            self._chunks[language] = chunks
        return chunks

    def _fingerprint(self) -> str:
        digest = blake2b(digest_size=6)
        digest.update(f"{_REVISION} {self.signal_weight} {Stemmer.version()}".encode())
        for name, words in sorted(stop_words().items()):
            digest.update(f"{name} {' '.join(sorted(words))}".encode())
        digest.update(script.FUNCTION_WORDS)
        for side in (False, True):
            digest.update("\n".join(self.terms(_SAMPLE, query=side)).encode())
        return f"{self.language}-{self.segmenter}-{digest.hexdigest()}"


_SAMPLE: Final = """
Running runners' cafés Müller naïve relational l'amour o'brien don't Caroline's HTTPServer
getUserName user_name SPEC-Q417 e-mail jo.doe@example.com https://example.com/a/b.html?x=1 v1.2.3
/etc/hosts 1,000.50 U.S.A. AT&T C++ C# 10km 2024-03-15 → € straße 👩‍💻 بالمدرسة кошками γάτες
Ge\u00adsamt pine\u2060apple 𝐛𝐨𝐥𝐝 ﻣﺪﺭﺳﺔ می\u200cخواهم १२३ e–mail ｶﾞｽ นํ้า
東京都で食べる 清关申报需要填写 请问打印机的密码贴在哪里 コーヒー 학교에서 แมวชอบกินปลา
"""


def _cutter(segmenter: str) -> script.Cut | None:
    if segmenter == "bigram":
        return None
    if segmenter != "jieba":
        raise InvalidInput(f"unknown segmenter {segmenter!r}: use bigram or jieba", "segmenter")
    try:
        import jieba
    except ImportError as error:
        raise InvalidInput(
            "the jieba segmenter needs the package jieba (pip install 'fourfold[jieba]')",
            "segmenter",
        ) from error
    cut: script.Cut = jieba.Tokenizer().cut_for_search
    return cut


def _analyse(chunk: str, words: Words, query: bool, cut: script.Cut | None) -> Iterator[str]:
    """The terms of a chunk; stop words marked."""
    plain = chunk.strip(_EDGES)
    if plain.isascii() and plain.isalpha() and (plain.islower() or plain[1:].islower()):
        yield from _word(plain, words)
        return
    known: dict[str, tuple[str, ...]] = {}  # one character may fold to four words
    for match in _PIECE.finditer(_unified(chunk)):
        piece = match.group()
        match match.lastgroup:
            case "joined":
                if (terms := known.get(piece)) is None:
                    terms = known[piece] = tuple(_joined(piece, words, query))
                yield from terms
            case "east_asian":
                yield from script.east_asian(piece, query, cut)
            case "hangul":
                yield from script.hangul(piece, query)
            case "clustered":
                yield from script.clustered(piece, query)
            case "emoji":
                plain = _VARIANTS.sub("", piece)
                yield plain
                if "\u200d" in plain:
                    yield from plain.split("\u200d")
            case _:
                yield piece.lower()


def _unified(chunk: str) -> str:
    """What a reader sees of it, with the joiners of emoji, which make one of several."""
    if chunk.isascii():
        return folding.unified(chunk)
    chunk = _HALF_SPACE.sub("-", chunk).translate(_APART)
    if "\u200d" not in chunk:
        return folding.unified(chunk)
    parts = _EMOJI.split(chunk)
    return "".join(part if i % 2 else folding.unified(part) for i, part in enumerate(parts))


def _joined(text: str, words: Words, query: bool) -> Iterator[str]:
    if "'" in text:
        head, _, tail = text.rpartition("'")
        folded = fold(text)
        if words.is_stop(folded):
            yield _STOP + folded
            return
        if tail.lower() in _ENDINGS:
            text = head.replace("'", "-")
        elif head.lower() in _ELIDED:
            text = tail
        else:
            text = text.replace("'", "-")
    for piece, final in identifier.split(text, query):
        if final:
            yield piece
        else:
            yield from _word(piece, words)


def _word(word: str, words: Words) -> Iterator[str]:
    own = words.of(word)
    accented = folding.fold(word)
    folded = bare(accented)
    if own.is_stop(folded):
        yield _STOP + folded
    elif folded:
        yield from own.stems(accented)


def _grouped(
    flat: Terms, sizes: NDArray[np.int64], signal_weight: float, stops: Terms
) -> dict[str, NDArray[Any]]:
    """Occurrences to a segment. sizes (n, 2): terms of the body and of the signals, in `flat`."""
    n = len(sizes)
    owner = np.repeat(np.arange(n, dtype=np.int32), sizes.sum(1))
    weight = np.repeat(np.tile(np.array([1.0, signal_weight], np.float32), n), sizes.ravel())
    order = np.argsort(flat, kind="stable")  # owners stay ascending inside a term
    term, owner, weight = flat[order], owner[order], weight[order]
    new_term = np.ones(len(term), np.bool_)
    new_term[1:] = term[1:] != term[:-1]
    new = new_term.copy()
    new[1:] |= owner[1:] != owner[:-1]
    starts = np.flatnonzero(new)
    tf = np.add.reduceat(weight, starts) if len(starts) else np.empty(0, np.float32)
    document = owner[starts]
    terms = term[new_term].astype(np.uint64)
    ptr = np.append(np.flatnonzero(new_term[starts]), len(starts)).astype(np.int32)
    counted = np.repeat(~np.isin(terms, stops), np.diff(ptr))
    length = np.bincount(document[counted], tf[counted], n).astype(np.float32)
    return {"term": terms, "ptr": ptr, "document": document, "tf": tf, "length": length}
