import pytest

from retrieval.cues import asks_about_now, asks_why

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
    ],
)
def test_cues(question: str, why: bool, now: bool) -> None:
    assert (asks_why(question), asks_about_now(question)) == (why, now)
