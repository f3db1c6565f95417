"""Months, weekdays and seasons that are somebody's name, or part of one."""

from __future__ import annotations

import pytest

from retrieval.timex import Settings, parse
from tests.retrieval.timex.days_of import NOW, Days, read

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    "text",
    [
        "Wo arbeitet Jan?",
        "Was macht Jan?",
        "Wie heißt der Bruder von April?",
        "Wat is de naam van de kat van April?",
        "Comment s'appelle le fils d'Avril ?",
        "Quel est le métier de Juillet Durand ?",
        "¿Cómo se llama el gato de Mayo?",
        "Come si chiama la sorella di Domenica?",
        "Qual é o nome do filho da Abril?",
        "Nisan'ın kardeşinin adı ne?",
        "Ekim hangi şehirde yaşıyor?",
        "Skąd pochodzi Maja Środa?",
        "Как зовут кошку Августа?",
        "七月的妹妹喜欢什么?",
        "오월이네 개는 몇 살이야?",
        "삼월이의 생일 선물은?",
        "ما اسم كلب نيسان؟",
        "What is the age of June's dog?",
        "Meine Katze heißt Montag.",
        "De kat heet Vrijdag",
        "Katten heter Måndag",
        "El gato se llama Viernes",
        "Le chat s'appelle Dimanche",
        "Il cane di Marzia si chiama Venerdì",
        "O gato se chama Sexta",
        "Pies Piotra wabi się Piątek",
        "Собаку Пети зовут Пятница",
        "What do the April sisters sell?",
        "Wer ist Jan?",
        "Hat Jan angerufen?",
        "Wo wohnt August?",
        "Mit wem ist April verheiratet?",
        "ein Brief für Jan",
        "Wer kennt August Macke?",
        "Waar werkt Jan?",
        "Met wie praat Jan?",
        "Var jobbar Maj?",
        "Vad gjorde Maj Andersson?",
        "¿Dónde trabaja Julio?",
        "¿Dónde vive Plácido Domingo?",
        "Où travaille Avril ?",
        "Qui est Avril Lavigne ?",
        "Qui va sur Mars ?",
        "Dove lavora Domenica?",
        "Chi conosce Ernesto Sabato?",
        "Quem mora no Rio de Janeiro?",
        "Onde trabalha Abril?",
        "Где работает Марта?",
        "Eylül nerede çalışıyor?",
        "Who is April dating?",
        "who is april dating",
        "What does May think?",
        "What did May say about the plan?",
        "What is August's sister called?",
        "Where does June live?",
        "Who is Jan?",
        "Who is June?",
        "Who is Wednesday?",
        "Did Tuesday Weld win?",
        "Who plays Wednesday Addams?",
        "Where does Summer Smith live?",
        "Who is Theresa May?",
        "What did April O'Neil report?",
        "When did June Carter marry?",
        "Did Tom and April meet?",
        "What did April and Tom buy?",
        "Who hired August?",
        "What is June's phone number?",
        "What did Joe Friday say?",
        "Is April a nurse?",
        "Does August like coffee?",
        "What happened before April joined Acme?",
        "Does Winter Park have a station?",
        "Who lives with May?",
        "What did Aunt May cook?",
        "What does Mr August teach?",
        "What did Noel buy?",
        "Who is Easter?",
        "Where does Autumn work?",
        "Who is Augusta?",
        "What does Jan's mother do?",
        "notes for Jan",
        "How does Mrs. Sunday vote?",
        "Does Dr. Friday see children?",
        "Kennt Familie Sommer den Weg?",
        "Who owes Jan sixty euros?",
        "Did we pay Jan 40 euros?",
        "¿Quién llamó a Julio?",
        "¿Conoce Abril a tu primo?",
        "Waar studeert Mei-Lin?",
        "Hur stor är Mars?",
        "Heeft Mei een zus?",
        "Is it true that June rides a moped?",
        "¿Tiene coche Julio Mayo?",
        "陈九月住在哪里?",
        "Who wears the March Hare mask?",
        "Wo wohnt Jan August?",
        "Ekim Hanım nerede?",
        "Nisan'ın babası kim?",
        "सोम की माँ कहाँ रहती है?",
        "रवि कौन है?",
        "周一鸣的电话是多少?",
    ],
)
def test_a_word_that_stands_where_a_name_stands_is_no_time(text: str) -> None:
    assert read(text) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Wo war der Hund von August bis Oktober?", ("2024-08-01", "2024-10-31")),
        ("¿Quién usó el coche de abril a junio?", ("2025-04-01", "2025-06-30")),
        ("What did the March family reunion cost?", ("2025-03-01", "2025-03-31")),
        ("Где была собака 3 августа?", ("2024-08-03", "2024-08-03")),
        ("Was hat Jan gestern gesagt?", ("2025-06-17", "2025-06-17")),
        ("Was sagte Jan im Mai?", ("2025-05-01", "2025-05-31")),
        ("Treffen mit Jan am 3. Mai 2024", ("2024-05-03", "2024-05-03")),
        ("Was geschah im August?", ("2024-08-01", "2024-08-31")),
        ("Umsatz im Jan 2024", ("2024-01-01", "2024-01-31")),
        ("Wat deed Jan vorige week?", ("2025-06-09", "2025-06-15")),
        ("Wat gebeurde er in mei?", ("2025-05-01", "2025-05-31")),
        ("¿Qué dijo Julio el 3 de mayo de 2024?", ("2024-05-03", "2024-05-03")),
        ("¿Qué pasó en julio?", ("2024-07-01", "2024-07-31")),
        ("¿Qué hicimos el domingo?", ("2025-06-15", "2025-06-15")),
        ("Que s'est-il passé en mars ?", ("2025-03-01", "2025-03-31")),
        ("Cosa abbiamo fatto domenica?", ("2025-06-15", "2025-06-15")),
        ("O que aconteceu em janeiro de 2024?", ("2024-01-01", "2024-01-31")),
        ("Что было в марте?", ("2025-03-01", "2025-03-31")),
        ("What did Theresa May say in 2017?", ("2017-01-01", "2017-12-31")),
        ("Who met April yesterday?", ("2025-06-17", "2025-06-17")),
        ("What did I give April for Christmas 2023?", ("2023-12-25", "2023-12-25")),
        ("Where is the April report?", ("2025-04-01", "2025-04-30")),
        ("Did April sales drop?", ("2025-04-01", "2025-04-30")),
        ("What was decided in the May meeting?", ("2025-05-01", "2025-05-31")),
        ("What were April's sales?", ("2025-04-01", "2025-04-30")),
        ("what did we do in April", ("2025-04-01", "2025-04-30")),
        ("In May Alice went to Rome, what did she see?", ("2025-05-01", "2025-05-31")),
        ("What did Bob do on Friday?", ("2025-06-13", "2025-06-13")),
        ("Did you meet Anna Tuesday?", ("2025-06-17", "2025-06-17")),
        ("Friday's meeting notes", ("2025-06-13", "2025-06-13")),
        ("What did we say last April?", ("2024-04-01", "2024-04-30")),
        ("What happened from January to March?", ("2025-01-01", "2025-03-31")),
        ("What happened since May?", ("2025-05-01", None)),
        ("who called before May", (None, "2025-04-30")),
        ("MEETING NOTES MAY 2024", ("2024-05-01", "2024-05-31")),
        ("What Did We Decide On Friday", ("2025-06-13", "2025-06-13")),
        ("What will April do in June?", ("2025-06-01", "2025-06-30")),
        ("Did April call on 3 May 2024?", ("2024-05-03", "2024-05-03")),
        ("On Sunday Alice called, why?", ("2025-06-15", "2025-06-15")),
        ("What did Ana do this summer?", ("2025-06-01", "2025-08-31")),
        ("When did summer end last year?", ("2024-01-01", "2024-12-31")),
        ("What did Mr. May sign in May?", ("2025-05-01", "2025-05-31")),
        ("¿Qué pasó de abril a Junio?", ("2025-04-01", "2025-06-30")),
        ("Vad hände i mars?", ("2025-03-01", "2025-03-31")),
        ("Eylül'ün ilk haftası nasıldı?", ("2024-09-02", "2024-09-08")),
        ("सोम को क्या हुआ?", ("2025-06-16", "2025-06-16")),
        ("周一会的记录在哪?", ("2025-06-16", "2025-06-16")),
        ("Is Jan here in Jan 2024?", ("2024-01-01", "2024-01-31")),
    ],
)
def test_beside_a_preposition_number_or_modifier_it_is_a_time(text: str, expected: Days) -> None:
    assert read(text) == expected


@pytest.mark.parametrize(
    ("text", "lone"),
    [
        ("What did Friday bring?", True),
        ("Christmas songs", True),
        ("on Friday", False),
        ("last Friday", False),
        ("April 2024", False),
        ("yesterday", False),
    ],
)
def test_a_lone_word_says_that_it_may_be_a_name(text: str, lone: bool) -> None:
    found = parse(text, NOW)
    assert found is not None
    assert found.maybe_name is lone


def test_a_known_name_is_no_time_unless_something_beside_it_says_so() -> None:
    known = Settings(names=frozenset({"Friday", "Easter"}))
    assert read("What did Friday bring?") == ("2025-06-13", "2025-06-13")
    assert read("What did Friday bring?", settings=known) is None
    assert read("What did Friday bring in May?", settings=known) == ("2025-05-01", "2025-05-31")
    assert read("What did Bob bring on Friday?", settings=known) == ("2025-06-13", "2025-06-13")
    assert read("What did Bob bring last Friday?", settings=known) == ("2025-06-13", "2025-06-13")
    assert read("Easter eggs of Easter 2024", settings=known) == ("2024-03-31", "2024-03-31")
