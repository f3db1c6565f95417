"""What a bank holds: counts and a histogram of time, from its columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from retrieval.bank import filters
from retrieval.bank.resident import ResidentBank
from retrieval.types import NO_TIME, Bools, FactType, Filters, LinkType, Longs, TagsMatch

LISTED = 20
BUCKETS_MOST = 200

_STEPS_S = (
    60, 300, 900, 3600, 3 * 3600, 6 * 3600, 86_400, 7 * 86_400, 30 * 86_400, 91 * 86_400,
    365 * 86_400,
)  # fmt: skip
_SECOND = 1_000_000


def counts(bank: ResidentBank, _: Mapping[str, Any] = {}) -> dict[str, Any]:
    """{version, by_type: {type: n}, links: {type of the source: {link type: n}}}: live memories,
    and stored links between them."""
    links, types = bank.links, bank.columns.fact_type
    found = np.zeros((len(FactType), len(LinkType)), np.int64)
    if len(links.source):
        live = bank.live[links.source] & bank.live[links.target]
        pairs = types[links.source[live]].astype(np.int64) * len(LinkType) + links.type[live]
        found = np.bincount(pairs, minlength=found.size).reshape(found.shape)
    return {
        "version": bank.head.version,
        "by_type": _by_type(bank),
        "links": {
            fact.wire: {kind.wire: int(found[fact, kind]) for kind in LinkType if found[fact, kind]}
            for fact in FactType
            if found[fact].any()
        },
    }


def _by_type(bank: ResidentBank) -> dict[str, int]:
    return {kind.wire: len(bank.population.rows[kind]) for kind in FactType}


def contents(bank: ResidentBank, _: Mapping[str, Any] = {}) -> dict[str, Any]:
    """{version, memories, by_type, first, last, tags, top_entities, entities}: times in
    microseconds or None, lists of LISTED at most."""
    columns, live = bank.columns, bank.live
    dates = columns.event_date[live] if bank.size else np.empty(0, np.int64)
    dates = dates[dates != NO_TIME]
    by_type = _by_type(bank)
    return {
        "version": bank.head.version,
        "memories": sum(by_type.values()),
        "by_type": by_type,
        "first": int(dates.min()) if len(dates) else None,
        "last": int(dates.max()) if len(dates) else None,
        "tags": _tags(bank),
        "entities": int((bank.entities.df > 0).sum()),
        "top_entities": [
            {
                "id": bank.entities.id[n].tobytes().hex(),
                "name": bank.entities.name[n],
                "mentions": int(bank.entities.df[n]),
            }
            for n in np.argsort(-bank.entities.df, kind="stable")[:LISTED].tolist()
            if bank.entities.df[n]
        ],
    }


def _tags(bank: ResidentBank) -> list[tuple[str, int]]:
    tags = bank.columns.tags
    holder = np.repeat(bank.live, tags.counts()) if bank.size else np.empty(0, np.bool_)
    held = np.bincount(tags.values[holder], minlength=len(bank.tags))
    best = set(np.argsort(-held, kind="stable")[:LISTED].tolist())
    named = [(tag, int(held[n])) for tag, n in bank.tags.items() if n in best and held[n]]
    return sorted(named, key=lambda entry: (-entry[1], entry[0]))


def timeline(bank: ResidentBank, asked: Mapping[str, Any]) -> dict[str, Any]:
    """How many memories lie in each bucket of time.

    asked: `field`: event (occurred_start, else mentioned_at), occurred_start, mentioned_at or
    created_at; `from`, `to` in microseconds, to exclusive, None: where the memories begin and end;
    `buckets`, at most, of a round length; `types`, `tags` (None: all). Gives {field,
    from, to, step, undated, buckets: [[start, world, experience, observation]]}, in microseconds.
    """
    field = asked["field"]
    times: Longs = getattr(bank.columns, "event_date" if field == "event" else field)
    chosen = filters.allowed(
        bank,
        Filters(
            types=asked["types"] or tuple(FactType),
            tags=asked["tags"],
            tags_match=TagsMatch.ANY if asked["tags"] is None else TagsMatch.ANY_STRICT,
        ),
    )
    known: Bools = chosen & (times != NO_TIME)
    found: dict[str, Any] = {
        "field": field,
        "undated": int(chosen.sum()) - int(known.sum()),
        "buckets": [],
        "version": bank.head.version,
    }
    low, high = asked["from"], asked["to"]
    if low is None or high is None:
        if not known.any():
            return {**found, "from": low, "to": high, "step": None}
        inside = times[known]
        low = int(inside.min()) if low is None else low
        high = int(inside.max()) + 1 if high is None else high
    step = _step(high - low, max(1, min(asked["buckets"], BUCKETS_MOST)))
    first = (low // step) * step
    count = max(1, -(-(high - first) // step))
    rows = np.flatnonzero(known & (times >= low) & (times < high))
    place = (times[rows] - first) // step
    kinds = bank.columns.fact_type[rows].astype(np.int64)
    table = np.bincount(place * len(FactType) + kinds, minlength=count * len(FactType))
    table = table.reshape(-1, len(FactType))
    buckets = [[first + i * step, *row] for i, row in enumerate(table.tolist())]
    return {**found, "from": low, "to": high, "step": step, "buckets": buckets}


def _step(span: int, buckets: int) -> int:
    """Microseconds of one bucket: a round span of time, so that there are few enough of them."""
    for seconds in _STEPS_S:
        if span <= seconds * _SECOND * (buckets - 1):
            return seconds * _SECOND
    years = -(-span // (365 * 86_400 * _SECOND * max(1, buckets - 1)))
    return years * 365 * 86_400 * _SECOND
