"""Bytes to text, and web pages to what they say. Pure; needs nothing but the standard library and
charset-normalizer."""

from __future__ import annotations

import codecs
import re
from html.parser import HTMLParser
from typing import Final

from charset_normalizer import from_bytes

SAMPLE: Final = 256 << 10
"""Bytes by which an encoding is guessed."""
CONTROLS: Final = 0.02
"""A larger share of control characters is no text."""

_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_GUESSED: Final = (
    "cp1250", "cp1251", "cp1252", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258",
    "iso8859_2", "iso8859_5", "iso8859_7", "koi8_r", "koi8_u", "shift_jis", "euc_jp",
    "iso2022_jp", "cp932", "gb18030", "big5", "euc_kr", "cp949", "cp874",
)  # fmt: skip
"""Encodings that texts without a mark are written in; the rest only resembles these."""
_DECLARED: Final = re.compile(rb"""(?:charset|encoding)\s*=\s*["']?\s*([A-Za-z0-9_.:-]{2,40})""")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f\x7f-\x84\x86-\x9f\ufffd]")


class NoText(ValueError):
    """These bytes are no text."""


def decoded(data: bytes, *, whole: bool = True) -> str:
    """The text that the bytes are, without NUL. `whole` false: they may end inside a character.

    By a byte order mark, as UTF-8, as UTF-16 by its zeros, as declared, or as guessed. NoText.
    """
    for encoding in _candidates(data):
        try:
            found = codecs.getincrementaldecoder(encoding)("strict").decode(data, whole)
        except (UnicodeError, LookupError):
            continue
        if not _is_text(found):
            continue
        return found.removeprefix("\ufeff").replace("\0", "")
    raise NoText("it is no text in any known encoding")


def _candidates(data: bytes) -> list[str]:
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return [encoding]
    sample = data[:SAMPLE]
    zeros = sample[::2].count(0), sample[1::2].count(0)
    if max(zeros) > len(sample) // 8:
        # Nothing but text in two bytes a character has zeros in one half of them.
        if min(zeros) > max(zeros) // 8:
            return []
        return ["utf-16-be" if zeros[0] > zeros[1] else "utf-16-le"]
    found = ["utf-8"]
    if declared := _DECLARED.search(data[:2048]):
        found.append(declared[1].decode("ascii"))
    try:
        codecs.getincrementaldecoder("utf-8")("strict").decode(sample, False)
    except UnicodeDecodeError:
        best = from_bytes(sample, cp_isolation=list(_GUESSED)).best()
        found += [best.encoding] if best is not None else []
        found.append("cp1252")
    return [name for name in found if _plain(name)]


def _plain(encoding: str) -> bool:
    """Whether it is an encoding of text, and one that is read by pieces."""
    try:
        info = codecs.lookup(encoding)
    except LookupError:
        return False
    return bool(getattr(info, "_is_text_encoding", True)) and info.incrementaldecoder is not None


def _is_text(found: str) -> bool:
    looked_at = found[:SAMPLE].replace("\0\0", "\0")
    return len(_CONTROL.findall(looked_at)) <= CONTROLS * len(looked_at)


_SKIPPED: Final = frozenset({"script", "style", "template", "noscript", "svg", "math", "object"})
_BLOCKS: Final = frozenset({
    "address", "article", "aside", "blockquote", "body", "br", "caption", "dd", "details", "div",
    "dl", "dt", "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6",
    "header", "hr", "li", "main", "nav", "ol", "p", "pre", "section", "summary", "table", "tbody",
    "td", "tfoot", "th", "thead", "title", "tr", "ul",
})  # fmt: skip


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._skipped: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag in _SKIPPED:
            self._skipped.append(tag)
        elif tag in ("td", "th"):
            self.parts.append(" | ")
        elif tag == "li":
            self.parts.append("\n- ")
        elif len(tag) == 2 and tag[0] == "h" and tag[1] in "123456":
            self.parts.append(f"\n\n{'#' * int(tag[1])} ")
        elif tag in _BLOCKS:
            self.parts.append("\n")

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        if tag in _BLOCKS:
            self.parts.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in _SKIPPED:
            if tag in self._skipped:
                del self._skipped[self._skipped.index(tag) :]
        elif tag in _BLOCKS and tag not in ("td", "th"):
            self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        if not self._skipped:
            self.parts.append(re.sub(r"\s+", " ", data))


def page(html: str) -> str:
    """What a web page says: headings, lists and table rows as lines, no scripts and styles."""
    parser = _Page()
    parser.feed(html)
    parser.close()
    lines = (line.strip(" \t") for line in "".join(parser.parts).split("\n"))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
