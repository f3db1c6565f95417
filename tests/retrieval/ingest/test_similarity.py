"""Names that can mean one thing, and names that never do; no database."""

from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from retrieval.ingest.entities.mentions import distinct
from retrieval.ingest.entities.nicknames import variants
from retrieval.ingest.entities.similarity import (
    ACCEPT,
    SAME,
    NameForm,
    bare,
    cluster,
    likeness,
    overlap,
    recency,
    score,
    trigrams,
)
from retrieval.ingest.facts import Mention

pytestmark = pytest.mark.unit


def alike(a: str, b: str) -> float:
    found = likeness(NameForm.of(a), NameForm.of(b))
    assert found == likeness(NameForm.of(b), NameForm.of(a))
    return found


def pairs(text: str) -> list[tuple[str, str]]:
    """ "a | b" a line."""
    found = [line.split(" | ") for line in text.strip().splitlines()]
    return [(left.strip(), right.strip()) for left, right in found]


SAME_NAME = pairs("""
Βίκος | ΒΙΚΟΣ
Семёнов | Семенов
Kruse & Co. | Kruse und Co
Berg & Dal | Berg och Dal
Dr. Waller | Dr Waller
O'Brien | O’Brien
O`Brien | OʼBrien
U.S.A. | USA
J.R.R. Tolkien | J. R. R. Tolkien
Jean-Luc | jean luc
Jean‑Luc Picard | Jean-Luc Picard
“Max” | Max
«Мария» | Мария
Yahoo! | Yahoo
St. Louis | St Louis
Wren 🕯️ | Wren 🗯️
Aster | Aster 🔑
AT&T | at&t
Johnson & Johnson | Johnson and Johnson
Node.js | NodeJS
Open AI | OpenAI
Git Hub | GitHub
Kyoto-Dome | Kyoto Dome
Straße | STRASSE
José | Jose
José | JOSÉ
Jose\u0301 | José
Müller | Mueller
Müller | Muller
Łódź | Lodz
Zoë Smith | Zoe Smith
Ångström | Angstrom
Søren Kierkegaard | Soren Kierkegaard
İstanbul | Istanbul
IŞIK | ışık
Ｒｏｏｍ　１０１ | Room 101
غرفة ١٠١ | غرفة 101
ｱﾘｽ | アリス
Ge\u00adsamtkonzept | Gesamtkonzept
Anna\u200b | Anna
\u202aAnna\u202c | Anna
Henry Ⅳ | Henry IV
Аnna | Anna
کتابی | كتابي
Ștefan Vodă | Ştefan Vodă
ΣΊΣΥΦΟΣ | Σίσυφος
New_York | New York
(Acme) | Acme
Acme, Inc. | Acme Inc
Guns N' Roses | Guns N Roses
Wi-Fi | WiFi
Đà Nẵng | Da Nang
Hà Nội | Ha Noi
Lê Lợi | Le Loi
أحمد | احمد
فاطمة الزهراء | فاطمه الزهراء
مُحَمَّد | محمد
שָׁלוֹם | שלום
""")

CAN_BE_ONE = pairs("""
Merrivale | Merryvale
Kubernetes | Kubernets
Kubernetes | Kuberentes
Massachusetts | Massachusets
Mississippi | Missisippi
Cincinnati | Cincinatti
Schwarzenegger | Schwarzeneger
Gorbachev | Gorbachov
Dostoevsky | Dostoyevsky
Tchaikovsky | Tchaikowsky
Organisation for Peace | Organization for Peace
Harbour Bridge Club | Harbor Bridge Club
Alice Schneider | Alice Schnieder
Google Inc | Google
Anthropic | Anthropic Inc.
Acme Corp. | Acme Corporation
Siemens AG | Siemens
The Beatles | Beatles
The Association of Friends | Association of Friends
Dr. Alice Smith | Alice Smith
Prof. John Baker | Dr. John Baker
President Harry S. Truman | Harry S. Truman
Harry Truman | Harry S. Truman
John Kennedy | John Fitzgerald Kennedy
Alice | Alice Chen
Caroline | Caroline Brown
Robert | Bob
Robert Smith | Bob
Bob Smith | Robert Smith
Liz Taylor | Elizabeth Taylor
Mike | Michael
J. Smith | John Smith
Alice C. | Alice Chen
Dr. Waller | Alice Waller
Kowalchuk | Kowaltschuk
Anna Kowalchuk | Anna Kowaltschuk
Tchaikovsky | Tschaikowsky
Chaikovsky | Tchaikovsky
Shostakovich | Schostakowitsch
Gorbachev | Gorbatschow
Zelenskyy | Zelensky
Zelensky | Zelenskiy
Lukashenko | Lukaschenko
Andriy Shevchenko | Andriy Schewtschenko
Chernyshevsky | Tschernyschewski
Dostoevsky | Dostojewski
Rachmaninoff | Rachmaninov
Alekseyev | Alexeyev
Sergei Prokofiev | Sergey Prokofiev
Alexey Navalny | Aleksei Navalny
Dmitri Medvedev | Dmitry Medvedev
Tata Pvt. Ltd. | Tata
""")

TWO_THINGS = pairs("""
Gate 9 | Gate 9¾
Bay O | Bay 0
y² | y³
Крайнев | Краинев
Berg and Dal | Berg en Dal
Room 101 | Room 102
UA123 | UA124
2023 Tax Return | 2024 Tax Return
Q3 revenue report | Q4 revenue report
Sprint 11 | Sprint 12
Apollo 11 | Apollo 13
Boeing 737 | Boeing 747
Windows 10 | Windows 11
Python 2 | Python 3
v1 | v2
v1.0 | v10
v1.10 | v1.1
192.168.0.1 | 192.168.0.2
COVID-19 | COVID-18
Vitamin B6 | Vitamin B12
A1 | A2
H1N1 | H5N1
Type 1 diabetes | Type 2 diabetes
iPhone 12 | iPhone 12 Pro
iPhone | iPhone 12
Route 66 | Route 6
غرفة ١٠١ | غرفة ١٠٢
房间101 | 房间102
第一章 | 第二章
Henry IV | Henry V
Henry VII | Henry VIII
Elizabeth I | Elizabeth II
World War I | World War II
Final Fantasy VI | Final Fantasy IX
Rocky | Rocky II
Louis XIV | Louis XVI
C | C++
C | C#
C++ | C#
F | F#
A+ | A-
A | A-
O+ | O-
Grade A+ | Grade A
A/B | A/C
.NET | NET
A* | A
Team A | Team B
Team A | Team Alpha
Plan B | Plan C
Vitamin C | Vitamin D
Class A | Class B
Room A | Room B
X | Y
Team Alpha | Team Beta
Martin Luther King | Martin Luther King Jr.
John Smith Jr | John Smith Sr
Pliny the Elder | Pliny the Younger
East Berlin | West Berlin
North Korea | South Korea
Upper Egypt | Lower Egypt
Left Bank | Right Bank
First Bank | Second Bank
Virginia | West Virginia
Old Town | New Town
Mr. Smith | Mrs. Smith
Mr. Alex Smith | Ms. Alex Smith
Prince William | Princess William
King Edward | Queen Edward
Red Team | Blue Team
🔴 Team | 🔵 Team
Team 🇫🇷 | Team 🇩🇪
Phase Two | Phase Three
Saint Paul | Saint Paula
Paul | Paula
Anna | Annabelle
Ann | Anne
Ann | Anna
Alice | Alicia
Alina | Alisa
Carl | Carla
Daniel | Daniela
Christian | Christina
Martin | Martina
Maria | Marie
Frances | Francis
Marc | Marcel
Jon | John
Tigran | Iran
Тигран | Иран
Iran | Iraq
Malice | Alice
Java | JavaScript
York | New York
Georgia | Georgia Tech
Mexico | New Mexico
Niger | Nigeria
Guinea | Guinea-Bissau
Dominica | Dominican Republic
Austria | Australia
Slovakia | Slovenia
Colombia | Columbia
Mauritius | Mauritania
Sydney | Sidney
Charleston | Charlestown
Huntington | Huntingdon
Stanford | Sanford
Stafford | Stanford
Hartford | Hertford
Cameron | Cameroon
Paris | Paris Hilton
Jordan | Jordan River
Jordan | Michael Jordan
Washington | George Washington
Victoria | Lake Victoria
Microsoft | Microsoft Office
Google | Google Maps
React | React Native
Kafka | Kafka Streams
Amazon | Amazon Prime
Bank of America | Bank of South America
University of Texas | University of North Texas
Harry Holtzman | President Harry S
Harry Holtzman | Harry S. Truman
Alice Chen | Alice Wong
Dr John Richardson | Dr Jane Richardson
George W. Bush | George H. W. Bush
Johann Sebastian Bach | Johann Christian Bach
Johann Strauss | Richard Strauss
Mr. Smith | Jane Smith
Smith Jones | Smith
The Who | WHO
北京 | 南京
東京 | 東京都
张伟 | 张伟明
田中 | 中田
서울 | 서울역
김민준 | 김민수
Александр | Александра
Иван | Иванов
Новгород | Нижний Новгород
Hùng | Hưng
محمد | محمود
דוד | דודו
TNFα | TNFβ
μm | mm
Mars | Mara
Berlin | Bern
Alien | Aliens
Monday Club | Friday Club
Import Team | Export Team
Python | Monty Python
Ring of Fire | Ring of Ice
Charles I | Charles
Charles V | Charles
Malcolm X | Malcolm
Burlington | Barlington
Harrington | Herrington
Wellington | Willington
microservice | macroservice
Hexadecane | Hexadecene
Thiosulfate | Thiosulfite
Ethylamine | Ethylimine
Christiansen | Christianson
Alexandria | Alexandra
Christiana | Christina
Mitchell | Michell
Kitchens | Kichens
Batchelor | Bachelor
Kozlowska | Kozlowski
Kuznetsov | Kuznetsova
Petrovsky | Petrovskaya
Li Na | Lina
Hi-Fi | Wi-Fi
An-Na | Anna
Jo-An | Joan
Hà Nội | Hạ Nội
مُحَمَّد | محمود
أمان | إمان
سعيد | سعد
Apt 4B | Apt 4D
Flight BA 0117 | Flight BA 117
Model X | Model Y
Julian Weber | Juliane Weber
Robert Frost | Roberta Frost
Sam Brown | Samantha Green
Hyperthyroidism | Hypothyroidism
St. Paul | St. Pauli
eu-west-1 | eu-west-2
Springfield, IL | Springfield, MA
""")


def test_the_table_is_large_enough() -> None:
    assert len(SAME_NAME) + len(CAN_BE_ONE) + len(TWO_THINGS) >= 150


@pytest.mark.parametrize(("a", "b"), SAME_NAME)
def test_the_same_name(a: str, b: str) -> None:
    assert alike(a, b) == SAME


@pytest.mark.parametrize(("a", "b"), CAN_BE_ONE)
def test_names_that_can_mean_one_thing(a: str, b: str) -> None:
    found = alike(a, b)
    assert 0 < found <= 1
    assert score(found, 0, 0) < ACCEPT  # not without evidence
    assert score(found, 1, 1) > ACCEPT


@pytest.mark.parametrize(("a", "b"), TWO_THINGS)
def test_names_that_never_mean_one_thing(a: str, b: str) -> None:
    assert alike(a, b) == 0
    assert score(0, 1, 1) == 0


@pytest.mark.parametrize(
    ("new", "known", "name", "evidence"),
    [
        # (new, known, likeness, scores by name, with all names co-occurring, and seen the same day)
        ("Alice", "Alice Chen", 0.666667, (0.333333, 0.633333, 0.833333)),
        ("Google", "Google Inc", 1.0, (0.5, 0.8, 1.0)),
        ("Bob", "Robert", 0.444444, (0.222222, 0.522222, 0.722222)),
        ("Merryvale", "Merrivale", 0.888889, (0.444444, 0.744444, 0.944444)),
    ],
)
def test_scores(new: str, known: str, name: float, evidence: tuple[float, float, float]) -> None:
    assert alike(new, known) == pytest.approx(name, abs=1e-6)
    found = tuple(score(alike(new, known), *more) for more in ((0, 0), (1, 0), (1, 1)))
    assert found == pytest.approx(evidence, abs=1e-6)


def test_nothing_but_punctuation_is_only_itself() -> None:
    assert alike("...", "!") == 0
    assert alike("...", "...") == SAME
    assert alike("🔑", "🕯") == 0


def test_a_long_name_is_compared_letter_by_letter() -> None:
    assert alike("a" * 200 + "!", "a" * 200) == 0
    assert alike("A" * 200, "a" * 200) == SAME


def test_recency_fades_within_a_week() -> None:
    day = datetime(2024, 5, 8, tzinfo=UTC)
    assert recency(day, day) == 1
    assert recency(day, day - timedelta(days=3.5)) == pytest.approx(0.5)
    assert recency(day, day - timedelta(days=7)) == 0
    assert recency(None, day) == recency(day, None) == 0


def test_trigrams_are_those_of_the_database() -> None:
    assert trigrams("Bo b") == {"  b", " bo", "bo ", " b "}
    assert overlap(trigrams("word"), trigrams("two words")) == pytest.approx(4 / 11)


def test_short_forms_widen_the_search() -> None:
    assert "robert smith" in variants("Bob Smith")
    assert "bob" in variants("Robert")
    assert variants("Project Atlas") == ()


def test_tidy_mentions() -> None:
    given = [
        Mention("  Ann \n Lee"),
        Mention("ann lee", resolve=False),
        Mention(" "),
        Mention("\u00ad\u200b"),
        Mention("ﷺ" * 100),
        Mention("Bo"),
        Mention("B\u00ado"),
    ]
    assert distinct(given) == (Mention("Ann Lee", resolve=False), Mention("Bo"))


def clustered(
    names: list[str],
    counts: dict[str, int] | None = None,
    apart: set[frozenset[str]] | None = None,
    evidence: tuple[float, float] = (0, 1),
) -> dict[str, str]:
    forms = {name: NameForm.of(name) for name in names}
    kept = apart or set()
    return cluster(
        forms, counts or {}, lambda a, b: frozenset((a, b)) in kept, 0.5, lambda a, b: evidence
    )


def test_clusters() -> None:
    names = ["Anthropic Inc", "Anthropic", "Sprint 11", "Sprint 12", "Bo"]
    counts = {"Anthropic": 3, "Anthropic Inc": 1}
    found = clustered(names, counts)
    assert found["Anthropic Inc"] == found["Anthropic"] == "Anthropic"
    assert len(set(found.values())) == 4  # numbers tell names apart
    parted = clustered(names, counts, {frozenset(("Anthropic", "Anthropic Inc"))})
    assert parted["Anthropic Inc"] == "Anthropic Inc"
    unproved = clustered(names, counts, evidence=(0, 0))
    assert unproved["Anthropic Inc"] == "Anthropic Inc"


def test_of_two_people_who_share_a_first_name_none_stands_for_both() -> None:
    found = clustered(["Alice", "Alice Chen", "Alice Wong"], evidence=(1, 1))
    assert found["Alice Chen"] != found["Alice Wong"]


def test_of_very_many_names_the_same_are_joined_still() -> None:
    many = [f"Name {chr(97 + i % 26)}{i}" for i in range(300)]
    assert clustered(many) == {name: name for name in many}
    assert clustered([*many, "Dr. Waller", "Dr Waller"])["Dr. Waller"] == "Dr Waller"


_NAMES = st.lists(st.text("abcde ", min_size=1, max_size=8), max_size=12, unique=True)


@given(_NAMES, st.randoms())
def test_clusters_do_not_depend_on_the_order(names: list[str], random: Random) -> None:
    shuffled = list(names)
    random.shuffle(shuffled)
    assert clustered(names) == clustered(shuffled)


@given(st.text(max_size=20), st.text(max_size=20), st.floats(0, 1), st.floats(0, 1))
@example(".{", "Ann.,", 0.0, 0.0)
@example("._", "a.'b", 0.0, 0.0)
def test_scores_are_shares(a: str, b: str, cooccurrence: float, seen: float) -> None:
    assert 0 <= score(alike(a, b), cooccurrence, seen) <= 1 + 1e-9
    assert bare(bare(a)) == bare(a)
    assert alike(a, a) == SAME


@pytest.mark.parametrize(
    ("a", "b"),
    pairs(
        """
        St. Louis | Saint Louis
        St Petersburg | Saint Petersburg
        Mt. Fuji | Mount Fuji
        Ft. Worth | Fort Worth
        Univ. of Oslo | University of Oslo
        Dept. of Health | Department of Health
        """
    ),
)
def test_words_that_are_usually_written_short(a: str, b: str) -> None:
    assert alike(a, b) == 1.0


def test_a_short_word_alone_stands_for_nothing() -> None:
    assert alike("St.", "Saint") < 1.0
    assert alike("Elm St", "Elm Saint") == 0.0
