"""Truth over time: what a user asks is answered by what holds, or held, then."""

from __future__ import annotations

from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from models.types import Scores
from retrieval.bank.cache import ResidencySettings
from retrieval.bank.residency import Residency
from retrieval.keyword.analysers import analyser_for
from retrieval.protocols import RerankRequest
from retrieval.recall.engine import RecallEngine
from retrieval.recall.retriever import LocalRetriever
from retrieval.settings import RecallSettings, RetainSettings
from retrieval.store import memories
from retrieval.types import FactType, Filters, RecallQuery
from tests.retrieval.consolidation.world import World, create, each, end, handle, shown, update
from tests.retrieval.llm.scripted import Asked

pytestmark = pytest.mark.integration

NOW = datetime(2025, 1, 1, tzinfo=UTC)


class Alike:
    """A reranker to which all memories are equally good, as a real one may be of two states."""

    reads_text = True

    def __init__(self, scores: bool) -> None:
        self._scores = scores

    async def rerank(self, request: RerankRequest) -> Scores:
        import numpy as np

        found = np.full(len(request.documents), 0.8, np.float32) if self._scores else None
        if found is not None and len(found):
            found[0] += 0.01
        return Scores(found, "probability", "test", False, 0)


@dataclass
class Asking:
    world: World
    engine: RecallEngine

    async def __call__(self, text: str, *, everything: bool = False, **more: Any) -> list[Any]:
        kinds = tuple(FactType) if everything else (FactType.OBSERVATION,)
        filters = Filters(types=kinds, as_of=more.pop("as_of", None))
        query = RecallQuery(
            self.world.tenant, self.world.bank, text, NOW, filters=filters, explain=True, **more
        )
        found = await self.engine.recall(query)
        return list(found.body["results"])


@pytest.fixture(params=[False, True], ids=["fused", "reranked"])
async def ask(world: World, request: pytest.FixtureRequest) -> AsyncIterator[Asking]:
    settings = RecallSettings()
    with ThreadPoolExecutor(1) as threads:
        retriever = LocalRetriever(
            world.pool,
            world.residency,
            world.deps.ingest.embedder,
            settings,
            threads,
            lambda head: analyser_for(RetainSettings()),
        )
        yield Asking(world, RecallEngine(world.pool, retriever, Alike(request.param), settings))


def fact(text: str, when: str | None = None, said: str = "2024-06-01", **more: Any) -> Any:
    names = [name for name in ("Ann", "Rome", "Porto", "Google", "Meta", "Acme") if name in text]
    return {"text": text, "key": text, "occurred_start": when, "mentioned_at": said,
            "entities": names, **more}  # fmt: skip


async def lives_in_rome(world: World) -> dict[str, Any]:
    world.model.rule = each
    await world.add(fact("Ann lives in Rome.", "2019-03-01", "2019-03-02"))
    await world.run()
    (made,) = await world.observations()
    return made


async def moves_to_porto(world: World) -> None:
    def answer(asked: Asked) -> Any:
        _, observations = shown(asked)
        rome = handle(observations, "Rome")
        return {"actions": [end(rome, "F1", until="2024-05-02"),
                            create("Ann lives in Porto.", "F1")]}  # fmt: skip

    world.model.rule = answer
    await world.add(fact("Ann moved to Porto.", "2024-05-02"))
    await world.run()


async def test_a_change(world: World, ask: Asking) -> None:
    await lives_in_rome(world)
    await moves_to_porto(world)
    for text in ("Where does Ann live now?", "Where does Ann live?", "Ann's home"):
        first, second = await ask(text)
        assert first["text"] == "Ann lives in Porto."
        assert first["valid_from"] == datetime(2024, 5, 2, tzinfo=UTC)
        assert "valid_until" not in first
        assert second["valid_until"] == datetime(2024, 5, 2, tzinfo=UTC)
        assert second["superseded_by"] == first["id"]
        assert second["explain"]["outside_its_time"] is True
        assert "outside_its_time" not in first["explain"]
    for text in ("Where did Ann live in 2022?", "Where did Ann live before 2024?"):
        window = [r["text"] for r in await ask(text) if r["explain"]["temporal"] != 0.5]
        assert window[:1] == ["Ann lives in Rome."], text
        assert (await ask(text))[0]["text"] == "Ann lives in Rome.", text
    for text in ("Where did Ann live in August 2024?", "Where did Ann live after May 2024?"):
        assert (await ask(text))[0]["text"] == "Ann lives in Porto.", text
    # The single read and the list say the same.
    porto, rome = await world.observations()
    one = await memories.get(world.pool, world.tenant, world.bank, rome["id"])
    for shown_as in (one, rome):
        assert shown_as["valid_until"] == "2024-05-02T00:00:00+00:00"
        assert shown_as["superseded_by"] == porto["id"]


async def test_a_change_and_the_memories_below(world: World, ask: Asking) -> None:
    await lives_in_rome(world)
    await moves_to_porto(world)
    found = await ask("Where does Ann live now?", everything=True)
    order = [r["text"] for r in found]
    assert order.index("Ann lives in Porto.") < order.index("Ann lives in Rome.")


async def test_as_of_before_the_change(world: World, ask: Asking) -> None:
    await lives_in_rome(world)
    await moves_to_porto(world)
    (found,) = await ask("Where does Ann live now?", as_of=datetime(2024, 1, 1, tzinfo=UTC))
    assert found["text"] == "Ann lives in Rome."
    assert "valid_until" not in found
    assert "outside_its_time" not in found["explain"]


async def test_a_correction(world: World, ask: Asking) -> None:
    world.model.rule = each
    await world.add(fact("Ann works at Google.", None, "2024-03-01"))
    await world.run()
    (before,) = await world.observations()

    def answer(asked: Asked) -> Any:
        _, observations = shown(asked)
        return {"actions": [update(handle(observations, "Google"), "Ann works at Meta.", "F1")]}

    world.model.rule = answer
    await world.add(fact("Ann works at Meta, not at Google.", None, "2024-04-01"))
    await world.run()
    (after,) = await world.observations()
    assert (after["id"], after["text"]) == (before["id"], "Ann works at Meta.")
    past = await memories.history(world.pool, world.tenant, world.bank, after["id"])
    assert [p["previous_text"] for p in past] == ["Ann works at Google."]
    assert [p["reason"] for p in past] == ["more"]
    assert [r["text"] for r in await ask("Where does Ann work now?")] == ["Ann works at Meta."]


@pytest.mark.parametrize("said", ["2019-06-01", "2024-06-01"])
@pytest.mark.parametrize("wrong", ["end", "update"])
async def test_older_news_leave_the_state_alone(
    world: World, ask: Asking, said: str, wrong: str
) -> None:
    """An old letter after the new state: whatever the model would do, that state stays."""
    world.model.rule = each
    await world.add(fact("Ann lives in Porto.", "2024-05-02", "2024-05-03"))
    await world.run()

    def answer(asked: Asked) -> Any:
        _, observations = shown(asked)
        porto = handle(observations, "Porto")
        ends = end(porto, "F1", until="2019-06-01")
        updates = update(porto, "Ann lives in Rome.", "F1")
        past = create("Ann lived in Rome in 2019.", "F1", **{"from": "2019-06-01"})
        return {"actions": [*[past] * 4, ends if wrong == "end" else updates]}

    world.model.rule = answer
    await world.add(fact("Ann lived in Rome in 2019.", "2019-06-01", said))
    await world.run()
    found = {o["text"]: o for o in await world.observations()}
    assert set(found) == {"Ann lives in Porto.", "Ann lived in Rome in 2019."}
    assert found["Ann lives in Porto."]["valid_until"] is None
    assert (await ask("Where does Ann live now?"))[0]["text"] == "Ann lives in Porto."
    in_2019 = await ask("Where did Ann live in 2019?")
    rome = next(r for r in in_2019 if "Rome" in r["text"])
    assert "temporal" in rome["explain"]["arms"]
    assert all("temporal" not in r["explain"]["arms"] for r in in_2019 if r is not rome)


async def test_a_count_said_anew(world: World, ask: Asking) -> None:
    world.model.rule = each
    await world.add(fact("Ann has 3 cats.", None, "2024-03-01"))
    await world.run()

    def answer(asked: Asked) -> Any:
        _, observations = shown(asked)
        cats = handle(observations, "cats")
        added_up = update(cats, "Ann has 8 cats.", "F1")
        if len(world.model.asked) == 2:
            return {"actions": [added_up]}
        return {"actions": [update(cats, "Ann has 5 cats.", "F1")]}

    world.model.rule = answer
    await world.add(fact("Ann has 5 cats.", None, "2024-04-01"))
    await world.run()
    assert "says 8" in world.model.asked[-1].messages[-1]["content"]
    assert [r["text"] for r in await ask("How many cats has Ann now?")] == ["Ann has 5 cats."]


async def test_a_change_that_is_told_as_an_update_too(world: World, ask: Asking) -> None:
    """The end keeps the text of the time when it held."""
    await lives_in_rome(world)

    def answer(asked: Asked) -> Any:
        rome = handle(shown(asked)[1], "Rome")
        porto = create("Ann lives in Porto.", "F1")
        wrong = update(rome, "Ann lives in Porto.", "F1")
        return {"actions": [porto, wrong, end(rome, "F1", until="2024-05-02")]}

    world.model.rule = answer
    await world.add(fact("Ann moved to Porto.", "2024-05-02"))
    await world.run()
    found = {o["text"]: o for o in await world.observations()}
    assert set(found) == {"Ann lives in Porto.", "Ann lives in Rome."}
    assert found["Ann lives in Porto."]["valid_until"] is None
    assert found["Ann lives in Rome."]["valid_until"] == "2024-05-02T00:00:00+00:00"
    assert (await ask("Where did Ann live in 2022?"))[0]["text"] == "Ann lives in Rome."


async def test_another_facet(world: World, ask: Asking) -> None:
    world.model.rule = each
    await world.add(fact("Ann is admin of the Acme organisation.", "2024-01-01", "2024-01-01"))
    await world.add(fact("Ann is employed by Meta.", "2024-02-01", "2024-02-01"))
    await world.run()
    found = await ask("What does Ann do now?")
    assert len(found) == 2
    assert not [r for r in found if "valid_until" in r]


async def test_another_subject_ends_nothing(world: World) -> None:
    await lives_in_rome(world)

    def answer(asked: Asked) -> Any:
        _, observations = shown(asked)
        return {"actions": [*[create("Bo moved to Porto.", "F1")] * 4,
                            end(handle(observations, "Rome"), "F1")]}  # fmt: skip

    world.model.rule = answer
    await world.add({**fact("Bo moved to Porto.", "2024-05-02"), "entities": ["Bo", "Porto"]})
    await world.run()
    rome = next(o for o in await world.observations() if "Rome" in o["text"])
    assert (rome["valid_until"], rome["superseded_by"]) == (None, None)


async def test_recent_sources_that_disagree(world: World, ask: Asking) -> None:
    def answer(asked: Asked) -> Any:
        facts, _ = shown(asked)
        said = "Ann works at Google by one account, at Meta by another."
        return {"actions": [create(said, *(f["fact"] for f in facts))]}

    world.model.rule = answer
    await world.add(
        fact("Ann works at Google.", None, "2024-03-01"),
        fact("Ann works at Meta.", None, "2024-03-01"),
    )
    await world.run()
    (found,) = await ask("Where does Ann work now?")
    assert found["proof_count"] == 2
    assert "Google" in found["text"]
    assert "Meta" in found["text"]


async def test_dates_are_those_of_the_facts(world: World) -> None:
    await lives_in_rome(world)

    def answer(asked: Asked) -> Any:
        _, observations = shown(asked)
        return {
            "actions": [
                end(handle(observations, "Rome"), "F1", until="2031-01-01"),
                create("Ann lives in Porto.", "F1", **{"from": "1999-01-01"}),
            ]
        }

    world.model.rule = answer
    await world.add(fact("Ann moved to Porto.", "2024-05-02"))
    await world.run()
    porto, rome = await world.observations()
    assert rome["valid_until"] == porto["valid_from"] == "2024-05-02T00:00:00+00:00"
    assert (rome["valid_from"], porto["valid_until"]) == (None, None)


async def test_an_ended_state_stays_ended_when_rewritten(world: World) -> None:
    """Merging segments and new evidence keep what is known of its time."""
    from retrieval.store import banks
    from retrieval.store.segments import table as segments

    await lives_in_rome(world)
    await moves_to_porto(world)
    head = await banks.head(world.pool, world.tenant, world.bank)
    await segments.merge(world.pool, head.bank)
    await world.residency.close()
    world.residency = Residency(world.pool, ResidencySettings())
    bank = await world.residency.open(await banks.head(world.pool, world.tenant, world.bank))
    assert len(bank.columns.timed[bank.live[bank.columns.timed]]) == 2
    world.model.rule = each
    await world.add(fact("Ann lives in Rome.", "2019-04-01", "2019-04-01", key="more"))
    await world.run()
    rome = next(o for o in await world.observations() if "Rome" in o["text"])
    assert rome["valid_until"] == "2024-05-02T00:00:00+00:00"
