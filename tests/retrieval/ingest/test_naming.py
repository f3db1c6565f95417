"""Names in a text by their capitals, and what they cost."""

import time
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval.ingest.entities.naming import LONGEST, SCANNED, names

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # What is hung onto a word makes no name of it.
        ("I’m tired. I've had it. It's late.", []),
        ("We know that I’m late and It's over and You’re gone.", []),
        ("Don’t go. Don't. Isn't it?", []),
        ("It was Don. Don’t tell Don.", ["Don"]),
        ("He'll see Carol's sister, who'll meet Dave’s.", ["Carol", "Dave"]),
        ("C'est la vie, J'ai vu Marie.", ["Marie"]),
        ("O'Brien met D'Angelo at L'Oréal.", ["O'Brien", "D'Angelo", "L'Oréal"]),
        # Initials and abbreviations divide no name and end no sentence.
        ("J. R. R. Tolkien wrote it.", ["J. R. R. Tolkien"]),
        ("A book by J.R.R. Tolkien was read.", ["J.R.R. Tolkien"]),
        ("Harry S. Truman was president.", ["Harry S. Truman"]),
        ("She moved to St. Louis in the U.S. He did not.", ["St. Louis", "U.S."]),
        ("The U.S. Army came.", ["U.S. Army"]),
        ("We saw Dr. Alice Smith and Prof. Jones.", ["Dr. Alice Smith", "Prof. Jones"]),
        ("Martin Luther King Jr. spoke.", ["Martin Luther King Jr."]),
        ("She takes Vitamin C. Alice does too.", ["Vitamin C", "Alice"]),
        ("We chose Plan B. Bob agreed.", ["Plan B", "Bob"]),
        # Numbers belong to a name.
        ("They met in Room 101 with Henry IV.", ["Room 101", "Henry IV"]),
        ("UA123 left at 5.", ["UA123"]),
        ("My iPhone 12 is new.", ["iPhone 12"]),
        # Sentences begin with a capital.
        ("However, Alice went. Meanwhile Bob slept.", ["Alice", "Bob"]),
        ("Bread is sold here. Running is fun.", []),
        ("Call Bob tomorrow. Ask Alice about it.", ["Bob", "Alice"]),
        ("Hello Alice, thanks. Happy birthday Bob!", ["Alice", "Bob"]),
        ("Oslo is cold. We like Oslo.", ["Oslo"]),
        ("- Bread\n- Butter\n- Milk", []),
        ("How To Build A Great Team In Ten Easy Steps", []),
        ("New York is large. Great Britain is larger.", ["New York", "Great Britain"]),
        ("They flew to Los Angeles and El Paso.", ["Los Angeles", "El Paso"]),
        ("It was Will Smith. Will Alice come?", ["Will Smith", "Alice"]),
        ("She watched Episode One on BBC Two.", ["Episode One", "BBC Two"]),
        ("A song by F.Cuz, Jr. or so.", ["F.Cuz"]),
        ("In 2011 California's 26 districts voted.", ["California"]),
        ("She said that the US and the WHO agreed with us.", ["US", "WHO"]),
        ("They saw Jan Novak.", ["Jan Novak"]),
        # Lines end names.
        ("He lives in New York\nAlice too", ["New York", "Alice"]),
        # Who speaks.
        ("caroline: hi", ["Caroline"]),
        ("caroline: hi\nmelanie: hello", ["Caroline", "Melanie"]),
        ("[12:30] caroline: hi", ["Caroline"]),
        ("**Caroline:** hi", ["Caroline"]),
        ("<caroline> hi", ["Caroline"]),
        ("note: buy milk\ntodo: sell it", []),
        ("user: hello\nassistant: hi there", []),
        ("width: 3\nheight: 4\nwidth: 5\nheight: 6", []),
        (
            "zorb: how are you today\nquix: very well thank you\nzorb: good to hear it"
            "\nquix: and you my friend",
            ["Zorb", "Quix"],
        ),
        # Scripts without spaces do not run on.
        ("Alice说她在北京。Bob去了上海", ["Alice", "Bob"]),
        ("東京でAliceが会った", ["Alice"]),
        ("我们昨天去了北京大学", []),
        ("Wir haben gestern die Anna in der Stadt gesehen.", ["Anna"]),
        ("Вчера Анна Каренина уехала в Москву.", ["Анна Каренина", "Москву"]),
        ("Caroline's Tesla broke.", ["Caroline", "Tesla"]),
    ],
)
def test_names(text: str, expected: list[str]) -> None:
    assert names(text) == expected


def test_the_number_and_length_of_names_is_bounded() -> None:
    many = " ".join(f"and Nam{chr(97 + i // 26)}{chr(97 + i % 26)} x" for i in range(200))
    assert len(names(many)) == 50
    assert len(names(many, most=3)) == 3
    assert names("and " + "A" + "b" * 300) == []
    assert names("x" * SCANNED + " and Alice") == []


_PIECES = (
    "Qa, ", "Qa ", "A.", "A. ", "a\n", " ", "\n", "Qa of the ", "Q'", "Ab-", "<a", "[x] a", "x:\n",
    "[", "Mr. ", "é", "Q\u0301", "**", "A B. ", " 1", "Q 1", "“", "I'm ", "Qa: b\n", "Q’s ", "中A",
    "- ", "Alice ", "of ", "((", "Qa\n", ".", "a: b c d\n",
)  # fmt: skip


def spent(text: str) -> float:
    begin = time.process_time()
    names(text)
    return time.process_time() - begin


@pytest.mark.parametrize("piece", _PIECES)
def test_the_time_is_linear_in_the_text(piece: str) -> None:
    def text(size: int) -> str:
        half = size // 2
        return "x " + (piece * half)[:half] + " " + ("Qa, " * half)[:half]

    assert min(spent(text(SCANNED)) for _ in range(3)) < 0.4
    assert min(spent(text(4_000)) for _ in range(3)) < 0.04
    assert spent(text(20 * SCANNED)) < 0.5


@settings(max_examples=20, deadline=None)
@given(st.lists(st.sampled_from(_PIECES), min_size=1, max_size=6), st.integers(0, 2**32))
def test_any_mixture_is_quick(pieces: list[str], seed: int) -> None:
    random = Random(seed)
    text = "".join(random.choices(pieces, k=SCANNED // 8))
    assert spent(text) < 0.5


@given(st.text(max_size=200))
def test_any_text_has_names_of_bounded_length(text: str) -> None:
    found = names(text)
    assert all(2 <= len(name) <= LONGEST for name in found)
    assert len({name.lower() for name in found}) == len(found)
