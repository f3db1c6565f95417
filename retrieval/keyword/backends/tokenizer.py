"""The tokenizers of pg_search, by the names an operator may write."""

from __future__ import annotations

import re
from typing import Final

from retrieval.errors import InvalidInput

_PLAIN: Final = (
    "unicode_words", "simple", "whitespace", "literal", "literal_normalized",
    "chinese_compatible", "icu", "jieba", "source_code",
)  # fmt: skip
_LINDERA: Final = ("chinese", "japanese", "korean")
_CALL = re.compile(r"(\w+)\s*\(\s*([^()]*?)\s*\)")


def tokenizer_cast(name: str) -> str:
    """The cast for an indexed field, or "" for the engine's default. InvalidInput if unknown."""
    plain = name.strip().lower()
    if not plain:
        return ""
    if plain in _PLAIN:
        return f"pdb.{plain}"
    for language in _LINDERA:
        if plain in (f"lindera_{language}", f"{language}_lindera"):
            return f"pdb.lindera({language})"
    call = _CALL.fullmatch(plain)
    if call:
        kind, arguments = call[1], [part.strip() for part in call[2].split(",")]
        if kind == "lindera" and len(arguments) == 1 and arguments[0] in _LINDERA:
            return f"pdb.lindera({arguments[0]})"
        if kind in ("ngram", "edge_ngram") and len(arguments) == 2:
            least, most = (int(part) if part.isdecimal() else 0 for part in arguments)
            if 0 < least <= most:
                return f"pdb.{kind}({least},{most})"
    raise InvalidInput(
        f"unknown pg_search tokenizer {name!r}: use one of {', '.join(_PLAIN)},"
        " lindera(chinese|japanese|korean), ngram(min,max) or edge_ngram(min,max) with"
        " 0 < min <= max",
        "text_search_extension_pg_search_tokenizer",
    )
