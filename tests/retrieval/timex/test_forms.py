"""The forms of each language that a grammar of it knows, one table a language in `forms`.

A table has a heading for each day that the forms are told from; below it, windows written as
first/last day (one day where both are the same, ".." where a side is open, "none" where a sentence
has no time), each with what people say for it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.retrieval.timex.days_of import Days, read

pytestmark = pytest.mark.unit

FORMS = Path(__file__).parent / "forms"


def window(written: str) -> Days | None:
    if written == "none":
        return None
    first, _, last = written.partition("/")
    ends = [None if end == ".." else end for end in (first, last or first)]
    return ends[0], ends[1]


def rows() -> Iterator[tuple[str, str, str, list[str]]]:
    for table in sorted(FORMS.glob("*.toml")):
        for day, forms in tomllib.loads(table.read_text(encoding="utf-8")).items():
            for written, texts in forms.items():
                yield table.stem, day, written, texts


@pytest.mark.parametrize(("language", "day", "written", "texts"), list(rows()))
def test_forms(language: str, day: str, written: str, texts: list[str]) -> None:
    anchor = datetime.fromisoformat(f"{day}T10:30").replace(tzinfo=UTC)
    expected = window(written)
    wrong = {text: found for text in texts if (found := read(text, anchor)) != expected}
    assert not wrong


def test_every_language_has_its_table() -> None:
    tables = {table.stem for table in FORMS.glob("*.toml")}
    assert tables >= {
        "ar", "de", "es", "fr", "hi", "it", "ja", "ko", "nl", "pl", "pt", "ru", "sv", "tr", "zh",
    }  # fmt: skip
    for table in tables:
        known = sum(len(texts) for name, _, _, texts in rows() if name == table)
        assert known >= 100, table
