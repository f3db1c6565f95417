"""What becomes a term, on both sides."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.errors import InvalidInput
from retrieval.keyword.analyser import Analyser, IndexedText, term_hash
from retrieval.text.language import Words

pytestmark = pytest.mark.unit

ENGLISH = Analyser()


def matches(text: str, query: str, analyser: Analyser = ENGLISH) -> bool:
    """Whether a memory with this text scores at all for this query."""
    segment = analyser.weigh([IndexedText(text)])
    return bool(np.isin(analyser.query(query).terms, segment["term"]).any())


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("The runners were running", ["runner", "run"]),
        ("Caroline's kids don't", ["carolin", "kid"]),
        ("café CAFE Café", ["cafe"] * 3),
        ("ﬁle ＡＢＣ", ["file", "abc"]),
        ("e-mail email eMail", ["email", "mail", "email", "email", "mail"]),
        ("1,234,567.80 and 1,000", ["1234567.80", "1000"]),
        ("U.S.A. AT&T", ["usa", "at&t"]),
        ("C++ and C# and C", ["c++", "c#", "c"]),
        ("O’Brien", ["obrien", "brien"]),
        ("x_y user_name", ["xy", "usernam", "user", "name"]),
        ("👍🏽 → € 🇫🇷", ["👍", "→", "€", "🇫🇷"]),
        ("?! … — ;; *** <-> | &", []),
        ("", []),
    ],
)
def test_terms(text: str, terms: list[str]) -> None:
    assert list(ENGLISH.terms(text)) == terms


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("see https://docs.acme.io/guide/setup.html?tab=2", "docs.acme.io"),
        (
            "see https://docs.acme.io/guide/setup.html?tab=2",
            "https://docs.acme.io/guide/setup.html?tab=2",
        ),
        ("see https://docs.acme.io/guide/setup.html?tab=2", "setup.html"),
        ("see https://docs.acme.io/guide/setup.html?tab=2", "acme"),
        ("mail to jo.doe@acme.io", "jo.doe@acme.io"),
        ("mail to jo.doe@acme.io", "doe"),
        ("upgraded to v2.14.3 today", "2.14.3"),
        ("upgraded to 2.14.3-rc1 today", "v2.14.3-RC1"),
        ("upgraded to v2.14.3 today", "2.14"),
        ("calls getUserName()", "user"),
        ("calls getUserName()", "get_user_name"),
        ("reads MAX_RETRY_COUNT", "retry"),
        ("reads MAX_RETRY_COUNT", "maxRetryCount"),
        ("ticket PAY-9931 is open", "9931"),
        ("ticket PAY-9931 is open", "pay-9931"),
        ("ticket PAY9931 is open", "PAY-9931"),
        ("raised E4711 twice", "4711"),
        ("edit /etc/nginx/nginx.conf", "nginx.conf"),
        ("edit C:\\Users\\kim\\notes.txt", "notes.txt"),
        ("a well-known cafe", "wellknown"),
        ("a run of 10km", "10 km"),
        ("a run of 10 km", "10km"),
        ("uses std::vector", "vector"),
        ("the HTTPServer class", "server"),
        ("naïveté", "naivete"),
        ("a 👩🏽‍💻 at work", "👩‍💻"),
        ("a 👩🏽‍💻 at work", "💻"),
        ("to be or not to be", "to be"),
    ],
)
def test_found_whole_and_in_parts(text: str, query: str) -> None:
    assert matches(text, query)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("the C language", "C++"),
        ("a C++ course", "C"),
        ("code K417", "Q417"),
        ("the lunch is here", "supper"),
        ("version 3.14.3", "2.14.3"),
        ("the menu is on the wall", "the code is on fire"),
    ],
)
def test_not_found(text: str, query: str) -> None:
    assert not matches(text, query)


def test_stop_words_score_only_when_alone() -> None:
    both = ENGLISH.query("the who concert")
    assert list(both.terms) == list(ENGLISH.query("concert").terms)
    alone = ENGLISH.query("the who the")
    assert len(alone) == 2
    assert sorted(alone.weights.tolist()) == [1.0, 2.0]


def test_a_stem_never_counts_as_a_stop_word() -> None:
    segment = ENGLISH.weigh([IndexedText("old wills"), IndexedText("they will")])
    assert segment["length"].tolist() == [2.0, 0.0]


def test_query_counts_repeated_terms() -> None:
    query = ENGLISH.query("kiln firing kilns")
    weight = dict(zip(query.terms.tolist(), query.weights.tolist(), strict=True))
    assert weight[int.from_bytes(term_hash("kiln"), "little")] == 2.0


def test_signals_weigh_less_and_context_as_text() -> None:
    analyser = Analyser(signal_weight=0.5)
    segment = analyser.weigh([IndexedText("kiln", "pottery kiln", "Marta March 4 2024 kiln")])
    tf = dict(zip(segment["term"].tolist(), segment["tf"].tolist(), strict=True))

    def at(term: str) -> float:
        return float(tf[int.from_bytes(term_hash(term), "little")])

    assert (at("kiln"), at("potteri"), at("marta"), at("2024")) == (2.5, 1.0, 0.5, 0.5)
    assert segment["length"].tolist() == [5.5]


def test_segment_shape() -> None:
    segment = ENGLISH.weigh(
        [IndexedText("a kiln"), IndexedText(""), IndexedText("kiln kiln glaze")]
    )
    assert {name: array.dtype.str for name, array in segment.items()} == {
        "term": "<u8", "ptr": "<i4", "document": "<i4", "tf": "<f4", "length": "<f4",
    }  # fmt: skip
    assert segment["length"].tolist() == [1.0, 0.0, 3.0]
    assert np.all(np.diff(segment["term"].astype(object)) > 0)
    assert segment["ptr"][0] == 0
    assert segment["ptr"][-1] == len(segment["document"]) == len(segment["tf"])
    nothing = ENGLISH.weigh([])
    assert nothing["ptr"].tolist() == [0]
    assert len(nothing["length"]) == 0


def test_version_follows_the_options() -> None:
    versions = {
        Analyser().version,
        Analyser("german").version,
        Analyser("none").version,
        Analyser("auto").version,
        Analyser(signal_weight=0.5).version,
    }
    assert len(versions) == 5
    assert Analyser("English").version == ENGLISH.version


def test_version_and_terms_are_the_same_in_another_process() -> None:
    code = (
        "from retrieval.keyword.analyser import Analyser; a = Analyser();"
        "print(a.version, a.query('kiln firing 清关 🙂').terms.tolist())"
    )
    there = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert there == f"{ENGLISH.version} {ENGLISH.query('kiln firing 清关 🙂').terms.tolist()}"


@pytest.mark.parametrize(("language", "segmenter"), [("klingon", "bigram"), ("english", "magic")])
def test_unknown_options_are_refused(language: str, segmenter: str) -> None:
    with pytest.raises(InvalidInput, match="use"):
        Analyser(language, segmenter)


@given(st.text(max_size=80))
def test_any_text_is_analysed_and_finds_itself(text: str) -> None:
    query = ENGLISH.query(text)
    segment = ENGLISH.weigh([IndexedText(text)])
    assert np.isin(query.terms, segment["term"]).all()
    assert (query.weights > 0).all()
    assert np.isfinite(segment["tf"]).all()


def test_threads_agree() -> None:
    analyser = Analyser("auto")
    texts = [f"Kilns and häuser {i} of type{i}Name, 清关申报{i}, кошки" for i in range(300)]
    with ThreadPoolExecutor(4) as pool:
        many = list(
            pool.map(lambda text: analyser.weigh([IndexedText(text)])["term"].tolist(), texts)
        )
    fresh = Analyser("auto")
    assert many == [fresh.weigh([IndexedText(text)])["term"].tolist() for text in texts]


@pytest.mark.parametrize(
    "text",
    [
        "1.1" + "a" * 5_000 + "_b",
        "1.1" + "a-" * 5_000 + "é",
        "a" * 20_000,
        "aB" * 5_000,
        "-".join("ab" for _ in range(5_000)),
        "x/" * 5_000 + "y",
        "don't" * 5_000,
        "1,000" * 5_000,
        "漢" * 5_000,
        "ก็" * 5_000,
        "👩\u200d" * 10_000,
    ],
)
def test_long_words_cost_little(text: str) -> None:
    begin = time.process_time()
    for language in ("english", "auto"):
        analyser = Analyser(language)
        analyser.weigh([IndexedText(text)])
        analyser.query(text)
    assert time.process_time() - begin < 2.0


def test_a_long_text_without_white_space_is_read_in_parts() -> None:
    sentences = "昨天我在港口看到一艘船。" * 3_000
    apart = ENGLISH.weigh([IndexedText(sentences.replace("。", "。 "))])
    joined = ENGLISH.weigh([IndexedText(sentences)])
    assert joined["term"].tolist() == apart["term"].tolist()
    assert joined["tf"].tolist() == apart["tf"].tolist()
    endless = ENGLISH.weigh([IndexedText("船港" * 20_000)])
    assert endless["tf"].sum() >= 39_990


def test_a_word_that_one_character_folds_to_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    stems = Words.stems

    def noted(words: Words, accented: str) -> Sequence[str]:
        read.append(accented)
        return stems(words, accented)

    monkeypatch.setattr(Words, "stems", noted)
    segment = ENGLISH.weigh([IndexedText("\ufdfa" * 500)])
    assert len(read) <= 8
    assert segment["tf"].sum() >= 1_500  # and yet each is counted
