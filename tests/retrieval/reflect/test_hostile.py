"""Whatever a model says, a reflect ends, and says nothing that it cannot stand for."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retrieval import errors
from retrieval.types import Budget, FactType
from tests.retrieval.llm.scripted import Call, Said
from tests.retrieval.reflect.bank import Bank, memory

pytestmark = pytest.mark.unit

ROWS = (
    memory("Ann moved to Lisbon on 5 May 2024.", chunk_id="c", document_id="d"),
    memory("Ann likes green tea.", tags=("drinks",)),
    memory("Ann is settled in Lisbon.", FactType.OBSERVATION),
)
NAMES = (
    "recall",
    "search_observations",
    "expand",
    "done",
    "search_mental_models",
    "rm",
    "",
    "a" * 999,
)
TEXTS = (
    "", " ", "Ann moved to Lisbon [F1].", "Ann moved to Rome in 1999 [F1, F2].", "[F1]", "F1 O1",
    "<think>", "<think>x</think>", "<tool_call>", '<tool_call>{"name": "recall"}', "{", "[]", "0",
    '{"answer": 7}', '{"answer": "Ann likes tea [F2]."}', "I do not know.", "\ud800 Ann \x00 [F1].",
    "[TOOL_CALLS]", "[" * 5000, '{"a":' * 3000, "x" * 200_000, "Ann. " * 5000, "recall(query='a')",
    "```json\n{}\n```", "<|im_start|>assistant", "Sorry, as an AI I cannot help.", "[F1](http://x)",
    "<tool_call>" * 5000, "<tool_call>" * 3 + '{"name": "recall"}', "- a [F1]\n" * 5000,
    "<function=done>{\"answer\": \"Ann moved [F1].\"}</function>", "| a |\n|---|\n| b [F1] |",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, 0, -1, 10**9, 10**30, 1.5, True, "", "tea", "x" * 600, [], ["F1"], ["F1"] * 50, [1],
    {}, {"a": {"b": []}}, "F1", "chunk", "document", "\ud800", [None], "Ann moved [F1].",
)  # fmt: skip
KEYS = (
    "query", "max_tokens", "max_chunk_tokens", "max_results", "memory_ids", "depth", "answer",
    "bank_id", "tags", "reason", "observation_ids", "mental_model_ids",
)  # fmt: skip
FAILURES = (
    errors.ModelRefused("no"), errors.ModelCut("cut"), errors.ModelTooLong("long"),
    errors.ModelFailed("bad"), errors.Unavailable("the language model"), errors.RateLimited("b"),
    errors.ModelExhausted("quota", 9), errors.DeadlineExceeded("the model"),
)  # fmt: skip
ALLOWED = (errors.Overloaded, errors.Unavailable, errors.DeadlineExceeded)


class Hostile:
    """Draws its answers by seed."""

    model_id = "hostile"

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.asked = 0

    async def chat(self, operation: str, messages: Any, **more: Any) -> Said:
        self.asked += 1
        json.dumps(list(messages))  # it can be sent
        draw = self.random.random()
        if draw < 0.08:
            raise self.random.choice(FAILURES)
        text = self.random.choice(TEXTS)
        made: tuple[Call, ...] = ()
        if draw < 0.7:
            made = tuple(self._call(i) for i in range(self.random.choice((1, 1, 2, 7, 60))))
        return Said(text, made)

    def _call(self, place: int) -> Call:
        name = self.random.choice(NAMES)
        keys = self.random.sample(KEYS, self.random.randint(0, 4))
        given = {key: self.random.choice(VALUES) for key in keys}
        if self.random.random() < 0.4:
            given = {"query": f"tea {self.random.randint(0, 3)}"}
        written = self.random.choice(
            [json.dumps(given), json.dumps(given)[:-1], repr(given), "", "[1]", "nonsense"]
            if self.random.random() < 0.3
            else [json.dumps(given)]
        )
        return Call(self.random.choice((f"c{place}", "", "same")), name, written)


@settings(
    max_examples=300,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(seed=st.integers(0, 2**32), budget=st.sampled_from(list(Budget)), strict=st.booleans())
async def test_it_ends(seed: int, budget: Budget, strict: bool) -> None:
    bank = Bank(*ROWS, names=("Ann", "Lisbon"), passages={"c": "I moved to Lisbon. Ann"})
    llm = Hostile(seed)
    most = {Budget.LOW: 5, Budget.MID: 10, Budget.HIGH: 20}[budget]
    try:
        found = await bank.reflect(
            llm, budget=budget, reflect_strict_grounding=strict, max_tokens=200
        )
    except ALLOWED:
        assert llm.asked <= most + 8
        return
    assert llm.asked <= most + 8
    assert found.text.strip()
    found.text.encode()
    ids = {row.id for row in ROWS}
    assert {item.id for item in found.seen} <= ids
    for one in found.citations:
        assert 0 <= one.start < one.end <= len(found.text)
        assert one.items
        assert {item.id for item in one.items} <= ids
    assert {item.id for item in found.based_on} == {
        item.id for one in found.citations for item in one.items
    }
    assert all(0 <= m.start < m.end <= len(found.text) for m in found.grounding.marks)
    assert found.grounding.supported >= len(found.citations)
    if strict:
        assert not found.grounding.marks
        assert "Rome" not in found.text
    assert "<tool_call" not in found.text
