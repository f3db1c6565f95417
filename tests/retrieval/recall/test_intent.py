import pytest

from retrieval.recall.intent import asks_about_now, asks_what_happened, asks_why

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("question", "why", "now"),
    [
        ("Why did the build fail?", True, False),
        ("What caused the outage", True, False),
        ("Warum ist es kaputt?", True, False),
        ("为什么延迟了", True, False),
        ("Where does Ines work now?", False, True),
        ("Is she still in Lisbon", False, True),
        ("她现在住在哪里", False, True),
        ("Who knows Whyte?", False, False),
        ("What did Nowak say?", False, False),
        ("Who leads the team right now?", False, True),
        ("Wo wohnt Anna jetzt?", False, True),
        ("current address of Ines", False, True),
        # the word is there, and says nothing of the present
        ("Who leads the team now that Omar is gone?", False, False),
        ("What did we decide up to now?", False, False),
        ("What has Ines painted until now?", False, False),
        ("What will happen two weeks from now?", False, False),
        ("Who calls every now and then?", False, False),
        ("Which still life hangs in the hall?", False, False),
        ("Who can't sit still?", False, False),
        ("Was Ines still in Lisbon in May?", False, False),
        ("Did Omar still work at Acme when we met?", False, False),
        ("How strong is the alternating current?", False, False),
        ("Wer leitet das Team, jetzt wo Omar weg ist?", False, False),
        ("¿Quién dirige el equipo ahora que Omar no está?", False, False),
        ("Qui dirige l'équipe maintenant qu'il est là ?", False, False),
        # said in a statement beside the question
        ("I work at Acme now. Where did I work before?", False, False),
        ("I am still looking for it! What was the name of the shop?", False, False),
        ("I moved last year. Where do I live now?", False, True),
        # only told: nothing is asked about the present
        ("Now I have a dog of my own", False, False),
        ("Omar: I am so happy now! Ines: We still have to tell Tom.", False, False),
        ("He is still away.", False, False),
        ("Ich wohne jetzt in Bonn", False, False),
        ("Ines: 我现在很开心！", False, False),
        # the word only opens what is said
        ("So now, how did the minister respond?", False, False),
        ("Now what did he say about the budget?", False, False),
        # words to look for, and questions of those who ask about themselves
        ("her job now", False, True),
        ("今の仕事は", False, True),
        ("where do I work now", False, True),
        ("Now where does she live now?", False, True),
    ],
)
def test_cues(question: str, why: bool, now: bool) -> None:
    assert (asks_why(question), asks_about_now(question)) == (why, now)


@pytest.mark.parametrize(
    ("question", "happened"),
    [
        ("What happened last spring?", True),
        ("What did Alice do last spring?", True),
        ("what have I been up to this week", True),
        ("What's new since Monday?", True),
        ("Was war letzten Sommer los?", True),
        ("Was hat Anna im Mai gemacht?", True),
        ("¿Qué hizo Ana ayer?", True),
        ("Qu'est-ce qui s'est passé en mai ?", True),
        ("Wat heeft Jan vorige week gedaan?", True),
        ("что делала Аня вчера?", True),
        ("昨天发生了什么", True),
        ("Wat heeft Jan gekocht?", False),
        ("What did Alice do with the broken bike in May?", False),
        ("What did the council decide in May?", False),
        ("Who won in May?", False),
    ],
)
def test_all_that_happened(question: str, happened: bool) -> None:
    assert asks_what_happened(question) == happened
