"""What looks the same is the same, and what does not stays apart."""

import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.text.folding import fold, key

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("É", "é"),
        ("Jose\u0301", "José"),
        ("İstanbul", "istanbul"),
        ("ISTANBUL", "İstanbul"),
        ("Işık", "IŞIK"),
        ("Straße", "STRASSE"),
        ("ΣΊΣΥΦΟΣ", "σίσυφος"),
        ("Ge\u00adsamt", "Gesamt"),
        ("pine\u2060apple", "pineapple"),
        ("\ufeffAnna", "Anna"),
        ("\u202eAnna\u202c", "Anna"),
        ("An\u200bna", "Anna"),
        ("Anna\ufe0f", "Anna"),
        ("An\u034fna", "Anna"),
        ("An\x07na", "Anna"),
        ("O’Brien", "O'Brien"),
        ("OʼBrien", "O`Brien"),
        ("ג׳ורג׳", "ג'ורג'"),
        ("“Max”", '"Max"'),
        ("Jean‑Luc", "Jean-Luc"),
        ("Jean–Luc", "Jean-Luc"),
        ("Ｒｏｏｍ　１０１", "Room 101"),
        ("Room ١٠١", "Room 101"),
        ("Room १०१", "Room 101"),
        ("Room ۱۰۱", "Room 101"),
        ("𝐑𝐨𝐨𝐦", "room"),
        ("Henry Ⅳ", "Henry IV"),
        ("ﬁsh", "fish"),
        ("Café\u00a0Noir", "Café Noir"),
        ("ｶﾀｶﾅ", "カタカナ"),
        ("か\u3099", "が"),
        ("학교", unicodedata.normalize("NFD", "학교")),
        ("کتابی", "كتابي"),
        ("مـــحمد", "محمد"),
        ("می\u200cخواهم", "میخواهم"),
        ("അവന\u0d4d\u200d", "അവൻ"),
        ("উত\u09cd\u200d", "উৎ"),
        ("Ștefan", "Ştefan"),
        ("Аnna", "Anna"),
        ("Mосква", "Москва"),
        ("Αthens", "Athens"),
        ("Foo™", "Foo"),
        ("\u2126", "Ω"),
        ("\u212b", "Å"),
        ("⼈", "人"),
    ],
)
def test_looks_the_same(a: str, b: str) -> None:
    assert key(a) == key(b)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("Jose", "José"),
        ("C", "C++"),
        ("Ann", "Anne"),
        ("μm", "mm"),
        ("TNFα", "TNFβ"),
        ("Иван", "Ivan"),
        ("й", "и"),
        ("A-B", "A B"),
        ("1.10", "1.1"),
        ("バ", "ハ"),
        ("ー", "-"),
    ],
)
def test_looks_different(a: str, b: str) -> None:
    assert key(a) != key(b)


def test_line_ends_stay_and_blanks_are_one() -> None:
    assert fold("A\u2003B\nC\u00a0D\tE") == "a b\nc d\te"
    assert key(" A \u2003\n B ") == "a b"


@given(st.text(max_size=40))
def test_folding_twice_is_folding_once(text: str) -> None:
    assert fold(fold(text)) == fold(text)
    assert key(key(text)) == key(text)


@given(st.text(max_size=20), st.text("\u00ad\u200b\u200e\u2060\ufeff\ufe0f", max_size=3))
def test_unseen_characters_are_none(text: str, unseen: str) -> None:
    if text.isascii():
        assert fold(unseen.join(text)) == fold(text)


@pytest.mark.parametrize(
    "unit",
    ["a", "é", "\u0301", "\u0300\u0316", "ﷺ", "Аa", "\u00ad", " ", "\n", "İ", "ത\u0d4d\u200d"],
)
def test_the_time_is_linear(unit: str) -> None:
    def spent(size: int) -> float:
        text = "x" + unit * (size // len(unit))
        best = 1e9
        for _ in range(3):
            begin = time.process_time()
            fold(text)
            best = min(best, time.process_time() - begin)
        return best

    assert spent(160_000) < 20 * (spent(40_000) + 2e-3)
