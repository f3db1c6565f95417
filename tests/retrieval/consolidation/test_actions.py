"""Reading what a model would do: what passes is grounded in what it was shown."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from random import Random
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval.bank.loader import next_snapshot
from retrieval.bank.vectors.flat import FlatBackend
from retrieval.consolidation import prompts
from retrieval.consolidation.actions import ActionReader, Decided, same_text
from retrieval.consolidation.batch import Batch, Shown, SourceMemory
from retrieval.ingest.facts import Fact, Mention
from retrieval.ingest.write.stored import StoredMemory
from retrieval.llm.grounding import has_controls, has_machinery, names_in, negations, numbers
from retrieval.llm.reading import NoJson
from retrieval.store.segments.delta import EntityChange
from retrieval.types import FactType
from tests.retrieval.bank.model import Ledger, Memory
from tests.retrieval.consolidation.hostile import Hostile
from tests.retrieval.consolidation.world import create, end, update
from tests.retrieval.llm.scripted import Asked

pytestmark = pytest.mark.unit

NAMES = ("Ann", "Bo", "Rome", "Porto", "Acme", "Ann Lee")


def day(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def stored(place: int, text: str, when: str | None = None, said: str = "2024-06-01",
           **more: Any) -> StoredMemory:  # fmt: skip
    named = [(NAMES.index(name), name) for name in names_in(text, NAMES)]
    fact = Fact(
        UUID(int=place + 1),
        text,
        occurred_start=None if when is None else day(when),
        mentioned_at=day(said),
        mentions=tuple(Mention(name) for _, name in named),
        **more,
    )
    return StoredMemory(fact, place, named, None)


def batch(facts: list[StoredMemory], *observations: Shown) -> Batch:
    ledger = Ledger()
    rows = [EntityChange(i, bytes(16), name, None) for i, name in enumerate(NAMES)]
    ledger.write([Memory(b"a" * 16)], entities=rows)
    bank = next_snapshot(None, ledger.delta(None), FlatBackend())
    mask = np.zeros(bank.size, np.bool_)
    return Batch("t", "b", frozenset(), tuple(facts), observations, bank, mask)


def observation(text: str, *sources: tuple[str, str], **more: Any) -> Shown:
    known = stored(100, text, **more)
    made = Fact(
        known.fact.id, text, FactType.OBSERVATION, mentioned_at=known.fact.mentioned_at,
        occurred_start=known.fact.occurred_start, valid_from=more.get("valid_from"),
    )  # fmt: skip
    return Shown(
        StoredMemory(made, 0, [], None),
        tuple(SourceMemory(said, day(when)) for said, when in sources),
    )


FACTS = [
    stored(0, "Ann moved to Porto.", "2024-05-02"),
    stored(1, "Ann has 3 cats, she said on 4 April 2024."),
    stored(2, "Bo likes the F1 race."),
]
ROME = observation("Ann lives in Rome.", ("Ann lives in Rome.", "2019-03-01"), when="2019-03-01")
BATCH = batch(FACTS, ROME)


def read(*actions: Any, questions: int = 1) -> tuple[Decided, ActionReader]:
    reader = ActionReader(BATCH, questions=questions)
    return reader.read(json.dumps({"actions": list(actions)}), True), reader


FINE = [create("Ann lives in Porto.", "F1")] * 5


@pytest.mark.parametrize(
    ("action", "why"),
    [
        (create("Ann lives in Porto.", "F4"), "not shown"),
        (create("Ann lives in Porto.", "F0"), "not shown"),
        (create("Ann lives in Porto.", "O1"), "not shown"),
        (create("Ann lives in Porto.", "F1", "F9"), "not shown"),
        (create("Ann lives in Porto."), "cites no fact"),
        (update("O2", "Ann lives in Porto.", "F1"), "not shown"),
        (update("F1", "Ann lives in Porto.", "F1"), "not shown"),
        (update("O1", "Ann lives in Porto."), "cites no fact"),
        (end("O1"), "cites no fact"),
        ({"do": "delete", "observation": "O1", "facts": ["F1"]}, "none of create"),
        (create("", "F1"), "no text"),
        (create("  \n", "F1"), "no text"),
        (create("N/A", "F1"), "no text"),
        (create("...", "F1"), "no text"),
        ({**create("", "F1"), "text": 7}, "no text"),
        (create("Ann " * 501, "F1"), "more than 2000"),
        (create("Ann lives in Porto (F1).", "F1"), "handles"),
        (create("Ann lives in Porto [F1, F3].", "F1"), "handles"),
        (create("Ann is 7d9f1c52-0a1b-4c3d-8e4f-5a6b7c8d9e0f.", "F1"), "handles"),
        (create("Ann lives\x00 in Porto.", "F1"), "control"),
        (create("Ann lives\x85 in Porto.", "F1"), "control"),
        (create("Ann \u202elives in Porto.", "F1"), "control"),
        (create("Ann has 5 cats.", "F2"), "says 5"),
        (create("Ann has ５ cats.", "F2"), "says 5"),
        (create("Ann and Bo live in Porto.", "F1"), "names 'Bo'"),
        (create("Ann Lee lives in Porto.", "F1"), "names 'Ann Lee'"),
        (create("Анна живёт в городе.", "F1"), "written in Cyrillic"),
        (end("O1", "F3"), "something else"),
        ("create", "no object"),
    ],
)
def test_what_is_dropped(action: Any, why: str) -> None:
    decided, reader = read(*FINE, action)
    assert len(decided.actions) == 5
    (dropped,) = decided.dropped
    assert why in dropped
    assert reader.dropped == [dropped]


@pytest.mark.parametrize(
    "action",
    [
        create("Bo likes the F1 race.", "F3"),  # no handle: the fact says so
        create("Ann said on 4 April 2024 that she has 3 cats.", "F2"),
        create("Ann moved to Porto in 2024, on 2 May.", "F1"),  # the date of the fact
        create("ann lives in PORTO.", "f1"),
        update("O1", "Ann lived in Rome, then in Porto.", "F1"),
        end("O1", "F1", until="2024-05-02"),
    ],
)
def test_what_passes(action: Any) -> None:
    decided, _ = read(action)
    assert (len(decided.actions), decided.dropped) == (1, ())


def test_invented_things_are_asked_about_once() -> None:
    answer = json.dumps({"actions": [*FINE, create("Ann has 5 cats.", "F2")]})
    reader = ActionReader(BATCH)
    with pytest.raises(NoJson, match="says 5"):
        reader.read(answer, False)
    decided = reader.read(answer, False)
    assert len(decided.actions) == 5
    assert decided.open == (1,)  # F2 is asked about again
    assert len(reader.dropped) == 2


def test_few_good_actions_are_no_answer() -> None:
    with pytest.raises(NoJson, match="not shown"):
        read(FINE[0], create("Ann lives in Porto.", "F9"))
    decided, _ = read()
    assert (decided.actions, decided.open) == ((), ())


@pytest.mark.parametrize("answer", ["", "no", "[]", '{"actions": 1}', '{"facts": []}', "[[[[["])
def test_no_answer(answer: str) -> None:
    with pytest.raises(NoJson):
        ActionReader(BATCH).read(answer, True)


def test_an_end_meets_what_holds_since() -> None:
    decided, _ = read(end("O1", "F1", until="2024-05-02"), create("Ann lives in Porto.", "F1"))
    ended, made = decided.actions
    assert ended.partner == 1
    assert ended.until == made.since == day("2024-05-02")
    decided, _ = read(end("O1", "F1"), create("Bo likes the F1 race.", "F3"))
    assert decided.actions[0].partner is None
    assert decided.actions[0].until == day("2024-05-02")  # when the fact happened


def test_what_a_fact_ends_it_gives_no_new_text() -> None:
    actions = [update("O1", "Ann lives in Porto.", "F1"), end("O1", "F1", until="2024-05-02")]
    decided, reader = read(*actions)
    assert [action.do for action in decided.actions] == ["end"]
    assert "the same fact ends" in reader.dropped[0]
    assert len(read(update("O1", "Ann lives in Rome.", "F3"), actions[1])[0].actions) == 2
    assert read(update("O1", "Ann lives in Porto.", "F1", "F2"), actions[1])[0].open == (1,)


@pytest.mark.parametrize("given", ["1999-01-01", "soon", "9999-12-31", "", None, 7])
def test_times_that_no_fact_has(given: Any) -> None:
    decided, _ = read(
        end("O1", "F1", until=given), create("Ann lives in Porto.", "F1", **{"from": given})
    )
    assert decided.actions[0].until == day("2024-05-02")
    assert decided.actions[1].since == day("2024-05-02")


def test_times_that_words_mean() -> None:
    decided, _ = read(create("Ann has 3 cats.", "F2", **{"from": "2024-04-04"}))
    assert decided.actions[0].since == day("2024-04-04")


@pytest.mark.parametrize(
    ("text", "fine"),
    [
        ("Ann lives in Rome.", False),  # the older news takes the place of Porto
        ("Ann lived in Rome in 2019, and lives in Porto.", True),
        ("Ann lives in Porto.", True),
    ],
)
def test_older_news(text: str, fine: bool) -> None:
    porto = observation(
        "Ann lives in Porto.", ("Ann moved to Porto.", "2024-05-02"), when="2024-05-02"
    )
    old = batch([stored(0, "Ann lives in Rome in 2019.", "2019-06-01")], porto)
    answer = json.dumps({"actions": [update("O1", text, "F1")]})
    if fine:
        assert len(ActionReader(old).read(answer, True).actions) == 1
    else:
        with pytest.raises(NoJson, match="earlier time"):
            ActionReader(old).read(answer, True)
    with pytest.raises(NoJson, match="before it"):
        ActionReader(old).read(json.dumps({"actions": [end("O1", "F1")]}), True)


def test_a_correction_names_what_it_corrects() -> None:
    porto = observation(
        "Ann lives in Porto.", ("Ann moved to Porto.", "2024-05-02"), when="2024-05-02"
    )
    old = batch([stored(0, "In March 2024 Ann moved to Rome, not to Porto.", "2024-03-01")], porto)
    answer = json.dumps({"actions": [update("O1", "Ann lives in Rome.", "F1")]})
    assert len(ActionReader(old).read(answer, True).actions) == 1


def asked() -> Asked:
    return Asked("consolidation", prompts.messages(BATCH, None), {"schema": prompts.schema()})


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(st.integers(0, 2**32))
def test_hostile_answers(seed: int) -> None:
    """Whatever is answered: only what was shown is cited, and every text is grounded."""
    hostile = Hostile(seed)
    for _ in range(25):
        answer = hostile(asked())
        text = answer if isinstance(answer, str) else json.dumps(answer)
        reader = ActionReader(BATCH)
        for last in (False, True):
            try:
                decided = reader.read(text, last)
            except NoJson:
                continue
            check(decided)


def check(decided: Decided) -> None:
    for action in decided.actions:
        assert action.do in ("create", "update", "end", "none")
        assert all(0 <= place < len(FACTS) for place in action.facts)
        assert action.do == "none" or action.facts
        assert (action.observation is None) == (action.do in ("create", "none"))
        assert action.observation in (None, 0)
        if action.do in ("create", "update"):
            grounds = [FACTS[place].fact.text for place in action.facts]
            if action.observation is not None:
                grounds.append(ROME.stored.fact.text)
            assert 0 < len(action.text) <= 2000
            assert not has_controls(action.text)
            assert not has_machinery(action.text, grounds)
            assert not names_in(action.text, set(NAMES) - set(names_in(" ".join(grounds), NAMES)))
            known = set().union(*(numbers(ground) for ground in grounds))
            assert numbers(action.text) <= known | {"2024", "2019", "5", "6", "2", "1", "05", "02"}
        for moment in (action.since, action.until):
            assert moment is None or moment.year in (2019, 2024)
        if action.partner is not None:
            assert set(decided.actions[action.partner].facts) & set(action.facts)


def test_what_reads_the_same() -> None:
    assert same_text("Ann lives in  Rome.", "ann lives in rome")
    assert not same_text("Ann lives in Rome.", "Ann lives in Porto.")
    assert negations("Ann does not like tea, never did") == 2
    assert negations("Ann isn’t here") == 1
    assert negations("Ann likes notes") == 0


def test_the_prompt_is_the_same_for_all_banks_first() -> None:
    rng = Random(1)
    plain, own = (prompts.blocks(mission, None) for mission in (None, f"boats {rng.random()}"))
    assert [b.text for b in plain[:2]] == [b.text for b in own[:2]]
    assert "boats" in own[2].text
    user = prompts.user(BATCH)
    assert str(FACTS[0].fact.id) not in user
    assert '"fact":"F1"' in user
    assert '"observation":"O1"' in user
