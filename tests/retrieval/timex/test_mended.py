"""What was read wrongly once, in any language: one line a sentence, with the days that it means."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.retrieval.timex.days_of import read
from tests.retrieval.timex.test_forms import window

pytestmark = pytest.mark.unit

READ = {
    "2025-06-18": {
        "Is June's proposal accepted?": "none",
        "How was the weekend?": "2025-06-14/2025-06-15",
        "What was shipped in the second half of Q2?": "2025-05-16/2025-06-30",
        "Who called at 10 to 5 yesterday?": "2025-06-17",
        "What is Robinson's Friday about?": "none",
        "Wo war er neunzehnhundertneunundachtzig?": "1989-01-01/1989-12-31",
        "Comment s'appelle la sœur de Mardi ?": "none",
        "Che cosa corregge la versione 2024.2?": "none",
        "Dove viveva nel millenovecentottantaquattro?": "1984-01-01/1984-12-31",
        "Quante vendite dal primo giugno a oggi?": "2025-06-01/2025-06-18",
        "O que corrige a versão 2024.2?": "none",
        "Welke fouten herstelt versie 2024.2?": "none",
        "Var bor Maj Sjöwall?": "none",
        "Var bodde han nittonhundraåttiofyra?": "1984-01-01/1984-12-31",
        "Где я был недели три назад?": "2025-05-28",
        "Где он работал года два назад?": "2023-06-18",
        "Что будет дня через три?": "2025-06-21",
        "Что случилось месяца два назад?": "2025-04-18",
        "Какие ошибки исправляет версия 2024.2?": "none",
        "Кто написал «Накануне»?": "none",
        "Что я делал сегодня год назад?": "2024-06-18",
        "2024.2 sürümü hangi hataları düzeltiyor?": "none",
        "19 Mayıs Caddesi nerede?": "none",
        "संस्करण 2024.2 में क्या ठीक हुआ?": "none",
        "सोमवार नाम का लड़का कौन है?": "none",
        "होली पर हम कहाँ थे?": "2025-03-14",
        "版本2024.2修复了什么？": "none",
        "圣诞节前夜谁来了？": "2024-12-24",
        "圣诞节前两天发生了什么？": "2024-12-23",
        "明明后日是什么安排？": "2025-06-21",
        "バージョン2024.2は何を直しましたか？": "none",
        "五月さんはどこで働いていますか？": "none",
        "日曜大工が好きなのは誰ですか？": "none",
        "この三日間で何が変わりましたか？": "2025-06-15/2025-06-18",
        "버전 2024.2는 무엇을 고쳤나요?": "none",
        "3일장은 어디에서 열리나요?": "none",
        "천구백팔십사년에 그는 어디에 살았나요?": "1984-01-01/1984-12-31",
        "12주차 납품": "2025-03-17/2025-03-23",
    },
    "2026-08-07": {
        "rides Nov - Jan 2023": "2022-11-01/2023-01-31",
        "Who rang at 8 this evening?": "2026-08-07",
        "Who knocked at 7 on Tuesday?": "2026-08-04",
        "letters that came before 9am on Monday": "2026-08-03",
        "What was sold in the week ending 19 July?": "2026-07-13/2026-07-19",
        "In which month of 2021 did he retire?": "2021-01-01/2021-12-31",
        "How much rain fell in the first three months of 2024?": "2024-01-01/2024-03-31",
        "Welke huizen waren verkocht voor 2018?": "../2017-12-31",
        "Wie woonde hier voor maart 2019?": "../2019-02-28",
        "Wat stond er in de begroting voor 2024?": "2024-01-01/2024-12-31",
        "Wat is gepland voor 2028?": "2028-01-01/2028-12-31",
        "Wie kwam er de 12e?": "2026-07-12",
        "Wie werd de 2e?": "none",
        "Wie is de 3e man op de foto?": "none",
        "张三月收入多少?": "none",
        "李四月底搬家了吗?": "2026-08-21/2026-08-31",
        "王五周一来过吗?": "2026-08-03",
        "今日头条是什么公司?": "none",
        "明日香さんの誕生日はいつですか?": "none",
        "Qual é a sexta edição?": "none",
        "Quem ligou na sexta?": "2026-07-31",
    },
    "2024-10-10": {
        "Where did you go over the weekend?": "2024-10-05/2024-10-06",
        "Wo warst du am Wochenende?": "2024-10-05/2024-10-06",
        "Was ist für den Rest des Oktobers geplant?": "2024-10-10/2024-10-31",
        "Que faisais-je il y a exactement un an ?": "2023-10-10",
        "¿Adónde fuiste el fin de semana?": "2024-10-05/2024-10-06",
        "¿Qué hacía yo hace exactamente un año?": "2023-10-10",
        "Dove sei andato nel fine settimana?": "2024-10-05/2024-10-06",
        "Aonde você foi no fim de semana?": "2024-10-05/2024-10-06",
        "O que eu fazia há exatamente um ano?": "2023-10-10",
        "Waar was je in het weekend?": "2024-10-05/2024-10-06",
        "Vad gjorde du i helgen?": "2024-10-05/2024-10-06",
        "Где я жил лет десять назад?": "2014-10-10",
        "Кто приедет дней через десять?": "2024-10-20",
        "Куда ты ездил на выходных?": "2024-10-05/2024-10-06",
        "Что за среда нужна для сборки?": "none",
        "On yıl önce nerede yaşıyordum?": "2014-10-10",
        "Hafta sonu nereye gittin?": "2024-10-05/2024-10-06",
        "Geçen cuma dokuz buçukta ne oldu?": "2024-10-04",
        "सप्ताहांत में तुम कहाँ गए थे?": "2024-10-05/2024-10-06",
        "पिछली होली पर कौन आया था?": "2024-03-25",
        "一个季度有几周？": "none",
        "上周五九点半发生了什么？": "2024-10-04",
        "国庆节前两天谁来了？": "2024-09-29",
        "国庆节前夕发生了什么？": "2024-09-30",
        "この二週間で何を納品しましたか？": "2024-09-26/2024-10-10",
        "週末はどこへ行きましたか？": "2024-10-05/2024-10-06",
        "40주차에 팀이 무엇을 끝냈나요?": "2024-09-30/2024-10-06",
        "주말에 어디에 갔나요?": "2024-10-05/2024-10-06",
        "5월 2주차에 무엇을 했나요?": "2024-05-06/2024-05-12",
    },
}


@pytest.mark.parametrize(("day", "text"), [(day, text) for day in READ for text in READ[day]])
def test_reads(day: str, text: str) -> None:
    anchor = datetime.fromisoformat(f"{day}T10:30").replace(tzinfo=UTC)
    assert read(text, anchor) == window(READ[day][text])
