from __future__ import annotations

import pytest

from retrieval.timex import asks_for_length, event_reference

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "relation", "phrase"),
    [
        ("What did Omar write before Nadia left Acme?", "before", "Nadia left Acme"),
        ("After the migration, who was on call?", "after", "the migration"),
        ("where did we eat while we were in Porto", "during", "we were in Porto"),
        ("who has joined since the relaunch?", "since", "the relaunch"),
        ("what was planned until the merger", "until", "the merger"),
        ("Before Nadia left Acme what did she lead?", "before", "Nadia left Acme"),
        ("what broke during the load test, and why", "during", "the load test"),
        ("¿qué hizo Ana antes de que cerrara la tienda?", "before", "cerrara la tienda"),
        ("qu'a dit Luc après le déménagement ?", "after", "le déménagement"),
        ("was tat Jana, nachdem der Server ausfiel?", "after", "der Server ausfiel"),
        ("wat deed Sanne voordat ze verhuisde?", "before", "ze verhuisde"),
        ("что делала Анна после того как сервер упал?", "after", "сервер упал"),
        ("会议之后谁负责部署", "after", "会议"),
    ],
)
def test_an_event_anchors_the_question(text: str, relation: str, phrase: str) -> None:
    found = event_reference(text)
    assert found is not None
    assert (found.relation, found.phrase) == (relation, phrase)
    assert text[found.start : found.end] == phrase


@pytest.mark.parametrize(
    "text",
    [
        "what was signed after 2023?",
        "who called before last week",
        "what happened since 3 May 2024?",
        "what did you say before that?",
        "what is the name of the project",
        "",
        "until",
    ],
)
def test_a_plain_date_is_no_event(text: str) -> None:
    assert event_reference(text) is None


@pytest.mark.parametrize(
    "text", ["What did Nadia lead in May 2024?", "who was on call", "how many tests failed"]
)
def test_other_questions(text: str) -> None:
    assert not asks_for_length(text)


def test_a_length_is_asked_in_several_languages() -> None:
    for text in (
        "how many days ago did I go running?",
        "¿cuántos días han pasado desde la boda?",
        "How long after Nadia left Acme did Omar follow?",
        "how many weeks passed between the offer and the contract?",
        "vor wie vielen Wochen war das?",
        "combien de jours entre les deux réunions ?",
        "сколько дней назад это было?",
    ):
        assert asks_for_length(text), text
        assert event_reference(text) is None, text
