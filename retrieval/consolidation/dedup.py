"""Near-duplicates: observations of a scope that may say the same.

What differs in a number, a negation or a name is no duplicate, whatever the similarity, and what
reads the same is one without a question. About the rest a model is asked; where its answer cannot
be read, both stay.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

import numpy as np

from retrieval.bank.vectors.flat import Scan
from retrieval.consolidation.actions import Action, reading, same_text
from retrieval.consolidation.batch import Batch
from retrieval.consolidation.prompts import merge_messages, merge_schema
from retrieval.errors import ModelFailed
from retrieval.ingest.write.stored import StoredMemory, load
from retrieval.llm.asking import Asker
from retrieval.llm.grounding import negations, numbers
from retrieval.llm.reading import NoJson, json_object
from retrieval.store.database.pool import Pool, read
from retrieval.types import FactType, Floats

log = logging.getLogger(__name__)

LOOKED_AT = 5
_TOKENS = 400


@dataclass(frozen=True, slots=True)
class Twin:
    """The text of the action at `place` says what the stored observation `other` does, or the
    action at the earlier place `earlier`."""

    place: int
    other: StoredMemory | None = None
    earlier: int | None = None


def apart(first: str, second: str, batch: Batch) -> bool:
    """Whether two texts differ in a number, a negation, or a name that the bank knows."""
    if numbers(first) != numbers(second) or negations(first) != negations(second):
        return True
    find = batch.bank.entities.find
    return set(find(first).tolist()) != set(find(second).tolist())


async def twins(
    pool: Pool,
    batch: Batch,
    actions: Sequence[Action],
    vectors: Mapping[str, Floats],
    scans: Mapping[str, Scan],
    threshold: float,
    asker: Asker | None,
) -> list[Twin]:
    """For each text that is new, at most one that says the same. `vectors` by text, and `scans` of
    the bank for them; without an `asker` only what reads the same is the same."""
    found: list[Twin] = []
    if threshold >= 1:
        return found
    shown = {reading(one.stored.fact.text) for one in batch.observations}
    new = [
        place
        for place, action in enumerate(actions)
        if action.do in ("create", "update") and _is_new(action, batch, shown)
    ]
    stored = await _stored(pool, batch, actions, new, scans, threshold)
    for place in new:
        text, vector = actions[place].text, vectors[actions[place].text]
        for other in stored[place]:
            if await _same(text, other.fact.text, batch, asker):
                found.append(Twin(place, other=other))
                break
        else:
            for earlier in (one for one in new if one < place and _both_new(actions, one, place)):
                said = actions[earlier].text
                if same_text(text, said) or float(vector @ vectors[said]) < threshold:
                    continue  # the same text is joined without being a twin
                if await _same(text, said, batch, asker):
                    found.append(Twin(place, earlier=earlier))
                    break
    return found


def _both_new(actions: Sequence[Action], first: int, second: int) -> bool:
    return actions[first].observation is None and actions[second].observation is None


def _is_new(action: Action, batch: Batch, shown: Collection[str]) -> bool:
    if action.observation is None:
        return reading(action.text) not in shown
    return action.text != batch.observations[action.observation].stored.fact.text


async def _stored(
    pool: Pool,
    batch: Batch,
    actions: Sequence[Action],
    places: Sequence[int],
    scans: Mapping[str, Scan],
    threshold: float,
) -> dict[int, list[StoredMemory]]:
    """The observations of the scope that are as similar to each new text, best first."""
    near: dict[int, list[UUID]] = {}
    bank = batch.bank
    for place in places:
        near[place] = []
        if not batch.mask.any():
            continue
        hits = scans[actions[place].text].top(LOOKED_AT, batch.mask, FactType.OBSERVATION)
        own = _own(actions[place], batch)
        for ordinal in hits.ordinals[hits.scores >= np.float32(threshold)]:
            id = UUID(bytes=bank.columns.id[ordinal].tobytes())
            if id != own:
                near[place].append(id)
    wanted = list({id for ids in near.values() for id in ids})
    rows: Iterable[StoredMemory] = ()
    if wanted:
        rows = await read(pool, lambda connection: load(connection, bank.head.bank, wanted))
    known = {row.fact.id: row for row in rows if _fits(row, batch)}
    return {place: [known[id] for id in ids if id in known] for place, ids in near.items()}


def _own(action: Action, batch: Batch) -> UUID | None:
    if action.observation is None:
        return None
    return batch.observations[action.observation].stored.fact.id


def _fits(row: StoredMemory, batch: Batch) -> bool:
    return (
        row.ordinal is not None
        and row.fact.fact_type is FactType.OBSERVATION
        and frozenset(row.fact.tags) == batch.scope
    )


async def _same(first: str, second: str, batch: Batch, asker: Asker | None) -> bool:
    if same_text(first, second):
        return True
    if asker is None or apart(first, second, batch):
        return False

    def verdict(text: str, last: bool) -> bool:
        same = json_object(text).get("same")
        if not isinstance(same, bool):
            raise NoJson('"same" is neither true nor false')
        return same

    try:
        return await asker.read(
            merge_messages(first, second), merge_schema(), verdict, max_tokens=_TOKENS, questions=1
        )
    except ModelFailed as error:
        log.info("two observations stay apart: %s", error)
        return False
