"""The evaluation data loads into sound sets: every gold key is a memory (or a document) of its
bank. Counts come from the data's own description."""

from __future__ import annotations

from datetime import datetime

import pytest

from tests.bench import sets

pytestmark = pytest.mark.unit

COUNTS = {
    "locomo": (6, 3_435, 1_155),
    "longmemeval": (5, 1_266, 28),
    "musique": (1, 1_890, 60),
    "hotpotqa": (1, 994, 60),
    "scifact": (1, 5_183, 300),
    "cranfield": (1, 1_398, 225),
    "cisi": (1, 1_460, 76),
    "qmsum": (8, 1_565, 55),
    "madial-en": (1, 160, 80),
    "madial-zh": (1, 171, 80),
    "morehop": (1, 2_000, 132),
    "entailment": (1, 2_500, 200),
    "timeqa": (1, 1_714, 170),
    "chronoqa": (1, 2_000, 250),
    "xquad-en": (1, 120, 50),
    "xquad": (11, 1_320, 550),
    "jsquad": (1, 565, 250),
}


@pytest.fixture(params=COUNTS)
def loaded(request: pytest.FixtureRequest) -> sets.EvaluationSet:
    try:
        return sets.load(request.param)
    except sets.DataMissing as missing:
        pytest.skip(str(missing))


def test_a_set_has_its_banks_memories_and_questions(loaded: sets.EvaluationSet) -> None:
    assert (len(loaded.banks), loaded.memories, loaded.questions) == COUNTS[loaded.name]


def test_gold_keys_are_memories_of_the_bank(loaded: sets.EvaluationSet) -> None:
    for bank in loaded.banks:
        keys = {memory["key"] for memory in bank.memories}
        assert len(keys) == len(bank.memories)
        documents = {memory.get("document_id") for memory in bank.memories}
        for question in bank.questions:
            assert question.gold
            assert set(question.gold) <= (documents if question.by_document else keys)


def test_times_are_aware(loaded: sets.EvaluationSet) -> None:
    for bank in loaded.banks:
        for memory in bank.memories:
            for field in ("occurred_start", "mentioned_at"):
                if memory.get(field) is not None:
                    assert datetime.fromisoformat(memory[field]).tzinfo is not None
        assert all(q.now is None or q.now.tzinfo is not None for q in bank.questions)


def test_an_unknown_set_is_named() -> None:
    with pytest.raises(ValueError, match="unknown set 'nope'"):
        sets.load("nope")
