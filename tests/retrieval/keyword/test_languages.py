"""Small banks in several languages: a query finds what a reader of that language would expect."""

from __future__ import annotations

import numpy as np
import pytest

from retrieval.errors import InvalidInput
from retrieval.keyword import bm25
from retrieval.keyword.analyser import Analyser, IndexedText
from retrieval.keyword.postings import Postings
from retrieval.text.language import guess

pytestmark = pytest.mark.unit


def search(analyser: Analyser, texts: list[str], query: str) -> list[int]:
    """Indices of the matching texts, best first."""
    postings = Postings.empty().append(analyser.weigh([IndexedText(text) for text in texts]), 0)
    matches = bm25.scores(postings, analyser.query(query))
    best = bm25.best(matches.ordinals, matches.scores, len(texts))
    return [int(ordinal) for ordinal in best.ordinals]


CHINESE = [
    "小王在杭州的一家书店做店员。",
    "他每天早上喝一杯绿茶。",
    "仓库钥匙放在前台抽屉里。",
    "她的航班因为台风取消了。",
]
JAPANESE = [
    "田中さんは京都の大学で物理を教えています。",
    "猫を二匹飼っている。",
    "毎朝コーヒーを飲みます。",
    "図書館は月曜日に休みです。",
    "りんごよりみかんのほうが好きだ。",
]
KOREAN = [
    "민수는 서울에 있는 학교에서 수학을 가르칩니다.",
    "어제 김치찌개를 먹었어요.",
    "집에서 고양이를 키웁니다.",
    "회의는 화요일 오후에 시작합니다.",
]
THAI = [
    "แมวของเขาชอบกินปลา",
    "ประชุมเริ่มวันอังคารตอนบ่าย",
    "ร้านกาแฟอยู่ใกล้สถานีรถไฟ",
    "กุญแจห้องอยู่ในลิ้นชัก",
]
ARABIC = [
    "تعمل ليلى معلمة في المدرسة الجديدة.",
    "يشرب أحمد القهوة كل صباح.",
    "المفاتيح في الدرج الأول.",
    "سافرت العائلة إلى القاهرة بالقطار.",
]
GERMAN = [
    "Frau Müller wohnt in einem alten Haus in Köln.",
    "Die Kinder spielen im Garten Fußball.",
    "Der Schlüssel liegt in der Schublade.",
    "Er kaufte gestern zwei Bücher.",
]
MIXED = [
    "Docker 镜像每周一 rebuild 一次。",
    "Das Meeting mit 田中さん ist am Freitag.",
    "Серверы в Москве перезагружены.",
    "Le café de l'hôtel ferme à 18h.",
    "배포는 v2.3.1 버전부터 적용 🎉",
]


@pytest.mark.parametrize(
    ("language", "texts", "query", "expected"),
    [
        ("english", CHINESE, "书店", [0]),
        ("english", CHINESE, "他喜欢喝什么绿茶？", [1]),
        ("english", CHINESE, "请问仓库的钥匙在哪里", [2]),
        ("english", CHINESE, "茶", [1]),
        ("english", CHINESE, "为什么航班取消了？", [3]),
        ("english", JAPANESE, "京都の大学", [0]),
        ("english", JAPANESE, "猫はどこですか", [1]),
        ("english", JAPANESE, "ｺｰﾋｰ", [2]),
        ("english", JAPANESE, "図書館の休みはいつですか？", [3]),
        ("english", JAPANESE, "みかん", [4]),
        ("english", JAPANESE, "物理を教える人", [0]),
        ("english", KOREAN, "학교는 어디에 있습니까?", [0]),
        ("english", KOREAN, "김치찌개", [1]),
        ("english", KOREAN, "집", [2]),
        ("english", KOREAN, "고양이가", [2]),
        ("english", KOREAN, "회의가 언제 시작해요?", [3]),
        ("english", THAI, "แมวกินอะไร", [0]),
        ("english", THAI, "ประชุม", [1]),
        ("english", THAI, "ร้านกาแฟ", [2]),
        ("english", THAI, "กุญแจ", [3]),
        ("arabic", ARABIC, "المعلمة", [0]),
        ("arabic", ARABIC, "مدرسة", [0]),
        ("english", ARABIC, "القَهْوَة", [1]),
        ("english", ARABIC, "مفتاح أو مفاتيح", [2]),
        ("arabic", ARABIC, "قطار القاهرة", [3]),
        ("german", GERMAN, "Häuser", [0]),
        ("german", GERMAN, "muller", [0]),
        ("german", GERMAN, "Mueller", [0]),
        ("german", GERMAN, "FUSSBALL", [1]),
        ("german", GERMAN, "das Spiel der Kinder", [1]),
        ("german", GERMAN, "Wo sind die Schlüssel?", [2]),
        ("german", GERMAN, "ein Buch", [3]),
        ("auto", GERMAN, "Wo liegen die Bücher?", [3]),
        ("auto", GERMAN, "Schlüssel", [2]),
        ("english", MIXED, "docker 镜像", [0]),
        ("english", MIXED, "田中", [1]),
        ("english", MIXED, "сервер", [2]),
        ("english", MIXED, "cafe hotel", [3]),
        ("french", MIXED, "les cafés", [3]),
        ("english", MIXED, "2.3.1", [4]),
        ("english", MIXED, "🎉", [4]),
        ("none", MIXED, "MEETING", [1]),
    ],
)
def test_finds(language: str, texts: list[str], query: str, expected: list[int]) -> None:
    assert search(Analyser(language), texts, query) == expected


@pytest.mark.parametrize("texts", [CHINESE, JAPANESE, KOREAN, THAI, ARABIC, GERMAN, MIXED])
def test_every_text_finds_itself_first(texts: list[str]) -> None:
    for language in ("english", "auto", "none"):
        analyser = Analyser(language)
        for i, text in enumerate(texts):
            assert search(analyser, texts, text)[0] == i


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("What did they say about the house?", "english"),
        ("Wo sind die Schlüssel für das Haus?", "german"),
        ("أين المفتاح الذي كان في المدرسة؟", "arabic"),
        ("Où est la clé de la maison ?", "french"),
        ("¿Dónde está la llave de mi casa?", "spanish"),
        ("Где лежат ключи и что он сказал?", "russian"),
        ("kiln 42", "none"),
        ("", "none"),
    ],
)
def test_guess(text: str, language: str) -> None:
    assert guess(text) == language


def test_function_words_alone_still_search() -> None:
    assert search(Analyser(), ["什么的", "绿茶"], "什么") == [0]


def test_jieba_says_what_is_missing_or_cuts_words() -> None:
    try:
        import jieba  # noqa: F401
    except ImportError:
        with pytest.raises(InvalidInput, match="jieba"):
            Analyser(segmenter="jieba")
        return
    analyser = Analyser(segmenter="jieba")
    assert search(analyser, CHINESE, "仓库的钥匙") == [2]
    assert search(analyser, CHINESE, "茶") == [1]
    assert "库钥" not in analyser.terms(CHINESE[2])
    assert not np.isin(
        analyser.query("库钥").terms, analyser.weigh([IndexedText(CHINESE[2])])["term"]
    ).all()
