"""A run of a reflect against models that behave, and models that do not."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from retrieval import errors
from retrieval.reflect import checking
from retrieval.reflect.query import ReflectQuery, TextForm
from retrieval.reflect.scope import Scope
from retrieval.store.directives import Directive
from retrieval.types import Budget, FactType, Filters, TagsMatch
from tests.retrieval.reflect.bank import (
    NOW,
    Asked,
    Bank,
    Said,
    Scripted,
    calls,
    handle,
    memory,
)

pytestmark = pytest.mark.unit

MOVE = memory(
    "Ann moved to Lisbon on 5 May 2024.",
    occurred_start=datetime(2024, 5, 5, tzinfo=UTC),
    document_id="letters",
    chunk_id="letters_0",
)
TEA = memory("Ann likes green tea and drinks three cups a day.", tags=("drinks",))
BOB = memory("Bob works at Siemens in Munich.", tags=("work",))
HOME = memory("Ann is settled in Lisbon.", FactType.OBSERVATION, source_ids=(MOVE.id,))
NAMES = ("Ann", "Lisbon", "Bob", "Siemens", "Munich")
PASSAGE = "Dear all, I moved to Lisbon on 5 May 2024. The flat has 4 rooms. Yours, Ann"


@pytest.fixture
def bank() -> Bank:
    return Bank(MOVE, TEA, BOB, HOME, names=NAMES, passages={"letters_0": PASSAGE})


def lisbon(asked: Asked) -> str:
    return f"Ann moved to Lisbon in May 2024 [{handle(asked, '5 May 2024')}]."


def recall(query: str, **more: Any) -> Said:
    return calls(("recall", {"query": query, **more}))


async def test_budgets_bound_the_calls(bank: Bank) -> None:
    for budget, most in ((Budget.LOW, 5), (Budget.MID, 10), (Budget.HIGH, 20)):
        llm = Scripted(*(recall(f"tea {i}") for i in range(most - 1)), lisbon)
        found = await bank.reflect(llm, budget=budget)
        assert (found.finish, found.text) == ("iterations", "Ann moved to Lisbon in May 2024.")
        assert len(llm.asked) == most
        assert all(asked.more.get("tools") for asked in llm.asked[:-1])
        assert not llm.asked[-1].more.get("tools")
        assert all(m["role"] != "tool" for m in llm.asked[-1].messages)


async def test_one_iteration_has_no_tools(bank: Bank) -> None:
    llm = Scripted(lisbon)
    found = await bank.reflect(llm, reflect_max_iterations=1)
    assert found.finish == "iterations"
    assert not llm.asked[0].more.get("tools")


async def test_the_same_call_is_answered_twice_and_ends_the_loop_the_third_time(
    bank: Bank,
) -> None:
    llm = Scripted(*[recall("green tea", max_tokens=500)] * 3, lisbon)
    found = await bank.reflect(llm, budget=Budget.HIGH)
    assert found.finish == "iterations"
    assert len(llm.asked) == 4
    assert len([q for q in bank.recalled if q.text == "green tea"]) == 1
    assert "You asked for this before" in llm.asked[2].messages[-1]["content"]
    assert [dict(c.output).get("again") for c in found.tool_calls[-2:]] == [True, None]


async def test_the_question_itself_counts_as_asked(bank: Bank) -> None:
    again = recall("Where does Ann live?", max_tokens=2048, max_chunk_tokens=1000)
    llm = Scripted(again, again, lisbon)
    found = await bank.reflect(llm)
    assert len(bank.recalled) == 2
    assert found.finish == "iterations"


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (("fetch_url", {"url": "http://x"}), "there is no tool"),
        (("delete_memory", {"memory_id": MOVE.id}), "there is no tool"),
        (("recall", "{not json"), "cannot be read"),
        (("recall", ""), "query"),
        (("recall", "[1, 2]"), "not a JSON object"),
        (("recall", {}), "query"),
        (("recall", {"query": 7}), "query"),
        (("recall", {"query": ["a"]}), "query"),
        (("recall", {"query": ""}), "query"),
        (("recall", {"query": "?!"}), "letter or digit"),
        (("recall", {"query": "x" * 501}), "query"),
        (("recall", {"query": "x" * 10_000_000}), "more than"),
        (("recall", {"query": "x", "max_tokens": 10**9}), "max_tokens"),
        (("recall", {"query": "x", "max_tokens": -1}), "max_tokens"),
        (("recall", {"query": "x", "max_tokens": "many"}), "max_tokens"),
        (("recall", {"query": "x", "bank_id": "other"}), "no argument bank_id"),
        (("recall", {"query": "x", "tags": ["secret"]}), "no argument tags"),
        (("recall", {"query": "x", "types": ["observation"]}), "no argument types"),
        (("recall", {"query": "x", "as_of": "2020-01-01"}), "no argument as_of"),
        (("recall", {"query": "x", "tenant": "other"}), "no argument tenant"),
        (("search_observations", {"query": "x", "max_tokens": 8001}), "max_tokens"),
        (("expand", {"memory_ids": [BOB.id[:-1] + "0"]}), "was not shown"),
        (("expand", {"memory_ids": ["F99"]}), "was not shown"),
        (("expand", {"memory_ids": []}), "memory_ids"),
        (("expand", {"memory_ids": ["F1"] * 21}), "memory_ids"),
        (("expand", {"memory_ids": "F1"}), "memory_ids"),
        (("expand", {"memory_ids": ["F1"], "depth": "bank"}), "depth"),
        (("done", {"answer": ""}), "empty"),
        (("done", {}), "answer"),
        (("search_mental_models", {"query": "x"}), "there is no tool"),
    ],
)
async def test_what_may_not_be_asked(bank: Bank, call: tuple[str, Any], says: str) -> None:
    llm = Scripted(calls(call), lisbon)
    found = await bank.reflect(llm)
    assert found.text == "Ann moved to Lisbon in May 2024."
    said = llm.asked[1].messages[-1]["content"]
    assert said.startswith("Not done: ")
    assert says in said
    assert len(said) < 500
    assert len(bank.recalled) == 2
    assert all(q.tenant == "t" and q.bank_id == "b" for q in bank.recalled)


async def test_five_calls_a_turn(bank: Bank) -> None:
    many = calls(*(("recall", {"query": f"tea {i}"}) for i in range(40)))
    llm = Scripted(many, lisbon)
    await bank.reflect(llm)
    results = [m for m in llm.asked[1].messages if m["role"] == "tool"]
    assert len(results) == len(llm.asked[1].messages[2]["tool_calls"]) == 20
    assert len(bank.recalled) == 2 + 5
    assert all("at most 5 calls" in m["content"] for m in results[5:])


async def test_expand(bank: Bank) -> None:
    def ask(asked: Asked) -> Said:
        return calls(("expand", {"memory_ids": [handle(asked, "settled")]}))

    def answered(asked: Asked) -> str:
        return f"The flat has 4 rooms [{handle(asked, '5 May 2024')}]."

    found = await bank.reflect(
        Scripted(ask, answered), "What is the flat like?", recall_include_chunks=False
    )
    assert (found.grounding.sentences, found.grounding.marks) == (1, ())
    hidden = await bank.reflect(
        Scripted(lambda a: calls(("expand", {"memory_ids": ["F1"], "depth": "document"})), "Hm!"),
        "Tea?",
        scope=Scope(Filters(tags=("drinks",), tags_match=TagsMatch.ANY_STRICT)),
    )
    assert [item.text for item in hidden.seen] == [TEA.text]


async def test_the_scope_is_the_runs(bank: Bank) -> None:
    scope = Scope(
        Filters(types=(FactType.WORLD,), tags=("work",), tags_match=TagsMatch.ALL_STRICT),
        created_before=datetime(2025, 1, 1, tzinfo=UTC),
    )
    bank.late = {BOB.id}
    llm = Scripted(recall("Bob"), "I do not know.")
    found = await bank.reflect(llm, "Where does Bob work?", scope=scope)
    assert found.seen == ()
    assert all(q.filters.tags == ("work",) for q in bank.recalled)
    assert all(q.filters.types == (FactType.WORLD,) for q in bank.recalled)
    offered = {tool["function"]["name"] for tool in llm.asked[0].more["tools"]}
    assert offered == {"recall", "done"}


async def test_outdated_observations_say_so(bank: Bank) -> None:
    bank.waiting = {HOME.id}
    llm = Scripted(lisbon)
    found = await bank.reflect(llm)
    assert '"outdated":"newer statements' in llm.asked[0].user
    assert [item.stale for item in found.seen if item.id == HOME.id] == [True]


async def test_disposition_and_missions(bank: Bank) -> None:
    bank.profile |= {"disposition": {"skepticism": 5, "empathy": 3}, "mission": "Help Ann."}
    llm = Scripted(lisbon)
    await bank.reflect(llm)
    assert "Treat every claim as something that was said" in llm.asked[0].system
    assert "Be friendly" in llm.asked[0].system
    assert "Your mission: Help Ann." in llm.asked[0].system
    bank.config = {"disposition_skepticism": 1, "reflect_mission": "Help Bob."}
    llm = Scripted(lisbon)
    await bank.reflect(llm, form=TextForm.DOCUMENT)
    assert "at face value" in llm.asked[0].system
    assert "Help Bob" in llm.asked[0].system
    assert "Write a document" in llm.asked[0].system


class Rules:
    """Directives of a bank, and no mental models."""

    async def search(self, *_: Any) -> Any:
        return ()

    async def for_reflect(self, *_: Any) -> Any:
        return (Directive("d", "calm", "Never shout."),), ()


async def test_directives_are_judged_at_budget_high(bank: Bank) -> None:
    def loud(asked: Asked) -> str:
        return f"ANN MOVED TO LISBON [{handle(asked, '5 May 2024')}]."

    bad = {"broken": [{"reason": "capitals", "rule": 1}]}
    good: dict[str, Any] = {"broken": []}
    llm = Scripted(loud, bad, lisbon, good)
    found = await bank.reflect(llm, budget=Budget.HIGH, known=Rules())
    assert (found.text, found.degraded) == ("Ann moved to Lisbon in May 2024.", ())
    assert 'it breaks the rule "calm": capitals' in llm.asked[2].user
    found = await bank.reflect(Scripted(loud, bad, loud, bad), budget=Budget.HIGH, known=Rules())
    assert (found.text, found.degraded) == ("ANN MOVED TO LISBON.", ("directive",))
    llm = Scripted(lisbon, "no verdict", "none")
    found = await bank.reflect(llm, budget=Budget.HIGH, known=Rules())
    assert found.degraded == ("directive",)
    found = await bank.reflect(Scripted(lisbon), budget=Budget.MID, known=Rules())
    assert found.degraded == ()


async def test_preview(bank: Bank) -> None:
    bank.config = {"reflect_mission": "Help Bob."}
    llm = Scripted(lisbon)
    shown = await bank.engine(llm, Rules()).preview("t", "b")
    await bank.reflect(llm, known=Rules())
    system, user = shown["messages"]
    told = "\n\n".join(block["text"] for block in system["blocks"] if block["active"])
    assert told == llm.asked[0].system
    fields = {block["field"]: block["editable"] for block in system["blocks"] if block["field"]}
    assert fields == {"reflect_mission": True}
    assert "(the question)" in user["blocks"][0]["text"]
    none = await bank.engine(None).preview("t", "b")
    assert (none["messages"], none["skipped_reason"]) == ([], "no language model is configured")


# Models that misbehave


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "recall", "arguments": {"query": "tea"}}</tool_call>',
        '<tool_call>\n{"name": "recall", "arguments": {"query": "tea"}}',
        "Let me see. <function=recall>{\"query\": \"tea\"}</function>",
        '{"name": "recall", "parameters": {"query": "tea"}}',
        '[{"name": "recall", "arguments": {"query": "tea"}}]',
        '```json\n{"tool": "recall", "input": {"query": "tea"}}\n```',
        '[TOOL_CALLS] [{"name": "recall", "arguments": {"query": "tea"}}]',
        '<invoke name="recall"><parameter name="query">tea</parameter></invoke>',
        'recall(query="tea")',
        "```tool_code\nrecall(query='tea')\n```",
        '<think>Hm.</think>{"function": {"name": "recall", "arguments": {"query": "tea"}}}',
    ],
)  # fmt: skip
async def test_calls_as_text(bank: Bank, text: str) -> None:
    llm = Scripted(text, lisbon)
    found = await bank.reflect(llm)
    assert found.text == "Ann moved to Lisbon in May 2024."
    assert bank.recalled[-1].text == "tea"


@pytest.mark.parametrize(
    "wrap",
    [
        lambda said: json.dumps({"answer": said, "memory_ids": ["F1"]}),
        lambda said: f'```json\n{json.dumps({"answer": said})}\n```',
        lambda said: f"<tool_call>{json.dumps({'name': 'done', 'arguments': {'answer': said}})}",
        lambda said: f"<think>Hm, F1?</think>\n{said}",
        lambda said: f"{said}<|im_end|>",
        lambda said: f"{said}\n<tool_call>",
        lambda said: calls(("done", {"answer": said})),
        lambda said: calls(("done", f'{{"answer": {json.dumps(said)}')),
        lambda said: calls(("done", {"answer": said, "memory_ids": 7, "junk": [1]})),
        lambda said: calls(("recall", {"query": "tea"}), ("done", {"answer": said})),
    ],
)  # fmt: skip
async def test_answers_in_other_clothes(bank: Bank, wrap: Callable[[str], Any]) -> None:
    llm = Scripted(lambda asked: wrap(lisbon(asked)))
    found = await bank.reflect(llm)
    assert found.text == "Ann moved to Lisbon in May 2024."
    assert found.based_on[0].id == MOVE.id
    assert (found.degraded, len(llm.asked)) == ((), 1)


async def test_ids_beside_the_answer(bank: Bank) -> None:
    def done(asked: Asked) -> Said:
        return calls(
            ("done", {"answer": "Ann moved to Lisbon. Penguins swim well.",
                      "memory_ids": [MOVE.id, handle(asked, "green tea")]})
        )  # fmt: skip

    found = await bank.reflect(Scripted(done, done))
    assert [item.id for item in found.based_on] == [MOVE.id]
    assert [found.text[m.start : m.end] for m in found.grounding.marks] == ["Penguins swim well."]


@pytest.mark.parametrize(
    ("answers", "degraded"),
    [
        (["", "", ""], "empty"),
        (["<think>only thoughts", "<tool_call>", "<think>"], "empty"),
        ([errors.ModelRefused("no")] * 3, "refused"),
        ([errors.ModelCut("long")] * 3, "cut"),
        ([errors.ModelTooLong("big")] * 3, "context"),
        ([recall("tea"), errors.RateLimited("budget", 9)], "budget"),
    ],
)
async def test_no_answer_at_all(bank: Bank, answers: list[Any], degraded: str) -> None:
    def step(answer: Any) -> Any:
        if not isinstance(answer, Exception):
            return answer

        def fail(asked: Asked) -> str:
            raise answer

        return fail

    more = [step(answers[-1])] * 3
    found = await bank.reflect(Scripted(*map(step, answers), *more), "Where did Ann move to?")
    assert found.degraded == (degraded, "extractive")
    assert found.text == f"[extractive] {MOVE.text}" or MOVE.text in found.text
    assert found.grounding.marks == ()
    if degraded == "budget":
        assert found.finish == "budget"


async def test_a_refusal_may_be_a_mood(bank: Bank) -> None:
    def refuse(asked: Asked) -> str:
        raise errors.ModelRefused("no")

    found = await bank.reflect(Scripted(refuse, lisbon))
    assert (found.text, found.degraded) == ("Ann moved to Lisbon in May 2024.", ())


@pytest.mark.parametrize(
    "error", [errors.Unavailable("the language model"), errors.ModelExhausted("quota", 60)]
)
async def test_a_provider_that_goes_away(bank: Bank, error: Exception) -> None:
    def fail(asked: Asked) -> str:
        raise error

    with pytest.raises(type(error)):
        await bank.reflect(Scripted(recall("tea"), fail))
    # A draft is worth having, though: only its repair could not be asked for.
    found = await bank.reflect(Scripted("Ann moved to Porto in 1999 [F1].", fail))
    assert found.text == "Ann moved to Porto in 1999."
    assert (found.degraded, found.grounding.supported) == (("unrepaired",), 0)


async def test_searches_that_fail(bank: Bank) -> None:
    def broken(asked: Asked) -> Said:
        bank.fails = errors.Overloaded("busy")
        return recall("tea")

    llm = Scripted(broken, lisbon)
    found = await bank.reflect(llm)
    assert found.text == "Ann moved to Lisbon in May 2024."
    assert "the search failed: busy" in llm.asked[1].messages[-1]["content"]
    with pytest.raises(errors.Overloaded):
        await bank.reflect(Scripted())


class Slow(Scripted):
    """Takes its time; `after` hangs from that call on."""

    after = 0

    async def chat(self, operation: str, messages: Any, **more: Any) -> Said:
        if len(self.asked) >= self.after:
            self.asked.append(Asked(operation, messages, more))
            await asyncio.Event().wait()
        return await super().chat(operation, messages, **more)


async def test_time_is_bounded(bank: Bank) -> None:
    with pytest.raises(errors.DeadlineExceeded, match=r"REFLECT_WALL_TIMEOUT allows 0\.2 s"):
        await bank.reflect(Slow(), reflect_wall_timeout_s=0.2)
    deadline = time.monotonic() + 0.1
    with pytest.raises(errors.DeadlineExceeded, match="the header"):
        await bank.reflect(Slow(), deadline=deadline, bound="the header")
    half = Slow("Ann moved in 1999 [F1].")
    half.after = 1
    found = await bank.reflect(half, reflect_wall_timeout_s=0.3)
    assert (found.text, found.finish) == ("Ann moved in 1999.", "time")


async def test_it_answers_before_its_time_is_over(bank: Bank) -> None:
    async def late(seconds: float) -> None:
        await asyncio.sleep(seconds)

    class Late(Scripted):
        async def chat(self, operation: str, messages: Any, **more: Any) -> Said:
            if more.get("tools"):
                assert more["deadline"] < started + 1.0
                await late(2.0)
            return await super().chat(operation, messages, **more)

    started = time.monotonic()
    found = await bank.reflect(Late(lisbon), reflect_wall_timeout_s=1.0)
    assert (found.finish, found.text) == ("time", "Ann moved to Lisbon in May 2024.")


async def test_context_is_bounded() -> None:
    rows = [memory(f"Ann fact {i}: " + "word " * 300) for i in range(60)]
    bank = Bank(*rows)
    ask = [recall(f"fact {i}", max_tokens=8000) for i in range(9)]
    sizes = []

    def seen(asked: Asked) -> None:
        sizes.append(sum(len(str(m.get("content") or "")) for m in asked.messages))

    class Watched(Scripted):
        async def chat(self, operation: str, messages: Any, **more: Any) -> Said:
            seen(Asked(operation, messages, more))
            if not more.get("tools"):
                return Said("Nothing!")
            return await super().chat(operation, messages, **more)

    found = await bank.reflect(
        Watched(*ask), "fact", budget=Budget.HIGH, reflect_max_context_tokens=12_000
    )
    assert found.finish == "context"
    assert max(sizes) < 12_000 * 6


async def test_length(bank: Bank) -> None:
    def long(asked: Asked) -> str:
        return f"Ann lives in Lisbon [{handle(asked, 'May 2024')}]. " * 30

    def short(asked: Asked) -> str:
        return f"Ann lives in Lisbon [{handle(asked, 'May 2024')}]."

    llm = Scripted(long, short)
    found = await bank.reflect(llm, max_tokens=50)
    assert (found.text, found.degraded) == ("Ann lives in Lisbon.", ())
    assert "longer than 50 tokens" in llm.asked[1].user
    found = await bank.reflect(Scripted(long, long), max_tokens=50)
    assert found.degraded == ("length",)
    assert found.text.endswith("Ann lives in Lisbon.")
    assert 100 < len(found.text) < 300
    word = "x" * 30
    found = await bank.reflect(Scripted(*[f"{word} " * 200] * 2), max_tokens=50)
    assert set(found.text.split()) == {word}


async def test_nothing_to_go_by() -> None:
    llm = Scripted("I do not know.")
    found = await Bank().reflect(llm)
    assert (found.text, found.degraded, found.seen) == ("I do not know.", (), ())
    assert {t["function"]["name"] for t in llm.asked[0].more["tools"]} == {"done"}
    with pytest.raises(errors.NotFound):
        await Bank().engine(Scripted()).reflect(ReflectQuery("t", "other", "x", NOW))


async def test_by_rules(bank: Bank) -> None:
    found = await bank.reflect(None, "When did Ann move to Lisbon?")
    assert found.text == f"[extractive] {MOVE.text} {HOME.text}"
    assert found.degraded == ("extractive",)
    assert [c.items[0].id for c in found.citations] == [MOVE.id, HOME.id]
    assert [found.text[c.start : c.end] for c in found.citations] == [MOVE.text, HOME.text]
    nothing = await bank.reflect(None, "What is tungsten?")
    assert nothing.text.startswith("[extractive] Nothing")
    assert nothing.grounding.sentences == 0


async def test_no_answer_is_checked_on_the_event_loop(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    check, threads = checking.check, []

    def noted(*given: Any) -> Any:
        threads.append(threading.get_ident())
        return check(*given)

    monkeypatch.setattr(checking, "check", noted)
    await bank.reflect(None, "When did Ann move to Lisbon?")
    await bank.reflect(Scripted(*["Ann lives in Lisbon."] * 4))
    assert len(threads) >= 2
    assert threading.get_ident() not in threads
