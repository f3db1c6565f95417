"""What a reader sees as the same word is the same word, whichever code points spell it."""

from __future__ import annotations

import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.keyword.analyser import Analyser, IndexedText

pytestmark = pytest.mark.unit

ANALYSERS = [Analyser(), Analyser("auto"), Analyser("none")]

SAME = [
    # What nobody sees.
    ("Das Ge\u00adsamt\u00adkon\u00adzept liegt hier", "Gesamtkonzept"),
    ("the word is pine\u2060apple", "pineapple"),
    ("pine\u200bapple", "pineapple"),
    ("pine\ufeffapple", "pineapple"),
    ("pine\u200capple", "pineapple"),
    ("\u202epineapple\u202c", "pineapple"),
    ("pine\x01apple", "pineapple"),
    ("pine\u034fapple", "pineapple"),
    ("part HC\u00adA060T", "HCA060T"),
    ("ticket PAY\u2060-9931", "PAY-9931"),
    ("pineapple\ufe0f", "pineapple"),
    ("ᠮᠣ\u180bᠩᠭᠣᠯ", "ᠮᠣᠩᠭᠣᠯ"),
    ("학점\u3164인정", "학점인정"),
    # Width, styles, ligatures.
    ("ＰＩＮＥＡＰＰＬＥ　７", "pineapple"),
    ("𝓅𝒾𝓃𝑒𝒶𝓅𝓅𝓁𝑒", "pineapple"),
    ("𝗽𝗶𝗻𝗲𝗮𝗽𝗽𝗹𝗲", "pineapple"),
    ("ⓟⓘⓝⓔⓐⓟⓟⓛⓔ", "pineapple"),
    ("the ofﬁce ﬂoor", "office"),
    ("the ﬅreet", "street"),
    ("Straße", "STRASSE"),
    ("STRAẞE", "straße"),
    ("ĳsvogel", "ijsvogel"),
    ("Ⅻ legions", "xii"),
    ("㎏ of rice", "kg"),
    # Composed and decomposed.
    ("Cafe\u0301", "café"),
    ("Việt Nam", "Vie\u0323\u0302t"),
    ("Đặng Thị Hồng", "Dang"),
    (unicodedata.normalize("NFD", "학점인정"), "학점인정"),
    ("ﾊｽﾞﾌﾞﾝ", "ハズブン"),
    ("か\u3099く", "がく"),
    ("ﾃﾞｰﾀ", "データ"),
    # Turkish, German, Slavic, Greek.
    ("İSTANBUL", "istanbul"),
    ("ISPARTA", "ısparta"),
    ("Iğdır", "IĞDIR"),
    ("ёлка стоит", "елка"),
    ("ΟΔΟΣ", "οδός"),
    ("ΆΛΦΑ", "αλφα"),
    ("Ｔоkyo", "Tokyo"),  # with a Cyrillic o
    ("Mоscow", "moscow"),
    ("șoarece", "şoarece"),
    # Arabic, Persian, Hebrew.
    ("ﻣﺪﺭﺳﺔ", "مدرسة"),
    ("مـــدرسة", "مدرسة"),
    ("مَدْرَسَةٌ", "مدرسة"),
    ("ﷺ", "صلى"),
    ("ﻻعب", "لاعب"),
    ("أحمد", "احمد"),
    ("ٱلكتاب", "الكتاب"),
    ("کتاب", "كتاب"),
    ("یاد", "ياد"),
    ("می\u200cخواهم", "میخواهم"),
    ("می\u200cخواهم", "می خواهم"),
    ("שָׁלוֹם", "שלום"),
    ("שׁלום", "שלום"),
    ("תל־אביב", "תל-אביב"),
    ("ז׳בוטינסקי", "ז'בוטינסקי"),
    # South and South-East Asia.
    ("क़लम", "क़लम"),
    ("ড়", "ড়"),
    ("ന്\u200d", "ൻ"),
    ("น้ำ", "นํ้า"),
    ("น้ำ", "น\u0e49\u0e4d\u0e32"),
    ("เเมว", "แมว"),
    ("ນໍ້າ", "ນ້ຳ"),
    # Digits.
    ("room ٤٧١١", "4711"),
    ("room ۴۷۱۱", "4711"),
    ("room ४७११", "4711"),
    ("room ๔๗๑๑", "4711"),
    ("room ４７１１", "4711"),
    ("room 𝟜𝟟𝟙𝟙", "4711"),
    ("১২৩ টাকা", "123"),
    ("١٬٢٣٤", "1,234"),
    ("v２.１４.３", "2.14.3"),
    # Dashes and apostrophes.
    ("e‐mail", "email"),
    ("e‑mail", "email"),
    ("e–mail", "email"),
    ("e−mail", "e-mail"),
    ("PAY–9931", "PAY-9931"),
    ("O’Brien", "O'Brien"),
    ("O‛Brien", "OʼBrien"),
    ("O`Brien", "O´Brien"),
    ("l’amour", "amour"),
    ("Hawaiʻi", "Hawai'i"),
    ("Acme™ gear", "acme"),
    # What is still found in parts.
    ("the tower—tall—fell", "tower"),
    ("OvertimeＳervice", "overtime"),
]
DIFFERENT = [
    ("й", "и"),
    ("カキ", "ガギ"),
    ("はは", "ばば"),
    ("room 4711", "4712"),
    ("мир", "mir"),
    ("کل", "گل"),
    ("학점", "학정"),
    ("a\u00a0b1 pine apple", "pineapple"),
    ("pine\u2003apple", "pineapple"),
    ("pine\u3000apple", "pineapple"),
    ("tower—tall", "towertall"),
]


def found(analyser: Analyser, text: str, query: str) -> bool:
    """Whether every term of the query is among those of the text."""
    terms = analyser.query(query).terms
    return len(terms) > 0 and bool(
        np.isin(terms, analyser.weigh([IndexedText(text)])["term"]).any()
    )


@pytest.mark.parametrize(("text", "query"), SAME, ids=ascii)
@pytest.mark.parametrize("analyser", ANALYSERS, ids=lambda analyser: analyser.language)
def test_seen_as_the_same(analyser: Analyser, text: str, query: str) -> None:
    assert found(analyser, text, query)
    assert found(analyser, query, text)


@pytest.mark.parametrize(("text", "query"), DIFFERENT, ids=ascii)
@pytest.mark.parametrize("analyser", ANALYSERS, ids=lambda analyser: analyser.language)
def test_seen_as_different(analyser: Analyser, text: str, query: str) -> None:
    assert not found(analyser, text, query)


UNSEEN = "\u00ad\u2060\u200b\ufeff\u034f\u061c\u2064\ufe01\x02\x7f"


@given(st.text("abcxyz0189-_.'äßñ", min_size=1, max_size=12), st.sampled_from(UNSEEN), st.data())
def test_a_sign_that_nobody_sees_changes_no_term(word: str, sign: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(word)))
    for analyser in ANALYSERS:
        for query in (False, True):
            hidden = analyser.terms(word[:at] + sign + word[at:], query=query)
            assert list(hidden) == list(analyser.terms(word, query=query))


@given(st.text(st.characters(categories=["L", "N", "M"]), min_size=1, max_size=8))
def test_composed_and_decomposed_have_the_same_terms(word: str) -> None:
    for analyser in ANALYSERS:
        forms = {
            tuple(analyser.terms(unicodedata.normalize(form, word), query=query))
            for form in ("NFC", "NFD")
            for query in (True,)
        }
        assert len(forms) == 1


@pytest.mark.parametrize("zero", [0x660, 0x6F0, 0x966, 0xE50, 0x17E0, 0xFF10, 0x1D7CE, 0x1E950])
def test_digits_of_every_script(zero: int) -> None:
    written = "".join(chr(zero + int(digit)) for digit in "90210")
    for analyser in ANALYSERS:
        assert found(analyser, f"zip {written}", "90210")
        assert found(analyser, "zip 90210", written)
