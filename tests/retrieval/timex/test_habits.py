"""What recurs has no window, and a day of the past beside the same words has one."""

from __future__ import annotations

import pytest

from tests.retrieval.timex.days_of import Days, read

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    "text",
    [
        "Where does he fish on weekends?",
        "Who cooks at weekends?",
        "Is she out on Friday nights?",
        "Saturday mornings he bakes, right?",
        "What does Omar usually order on Sunday?",
        "Is the library open Monday through Saturday?",
        "Wohin fährt er an Wochenenden?",
        "Was isst sie normalerweise am Sonntag?",
        "Ist die Praxis von Montag bis Donnerstag geöffnet?",
        "Chante-t-elle le jeudi ?",
        "Où va-t-il les samedis ?",
        "La mairie est-elle ouverte du lundi au samedi ?",
        "¿Corre los martes?",
        "¿Adónde va los fines de semana?",
        "¿Abre la tienda de lunes a sábado?",
        "La domenica pranza con la nonna?",
        "Il museo è aperto dal martedì al venerdì?",
        "Zwemt hij op dinsdagen?",
        "Wat doet zij meestal op zondag?",
        "Is de winkel van maandag tot zaterdag open?",
        "Ele cozinha aos domingos?",
        "Ela trabalha de segunda a quinta?",
        "Vad äter han oftast på söndag?",
        "Är museet öppet tisdag till fredag?",
        "Pazarları ne pişirir?",
        "Hafta sonları nereye gider?",
        "Gdzie jeździ w weekendy?",
        "Где она плавает по субботам?",
        "日曜日はいつも何を食べますか?",
        "一日に何回薬を飲みますか?",
        "1日2回の薬は何ですか?",
        "周二到周六营业吗?",
        "토요일마다 어디에 가나요?",
        "Åker han skidor på söndagarna?",
        "Is the bakery open on Sunday?",
        "Le musée est-il fermé mardi ?",
        "日曜は休みですか?",
        "赤ちゃんは一日何時間寝ますか?",
        "How often does he shave in a week?",
        "Wie oft ruft sie in einem Monat an?",
        "Quante volte piove in un mese?",
        "¿Cuántas veces riega en una semana?",
    ],
)
def test_what_recurs_has_no_window(text: str) -> None:
    assert read(text) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("What happened Monday through Tuesday?", ("2025-06-16", "2025-06-17")),
        ("Where were we two weekends ago?", ("2025-06-07", "2025-06-08")),
        ("What did we usually eat last Sunday?", ("2025-06-15", "2025-06-15")),
        ("Qu'a-t-elle chanté le jeudi ?", ("2025-06-12", "2025-06-12")),
        ("Cosa è successo la domenica?", ("2025-06-15", "2025-06-15")),
        ("Who comes in a week?", ("2025-06-25", "2025-06-25")),
        ("Was the bakery open on Sunday?", ("2025-06-15", "2025-06-15")),
        ("Was there an open house on Saturday?", ("2025-06-14", "2025-06-14")),
        ("Did they keep an open bar Friday?", ("2025-06-13", "2025-06-13")),
        ("Which points are open since Monday?", ("2025-06-16", None)),
        ("¿Qué pasó el martes?", ("2025-06-17", "2025-06-17")),
        ("1日に何を買いましたか?", ("2025-06-01", "2025-06-01")),
    ],
)
def test_a_day_that_is_over_has_one(text: str, expected: Days) -> None:
    assert read(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("What is planned for July 3?", ("2025-07-03", "2025-07-03")),
        ("What is the plan for Friday?", ("2025-06-20", "2025-06-20")),
        ("What was planned for July 3?", ("2024-07-03", "2024-07-03")),
        ("Which talks are scheduled for October?", ("2025-10-01", "2025-10-31")),
        ("Was ist für Freitag geplant?", ("2025-06-20", "2025-06-20")),
        ("Was war für Freitag geplant?", ("2025-06-13", "2025-06-13")),
        ("Qu'est-ce qui est prévu lundi ?", ("2025-06-23", "2025-06-23")),
        ("¿Qué está previsto para septiembre?", ("2025-09-01", "2025-09-30")),
        ("Wat staat er de 28e gepland?", ("2025-06-28", "2025-06-28")),
        ("Vad är planerat den 2 juli?", ("2025-07-02", "2025-07-02")),
        ("Что запланировано на 2 июля?", ("2025-07-02", "2025-07-02")),
        ("7月2日の予定は?", ("2025-07-02", "2025-07-02")),
        ("7月2号有什么安排?", ("2025-07-02", "2025-07-02")),
    ],
)
def test_what_is_planned_lies_ahead(text: str, expected: Days) -> None:
    assert read(text) == expected
