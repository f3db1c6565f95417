"""Facts out of an LLM's answers, with a scripted one."""

import json
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from retrieval.errors import NotFound, Unavailable
from retrieval.ingest.extraction import Extractor, Section, Usage
from retrieval.ingest.facts import Mention
from retrieval.ingest.naming import names
from retrieval.ingest.retain import retain
from retrieval.settings import RetainSettings
from retrieval.store import banks, memories
from retrieval.store.pool import Pool
from retrieval.types import FactType, LinkType
from tests.retrieval.store.servers import Replica, deps

DAY = datetime(2024, 5, 8, 15, 30, tzinfo=UTC)


class Scripted:
    """Answers in order; keeps what it was asked."""

    def __init__(self, *answers: Any) -> None:
        self.answers = [a if isinstance(a, str) else json.dumps(a) for a in answers]
        self.asked: list[tuple[str, str]] = []

    async def complete(
        self, system: str, user: str, *, max_tokens: int, deadline: float | None = None
    ) -> str:
        self.asked.append((system, user))
        return self.answers.pop(0)


FACTS = {
    "facts": [
        {
            "what": "Ann dropped the vase.",
            "when": "yesterday evening",
            "who": "Ann; Bo, her brother",
            "why": "N/A",
            "kind": "event",
            "entities": ["Ann", {"text": "Bo"}, ""],
        },
        {
            "what": "The agent ordered a new vase.",
            "fact_type": "experience",
            "kind": "event",
            "occurred_start": "2024-05-08T09:00:00",
            "occurred_end": "2023-01-01",
            "entities": ["Vases Ltd"],
            "caused_by": [0, 1, 7, -1, True, "0"],
        },
        {"what": "Bo collects vases.", "kind": "state", "occurred_start": "2020-01-01"},
    ]
}


async def extract(
    *answers: Any, mode: Any = "concise", chunk: str = "Some content.", **section: Any
) -> tuple[list[Any], Scripted, Usage]:
    llm, usage = Scripted(*answers), Usage()
    settings = RetainSettings(
        retain_extraction_mode=mode,
        retain_mission="household",
        retain_custom_instructions="Only vases.",
    )
    extractor = Extractor(settings, llm, usage)
    found = await extractor.facts(chunk, Section(**{"timestamp": DAY, **section}))
    return found, llm, usage


@pytest.mark.unit
async def test_facts_of_an_answer() -> None:
    given = (Mention("ann", resolve=False),)
    found, llm, usage = await extract(
        f"```json\n{json.dumps(FACTS)}\n```",
        context="diary",
        metadata={"room": "kitchen"},
        mentions=given,
    )
    first, second, third = found
    assert first.text == (
        "Ann dropped the vase. | When: yesterday evening | Involving: Ann; Bo, her brother"
    )
    assert first.occurred_start == first.occurred_end == datetime(2024, 5, 7, tzinfo=UTC)
    assert first.mentions == (Mention("ann", resolve=False), Mention("Bo"))
    assert (first.fact_type, second.fact_type) == (FactType.WORLD, FactType.EXPERIENCE)
    assert second.occurred_start == second.occurred_end == datetime(2024, 5, 8, 9, tzinfo=UTC)
    assert second.links == ((0, LinkType.CAUSED_BY),)
    assert (third.occurred_start, third.links) == (None, ())
    ((system, user),) = llm.asked
    assert "household" in system
    for part in ("Some content.", "diary", "room: kitchen", "Wednesday, 08 May 2024"):
        assert part in user
    assert usage.wire()["total_tokens"] == usage.input_tokens + usage.output_tokens > 100


@pytest.mark.unit
async def test_modes() -> None:
    prompts = {}
    for mode in ("concise", "verbose", "custom"):
        _, llm, _ = await extract(FACTS, mode=mode)
        prompts[mode] = llm.asked[0][0]
    assert len(set(prompts.values())) == 3
    assert "Only vases." in prompts["custom"]
    (fact,), _, _ = await extract(FACTS, mode="verbatim", chunk="As it was said.")
    assert fact.text == "As it was said."
    assert [m.name for m in fact.mentions] == ["Ann", "Bo", "Vases Ltd"]
    assert fact.occurred_start == datetime(2024, 5, 7, tzinfo=UTC)
    (fact,), llm, usage = await extract(mode="chunks", chunk="As it was said.")
    assert (fact.text, llm.asked, usage.wire()["total_tokens"]) == (
        "As it was said.",
        [],
        0,
    )


@pytest.mark.unit
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("last night", (2024, 5, 7)),
        ("this morning", (2024, 5, 8)),
        ("Tomorrow", (2024, 5, 9)),
        ("last week", (2024, 5, 1)),
        ("next month", (2024, 6, 7)),
        ("in spring", None),
    ],
)
async def test_relative_words(words: str, expected: tuple[int, int, int] | None) -> None:
    answer = {"facts": [{"what": f"It rained {words}.", "kind": "event"}]}
    (fact,), _, _ = await extract(answer)
    assert fact.occurred_start == (datetime(*expected, tzinfo=UTC) if expected else None)


@pytest.mark.unit
async def test_a_bad_answer_is_asked_again_once() -> None:
    found, llm, _ = await extract("I cannot do that", {"facts": []})
    assert found == []
    assert "could not be read" in llm.asked[1][1]
    with pytest.raises(Unavailable, match="extraction"):
        await extract("no", {"facts": [{"when": "now"}]})


@pytest.mark.unit
@pytest.mark.parametrize(
    ("chunk", "start"),
    [
        ("The house was sold on 5 May 2023.", (2023, 5, 5)),
        ("It was sold yesterday.", None),
        ("It was bought on 5 May 2023 and sold on 7 June 2023.", None),
    ],
)
async def test_dates_that_a_chunk_names_in_full(
    chunk: str, start: tuple[int, int, int] | None
) -> None:
    settings = RetainSettings(retain_date_text=True)
    (fact,) = await Extractor(settings).facts(chunk, Section(timestamp=DAY))
    assert fact.occurred_start == (datetime(*start, tzinfo=UTC) if start else None)
    assert (fact.occurred_end is None) == (start is None)


@pytest.mark.unit
async def test_nothing_but_punctuation_is_no_fact() -> None:
    found, _, _ = await extract(mode="chunks", chunk="... !? ---")
    assert found == []


@pytest.mark.unit
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Yesterday Ann Lee met Bo in New York.", ["Ann Lee", "Bo", "New York"]),
        ("The weather is fine. It rains.", []),
        ("Ann: I like it. We saw Ann there.", ["Ann"]),
        ("We use Kubernetes at Bank of England.", ["Kubernetes", "Bank of England"]),
        ("on Monday in May", []),
        ("Alice moved to Lisbon in May.", ["Alice", "Lisbon"]),
        ("Bread is sold here.", []),
        ("Die Bäckerin Anna Schmidt verkauft in der Stadt frisches Brot.", ["Anna Schmidt"]),
        ("Der Server ist kaputt und das Team sucht den Fehler.", []),
        ("THE SERVER IS DOWN AGAIN", []),
    ],
)
def test_names_by_their_capitals(text: str, expected: list[str]) -> None:
    assert names(text) == expected


@pytest.mark.integration
async def test_extracted_facts_are_stored_with_their_links(pool: Pool) -> None:
    bank = f"bank-{uuid4().hex[:8]}"
    llm = Scripted(FACTS)
    usage = await retain(
        deps(pool, llm=llm),
        "default",
        bank,
        [{"content": "Some content.", "document_id": "d", "timestamp": DAY.isoformat()}],
    )
    assert usage["output_tokens"] > 0
    found = (await memories.list_memories(pool, "default", bank))["items"]
    assert {item["fact_type"] for item in found} == {"world", "experience"}
    assert {item["mentioned_at"] for item in found} == {DAY.isoformat()}
    held = await Replica.of(pool, await banks.head(pool, "default", bank))
    causes = [link for link in held.links() if link[2] == LinkType.CAUSED_BY]
    assert causes == [(held.ids()[1], held.ids()[0], LinkType.CAUSED_BY)]
    assert held.column("position").tolist() == [0, 1, 2]
    await retain(  # the same content again asks nothing
        deps(pool, llm=llm), "default", bank, [{"content": "Some content.", "document_id": "d"}]
    )
    assert len(llm.asked) == 1


@pytest.mark.integration
async def test_a_chunk_that_fails_fails_the_call(pool: Pool) -> None:
    bank = f"bank-{uuid4().hex[:8]}"
    llm = Scripted(FACTS, "no", "no")
    with pytest.raises(Unavailable):
        await retain(
            deps(pool, llm=llm, settings=RetainSettings(retain_chunk_size=20)),
            "default",
            bank,
            [{"content": "First part is here. Second part is here."}],
        )
    with pytest.raises(NotFound):
        await banks.head(pool, "default", bank)
