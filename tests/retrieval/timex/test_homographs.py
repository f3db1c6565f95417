"""Words that are a time in one language, or in one place, and something else in another.

Found by comparing the commonest words of each language with the time words of all the others.
"""

from __future__ import annotations

import pytest

from retrieval.timex.engine.recognition import evidence
from retrieval.timex.engine.text import WORDS, fold
from tests.retrieval.timex.days_of import Days, read

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    "text",
    [
        # German: yesterday, May, autumn, Tuesday, Monday ... of others
        "Was steht hier auf dem Zettel?", "Wer wohnt hier?", "Hier ist Anna, oder?",
        "Wie lange arbeitet Anna schon hier?", "Was mag Peter?", "Wo ist mein Sohn?",
        "Was war im Fall Weber das Problem?", "Auf jeden Fall: wer hat den Schlüssel?",
        "Wer hat den Mann gesehen?", "Wie wird es so?", "Wer ist der Dom in Köln?",
        # English
        "Who set the table?", "What is the data set called?", "Who is the host?",
        "How big is the estate?", "Who moved out?", "Do we have a sub account?", "Who met her son?",
        "What did the man say?", "How far is the sun?", "Where did she fall?",
        "Who sat next to me?",
        # the moon's quarters are none of the year's
        "When does the moon's last quarter begin?", "Which tide does the first quarter moon bring?",
        "Who drew the last quarter of the moon?", "The third quarter phase rises at midnight",
        "Did the price fall?", "Who may enter the lab?", "What is the mean of the set?",
        "How do you say son in Swedish?", 'What does "hier" mean in German?',
        "Is there life on Mars?",
        "Which route goes out to the mar?", "So do we have a plan?", "Who did Sam meet?",
        # Spanish
        "¿Quién vive cerca del mar?", "¿Dónde está el mar?", "¿Cuál será el plan?",
        "¿Qué marca compró Ana?", "¿Quién es su hijo?", "¿Cómo se llama mi hermano?",
        "¿De qué color era la casa?", "¿Quién fue el segundo presidente?", "¿Qué son las células?",
        # French
        "Qui a vu la mer ?", "Qui a été à la mer ?", "Qui a tué le roi ?", "Où est mon chien ?",
        "Combien de lunes a la planète ?",
        "Qui est son père ?", "Quel est le montage préféré de Luc ?",
        # Italian, Portuguese
        "Dove hai mai visto un leone?", "Che cosa è mai successo a Roma?", "Chi dice di no?",
        "Qual foi a segunda pergunta?", "Quem mora perto do mar?", "Qual será o plano?",
        "Quem disse isso pela segunda vez?", "Qual é a quarta opção?", "Quem só bebe água?",
        "A casa tem água?",
        # Dutch, Swedish, Turkish
        "Wie heeft de sleutel?", "Wie woont er op de maan?", "Wat is ons doel?", "Waar is de zon?",
        "Wat is hier aan de hand?", "Wie mag hem?",
        "Var är min bok?", "Vem var här?", "Vem är din son?", "Vad sa mannen?",
        "Vad är mer viktigt?",
        "Burada ne var?", "Son durum ne?", "Bana bir mektup yaz",
        # languages without a grammar of their own
        "Kto tu jest za drzwiami?", "Hvem var her?", "Hvor bor mannen min?", "Ki van már itt?",
        "Kje je mama?",
    ],
)  # fmt: skip
def test_an_everyday_word_of_the_texts_language_is_no_time_of_another(text: str) -> None:
    assert read(text) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hier", "2025-06-17"),
        ("Qui était là hier ?", "2025-06-17"),
        ("Je l'ai vu hier soir", "2025-06-17"),
        ("Wer war gestern hier?", "2025-06-17"),
        ("Wie was hier gisteren?", "2025-06-17"),
        ("Chi c'era ieri?", "2025-06-17"),
        ("Was machen wir morgen?", "2025-06-19"),
        ("Wie komt er morgen?", "2025-06-19"),
        ("¿Qué haces mañana?", "2025-06-19"),
        ("Vad hände igår?", "2025-06-17"),
    ],
)
def test_it_is_the_time_in_its_own_language(text: str, expected: str) -> None:
    assert read(text) == (expected, expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Was machen wir next week?", ("2025-06-23", "2025-06-29")),
        ("What did Ana do la semana pasada?", ("2025-06-09", "2025-06-15")),
        ("Wer kam am 3 mayo 2024?", ("2024-05-03", "2024-05-03")),
        ("Was passiert mars?", None),
    ],
)
def test_a_time_in_another_language_needs_two_words(text: str, expected: Days | None) -> None:
    assert read(text) == expected


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("where does Tom work and with whom", "en"),
        ("wo arbeitet Tom und mit wem", "de"),
        ("où travaille Tom et avec qui", "fr"),
        ("¿dónde trabaja Tom y con quién?", "es"),
        ("dove lavora Tom e con chi", "it"),
        ("onde trabalha o Tom e com quem", "pt"),
        ("waar werkt Tom en met wie", "nl"),
        ("var jobbar Tom och med vem", "sv"),
        ("Tom nerede ve kim ile çalışıyor", "tr"),
        ("gdzie pracuje Tom i z kim", "pl"),
        ("hvor arbejder Tom og med hvem", "da"),
    ],
)
def test_everyday_words_tell_the_language(text: str, language: str) -> None:
    folded = fold(text)
    found = evidence(frozenset(WORDS.findall(folded)), folded)
    assert max(found, key=found.__getitem__) == language
