"""Which entity a name means, on a real database."""

import asyncio
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retrieval.ingest.entities.mentions import PAIRED
from retrieval.ingest.importing import import_memories
from retrieval.ingest.retain import retain
from retrieval.settings import RetainSettings
from retrieval.store import banks
from retrieval.store.database.pool import Pool
from tests.hold import longest_hold
from tests.retrieval.store.servers import database, deps

pytestmark = pytest.mark.integration

DAY = datetime(2024, 5, 8, tzinfo=UTC)


def fact(names: list[str], day: int = 0) -> dict[str, Any]:
    return {
        "text": " and ".join(names),
        "entities": names,
        "mentioned_at": (DAY + timedelta(days=day)).isoformat(),
    }


async def partition(pool: Pool, bank: str) -> set[frozenset[str]]:
    """The names that memories gave, by entity."""
    head = await banks.head(pool, "default", bank)
    found: dict[int, set[str]] = defaultdict(set)
    for row in await pool.fetch(
        "select entity_no, mention from unit_entities where bank = $1", head.bank
    ):
        found[row[0]].add(row[1])
    return {frozenset(names) for names in found.values()}


async def told(pool: Pool, *batches: list[dict[str, Any]], **changes: Any) -> set[frozenset[str]]:
    bank = f"bank-{uuid4().hex[:8]}"
    for batch in batches:
        await import_memories(deps(pool, **changes), "default", bank, batch)
    return await partition(pool, bank)


def groups(*names: str) -> set[frozenset[str]]:
    """ "a|b" is one entity with two names."""
    return {frozenset(name.split("|")) for name in names}


@pytest.mark.parametrize(
    ("known", "new", "alone", "cooccurring", "and_same_day"),
    [
        ("Dr Waller", "Dr. Waller", True, True, True),
        ("Alice Chen", "Alice", False, True, True),
        ("Google Inc", "Google", False, True, True),
        ("Robert", "Bob", False, False, True),
        ("Robert Smith", "Bob", False, False, True),
    ],
)
async def test_evidence(
    pool: Pool, known: str, new: str, alone: bool, cooccurring: bool, and_same_day: bool
) -> None:
    for others, day, same in (
        ([], 30, alone),
        (["Xanthippe"], 30, cooccurring),
        (["Xanthippe"], 0, and_same_day),
    ):
        found = await told(pool, [fact([known, *others])], [fact([new, *others], day)])
        together = frozenset((known, new)) in found
        assert together == same, (others, day, found)


async def test_the_same_name_is_the_same_entity(pool: Pool) -> None:
    found = await told(pool, [fact(["Ann Lee"])], [fact(["  ann  LEE "], 90)])
    assert found == groups("Ann Lee|ann LEE")


async def test_what_evidence_joined_is_remembered(pool: Pool) -> None:
    found = await told(
        pool,
        [fact(["Robert Smith", "Xanthippe"])],
        [fact(["Bob", "Xanthippe"])],
        [fact(["Bob"], 300)],
    )
    assert found == groups("Robert Smith|Bob", "Xanthippe")


async def test_two_names_of_one_fact_are_two_entities(pool: Pool) -> None:
    found = await told(
        pool,
        [fact(["Alice Chen", "Xanthippe"])],
        [fact(["Alice", "Alice Chen", "Xanthippe"])],
    )
    assert found == groups("Alice", "Alice Chen", "Xanthippe")


async def test_literal_names(pool: Pool) -> None:
    bank = f"bank-{uuid4().hex[:8]}"
    ingest = deps(pool)
    await import_memories(ingest, "default", bank, [fact(["Dr Waller"])])
    await retain(
        ingest,
        "default",
        bank,
        [{"content": "x", "entities": [{"text": "Dr. Waller"}], "resolve_entities": False}],
    )
    assert await partition(pool, bank) == groups("Dr Waller", "Dr. Waller")


async def test_new_names_of_one_write_that_are_nearly_alike(pool: Pool) -> None:
    found = await told(
        pool,
        [
            fact(["Anthropic"]),
            fact(["Anthropic"]),
            fact(["Anthropic Inc"]),
            fact(["Sprint 11"]),
            fact(["Sprint 12"]),
        ],
    )
    assert found == groups("Anthropic|Anthropic Inc", "Sprint 11", "Sprint 12")


async def test_look_up_over_all_names(pool: Pool) -> None:
    found = await told(
        pool,
        [fact(["The Association of Friends", "Xanthippe"])],
        [fact(["Association of Friends", "Xanthippe"])],
        settings=RetainSettings(retain_entity_lookup="full"),
    )
    assert found == groups("The Association of Friends|Association of Friends", "Xanthippe")


async def test_banks_do_not_share_entities(pool: Pool) -> None:
    first, second = (f"bank-{uuid4().hex[:8]}" for _ in range(2))
    ingest = deps(pool)
    await import_memories(ingest, "default", first, [fact(["Alice Chen", "Xanthippe"])])
    await import_memories(ingest, "default", second, [fact(["Alice", "Xanthippe"])])
    assert await partition(pool, second) == groups("Alice", "Xanthippe")


async def test_counts_times_and_cooccurrences(pool: Pool) -> None:
    bank = f"bank-{uuid4().hex[:8]}"
    ingest = deps(pool)
    await import_memories(ingest, "default", bank, [fact(["Ann", "Bo"]), fact(["Ann"], 3)])
    await import_memories(ingest, "default", bank, [fact(["Bo", "Ann"], -2)])
    head = await banks.head(pool, "default", bank)
    rows = {
        row["canonical_name"]: (row["mention_count"], row["first_seen"], row["last_seen"])
        for row in await pool.fetch("select * from entities where bank = $1", head.bank)
    }
    assert rows == {
        "Ann": (3, DAY - timedelta(days=2), DAY + timedelta(days=3)),
        "Bo": (2, DAY - timedelta(days=2), DAY),
    }
    (pair,) = await pool.fetch("select * from entity_cooccurrences where bank = $1", head.bank)
    assert (pair["count"], pair["last_cooccurred"]) == (2, DAY)


async def test_writers_at_the_same_time_make_no_twins(pool: Pool) -> None:
    bank = f"bank-{uuid4().hex[:8]}"
    writers = [deps(pool) for _ in range(4)]  # each with turns of its own, as in other processes
    names = ["Ann", "Bo", "Cy", "Dr. Waller"]
    spelled = {"Dr. Waller": ["Dr. Waller", "Dr Waller", "dr waller"]}
    await asyncio.gather(
        *(
            import_memories(
                writer,
                "default",
                bank,
                [fact([spelled.get(n, [n])[i % 3 % len(spelled.get(n, [n]))]]) for n in names],
            )
            for i, writer in enumerate(writers * 2)
        )
    )
    found = await partition(pool, bank)
    assert len(found) == 4


# Names that share no trigram, under several spellings that differ in case, space or punctuation.
_PEOPLE = [
    ["Ann Ode", "ann ode", "Ann  Ode"],
    ["Mr. Quibble", "Mr Quibble", "mr. quibble"],
    ["Zürich", "ZÜRICH"],
    ["Kyoto-Dome", "Kyoto Dome"],
    ["北京"],
]


@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_the_order_of_arrival_does_not_matter(data: st.DataObject) -> None:
    facts = data.draw(
        st.lists(
            st.lists(
                st.sampled_from(range(len(_PEOPLE))), min_size=1, max_size=3, unique=True
            ).flatmap(lambda who: st.tuples(*(st.sampled_from(_PEOPLE[i]) for i in who))),
            min_size=2,
            max_size=8,
        )
    )
    orders = [facts, data.draw(st.permutations(facts))]
    sizes = data.draw(st.lists(st.integers(1, 3), min_size=8, max_size=8))

    async def run() -> list[set[frozenset[str]]]:
        async with database("entity_order") as pool:
            found = []
            for order in orders:
                batches, at = [], 0
                for size in sizes:
                    if order[at : at + size]:
                        batches.append([fact(list(names)) for names in order[at : at + size]])
                    at += size
                found.append(await told(pool, *batches))
            return found

    first, second = asyncio.run(run())
    assert first == second
    for people in _PEOPLE:
        assert sum(bool(group & {" ".join(p.split()) for p in people}) for group in first) <= 1


# What tells things apart, in writes one after the other and in one


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Room 101", "Room 102"),
        ("UA123", "UA124"),
        ("Henry IV", "Henry V"),
        ("2023 Tax Return", "2024 Tax Return"),
        ("Tigran", "Iran"),
        ("Paula", "Paul"),
        ("Anna", "Annabelle"),
        ("Java", "JavaScript"),
        ("York", "New York"),
        ("Georgia", "Georgia Tech"),
        ("C", "C++"),
        ("Team A", "Team B"),
        ("John Smith Jr", "John Smith Sr"),
        ("East Berlin", "West Berlin"),
        ("Harry Holtzman", "President Harry S"),
        ("Dr John Richardson", "Dr Jane Richardson"),
    ],
)
async def test_two_things(pool: Pool, first: str, second: str) -> None:
    for a, b in ((first, second), (second, first)):
        apart = await told(pool, [fact([a, "Xanthippe"])], [fact([b, "Xanthippe"])])
        assert apart == groups(a, b, "Xanthippe")
        assert await told(pool, [fact([a]), fact([b])]) == groups(a, b)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Merrivale", "Merryvale"),
        ("Wren 🕯️", "Wren 🗯️"),
        ("José", "Jose"),
        ("Łódź", "Lodz"),
        ("U.S.A.", "USA"),
        ("OpenAI", "Open AI"),
        ("Dr. Alice Smith", "Alice Smith"),
        ("Anna", "An\u00adna"),
        ("Room ١٠١", "Room 101"),
    ],
)
async def test_one_thing(pool: Pool, first: str, second: str) -> None:
    for a, b in ((first, second), (second, first)):
        assert await told(pool, [fact([a])], [fact([b])]) == groups(f"{a}|{b}")
        assert await told(pool, [fact([a]), fact([b])]) == groups(f"{a}|{b}")


async def test_who_shares_only_a_first_name_with_two_is_neither(pool: Pool) -> None:
    found = await told(
        pool,
        [fact(["Alice Chen", "Xanthippe"]), fact(["Alice Wong", "Xanthippe"])],
        [fact(["Alice", "Xanthippe"])],
    )
    assert found == groups("Alice Chen", "Alice Wong", "Alice", "Xanthippe")


async def test_who_is_known_by_one_full_name_is_not_another(pool: Pool) -> None:
    found = await told(
        pool,
        [fact(["Alice", "Xanthippe"])],
        [fact(["Alice Chen", "Xanthippe"])],
        [fact(["Alice Wong", "Xanthippe"])],
    )
    assert found == groups("Alice|Alice Chen", "Alice Wong", "Xanthippe")


# What a write may cost


async def test_the_first_entities_of_a_memory_cooccur(pool: Pool) -> None:
    bank = f"bank-{uuid4().hex[:8]}"
    names = [f"Name{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(90)]
    await import_memories(deps(pool), "default", bank, [fact(names), fact(names)])
    head = await banks.head(pool, "default", bank)
    assert len(await partition(pool, bank)) == 90
    rows = await pool.fetchval(
        "select count(*) from entity_cooccurrences where bank = $1", head.bank
    )
    assert rows == PAIRED * (PAIRED - 1) // 2


def alike(seed: int, count: int, length: int) -> list[str]:
    random = Random(seed)
    return ["".join(random.choices("ab", k=length)) for _ in range(count)]


@pytest.mark.parametrize("length", [19, 90, 190])
async def test_names_that_are_all_alike_hold_nobody(pool: Pool, length: int) -> None:
    bank, ingest = f"bank-{uuid4().hex[:8]}", deps(pool)
    for seed in range(2):
        await import_memories(ingest, "default", bank, [fact(alike(seed, 100, length))])
    longest = []
    for seed in range(2, 5):
        async with longest_hold() as held:
            await import_memories(ingest, "default", bank, [fact(alike(seed, 100, length))])
        longest.append(held.longest)
    assert min(longest) < 0.02, longest


async def test_many_names_in_one_write_hold_nobody(pool: Pool) -> None:
    longest = []
    for _ in range(3):
        bank, ingest = f"bank-{uuid4().hex[:8]}", deps(pool)
        facts = [fact([f"n{i}x{j}" for j in range(100)]) for i in range(20)]
        async with longest_hold() as held:
            await import_memories(ingest, "default", bank, facts)
        longest.append(held.longest)
    assert min(longest) < 0.02, longest
