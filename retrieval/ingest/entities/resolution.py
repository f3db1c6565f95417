"""Which entity a name means, decided while the bank is locked.

Per name: an entity of exactly this name, as a reader sees it (`folding.key`), or the only one known
by it as an alias; else the best candidate by evidence (`similarity`); else a new entity, shared by
the new names of the write that evidence joins. What evidence joined is remembered as an alias.
Because writers of one bank take turns, two of them never make the same entity twice.

What a write costs is bounded by its size: names beyond EVIDENCED are told apart by their spelling
alone, and of a memory's entities the first PAIRED count as co-occurring. Work on many names
leaves the event loop.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import ParamSpec, TypeVar

from retrieval.ingest.entities import candidates
from retrieval.ingest.entities import keys as entity_keys
from retrieval.ingest.entities.candidates import Candidate, slices
from retrieval.ingest.entities.mentions import Counts, EntityIndex, FactMentions
from retrieval.ingest.entities.similarity import (
    ACCEPT,
    SAME,
    NameForm,
    cluster,
    likeness,
    recency,
    score,
)
from retrieval.ingest.facts import new_ids
from retrieval.settings import RetainSettings
from retrieval.store.database.pool import Connection

EVIDENCED = 500
"""Names of one write that may be found by evidence, in the order of first mention."""

_INLINE = 64
"""Names of a write up to which deciding takes less than handing it to a thread and back."""

_FLOOR = 0.25
"""Trigram similarity below which names are not looked at (Alice, Alice Richardson: 0.35)."""

_CERTAIN = 0.05
"""How much better than the second the best candidate must be."""

_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Resolution:
    """Per fact the distinct (entity_no, name as given), in the order of first mention."""

    entities: Sequence[Sequence[tuple[int, str]]]
    next_entity: int


async def resolve(
    connection: Connection,
    bank: int,
    version: int,
    next_entity: int,
    named_facts: Sequence[FactMentions],
    settings: RetainSettings,
) -> Resolution:
    """Finds or makes the entities of the facts and counts them in. The bank is locked."""
    size = sum(len(named_fact.mentions) for named_fact in named_facts)
    if not size:
        return Resolution([()] * len(named_facts), next_entity)
    await entity_keys.renew(connection, bank, version)
    index = await _run(size, EntityIndex, named_facts)
    chosen = await _known(connection, bank, list(index.spelling), index.resolvable)
    open_keys = [key for key in index.resolvable if key not in chosen][:EVIDENCED]
    by_evidence = await _by_evidence(connection, bank, open_keys, index, chosen, settings)
    chosen.update(by_evidence)
    new = [key for key in index.spelling if key not in chosen]
    made, next_entity = await _create(
        connection, bank, version, next_entity, new, open_keys, index, settings
    )
    chosen.update(made.numbers)
    await _remember(connection, bank, {**by_evidence, **made.aliases})
    resolved = await _run(size, index.resolved, chosen)
    await _count(
        connection, bank, await _run(size, Counts, resolved, [s.date for s in named_facts])
    )
    return Resolution(resolved, next_entity)


async def _run(size: int, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """`work`, in a thread if it is about many names."""
    if size <= _INLINE:
        return work(*args, **kwargs)
    return await asyncio.to_thread(work, *args, **kwargs)


async def _known(
    connection: Connection, bank: int, keys: Sequence[str], resolvable: Sequence[str]
) -> dict[str, int]:
    """Entities of exactly these names; of those to resolve also the only one of that alias."""
    found: dict[str, int] = {}
    for part in slices(len(resolvable)):
        found.update(
            await connection.fetch(
                "select name_key, min(entity_no) from entity_aliases"
                " where bank = $1 and name_key = any($2) group by name_key having count(*) = 1",
                bank,
                resolvable[part],
            )
        )
    for part in slices(len(keys)):
        found.update(
            await connection.fetch(
                "select name_key, coalesce(merged_into, entity_no) from entities"
                " where bank = $1 and name_key = any($2)",
                bank,
                keys[part],
            )
        )
    return found


async def _by_evidence(
    connection: Connection,
    bank: int,
    keys: Sequence[str],
    index: EntityIndex,
    chosen: Mapping[str, int],
    settings: RetainSettings,
) -> dict[str, int]:
    """What the names mean by evidence; those for which it does not suffice are left out."""
    likely: list[_Likely] = []
    if keys:
        await connection.execute(
            "select set_config('pg_trgm.similarity_threshold', $1, true)",
            str(max(settings.entity_trgm_similarity_threshold, _FLOOR)),
        )
    for probes in candidates.together(keys, settings):
        found = await candidates.of_names(connection, bank, probes, settings)
        count = sum(map(len, found.values()))
        likely += await _run(count, _alike, found)
    if not likely:
        return {}
    numbers = {pair.candidate.entity_no for pair in likely}
    aliases = await candidates.aliases(connection, bank, numbers)
    cooccurring = await candidates.cooccurring(connection, bank, numbers, set(chosen.values()))
    return await _run(len(likely), _decide, likely, aliases, cooccurring, index, chosen)


@dataclass(frozen=True, slots=True)
class _Likely:
    """A name and a candidate that can mean one thing."""

    key: str
    form: NameForm
    candidate: Candidate
    alike: float


def _alike(found_for: Mapping[str, Sequence[Candidate]]) -> list[_Likely]:
    forms: dict[str, NameForm] = {}
    found = []
    for key, of_key in found_for.items():
        own = NameForm.of(key)
        for candidate in of_key:
            form = forms.get(candidate.name)
            if form is None:
                form = forms[candidate.name] = NameForm.of(candidate.name)
            alike = likeness(own, form)
            if alike > 0:
                found.append(_Likely(key, own, candidate, alike))
    return found


def _decide(
    likely: Sequence[_Likely],
    aliases: Mapping[int, Sequence[str]],
    cooccurring: Mapping[int, set[int]],
    index: EntityIndex,
    chosen: Mapping[str, int],
) -> dict[str, int]:
    by_key: dict[str, list[_Likely]] = defaultdict(list)
    for pair in likely:
        by_key[pair.key].append(pair)
    known_as = {number: [NameForm.of(name) for name in names] for number, names in aliases.items()}
    decided: dict[str, int] = {}
    for key, pairs in by_key.items():
        facts, beside = index.facts(key), index.beside(key, chosen)
        ranked: list[tuple[float, int, int]] = []
        for pair in pairs:
            candidate, number = pair.candidate, pair.candidate.entity_no
            # Two names of one fact are two entities.
            if number in beside or _contradicted(pair.form, known_as.get(number, ())):
                continue
            value = max(
                score(
                    pair.alike,
                    _share(number, others, chosen, cooccurring),
                    recency(date, candidate.last_seen),
                )
                for others, date in facts
            )
            if value > ACCEPT:
                ranked.append((value, len(cooccurring.get(number, ())), -number))
        ranked.sort(reverse=True)
        sure = ranked and (
            len(ranked) == 1
            or ranked[0][0] >= score(SAME, 0, 0)
            or ranked[0][0] > ranked[1][0] + _CERTAIN
        )
        if sure:
            decided[key] = -ranked[0][2]
    return _one_per_fact(decided, index)


def _contradicted(form: NameForm, aliases: Sequence[NameForm]) -> bool:
    """Is the entity known by a name that begins like this one and goes on otherwise?

    Who is "Alice" and "Alice Chen" is not "Alice Wong" as well.
    """
    return any(
        len(form.words) > 1
        and len(alias.words) > 1
        and form.words[0] == alias.words[0]
        and likeness(form, alias) <= 0
        for alias in aliases
    )


def _one_per_fact(decided: dict[str, int], index: EntityIndex) -> dict[str, int]:
    """Two names of one fact that lead to one entity: neither is sure enough."""
    by_number: dict[int, list[str]] = defaultdict(list)
    for key, number in decided.items():
        by_number[number].append(key)
    unsure = {
        key
        for keys in by_number.values()
        for pair in combinations(keys, 2)
        if index.apart(*pair)
        for key in pair
    }
    return {key: number for key, number in decided.items() if key not in unsure}


def _share(
    entity_no: int,
    others: Sequence[str],
    chosen: Mapping[str, int],
    cooccurring: Mapping[int, set[int]],
) -> float:
    known = cooccurring.get(entity_no)
    if not others or not known:
        return 0.0
    return sum(chosen.get(other, -1) in known for other in others) / len(others)


@dataclass(frozen=True, slots=True)
class _Made:
    numbers: Mapping[str, int]
    aliases: Mapping[str, int]


async def _create(
    connection: Connection,
    bank: int,
    version: int,
    next_entity: int,
    keys: Sequence[str],
    loose: Sequence[str],
    index: EntityIndex,
    settings: RetainSettings,
) -> tuple[_Made, int]:
    """New entities for `keys`; those of `loose` among them may share one."""
    if not keys:
        return _Made({}, {}), next_entity
    new = set(keys)
    leader = {key: key for key in keys}
    leader.update(
        await _run(
            len(keys),
            _clustered,
            [key for key in loose if key in new],
            index,
            settings.entity_intrabatch_merge_similarity,
        )
    )
    leaders = [key for key in keys if leader[key] == key]
    numbers = {key: next_entity + i for i, key in enumerate(leaders)}
    plains = await _run(len(keys), lambda: list(map(entity_keys.plain_key, leaders)))
    for part in slices(len(leaders)):
        await connection.execute(
            "insert into entities"
            " (bank, entity_no, id, canonical_name, name_key, plain_key, kind, version)"
            " select $1, n, id, name, k, p, kind, $2 from unnest($3::int[], $4::uuid[], $5::text[],"
            "  $6::text[], $7::text[], $8::text[]) w(n, id, name, k, p, kind)",
            bank,
            version,
            [numbers[key] for key in leaders[part]],
            new_ids(len(leaders[part])),
            [index.spelling[key] for key in leaders[part]],
            leaders[part],
            plains[part],
            ["label" if key in index.labels else "regular" for key in leaders[part]],
        )
    every = {key: numbers[leader[key]] for key in keys}
    aliases = {key: number for key, number in every.items() if leader[key] != key}
    return _Made(every, aliases), next_entity + len(leaders)


def _clustered(keys: Sequence[str], index: EntityIndex, threshold: float) -> dict[str, str]:
    """New names of one write that mean one thing, with the write itself as evidence."""

    def evidence(a: str, b: str) -> tuple[float, float]:
        of_a, of_b = index.facts(a), index.facts(b)
        beside = {other for others, _ in of_b for other in others}
        share = max(
            (
                sum(other in beside for other in others) / len(others)
                for others, _ in of_a
                if others
            ),
            default=0.0,
        )
        return share, max(recency(date, other) for _, date in of_a for _, other in of_b)

    forms = {key: NameForm.of(key) for key in keys}
    return cluster(forms, index.counts, index.apart, threshold, evidence)


async def _remember(connection: Connection, bank: int, aliases: Mapping[str, int]) -> None:
    if aliases:
        await connection.execute(
            "insert into entity_aliases (bank, name_key, entity_no)"
            " select $1, k, n from unnest($2::text[], $3::int[]) w(k, n) on conflict do nothing",
            bank,
            list(aliases),
            list(aliases.values()),
        )


async def _count(connection: Connection, bank: int, counts: Counts) -> None:
    """Adds the facts to the entities' counts, times and co-occurrences."""
    numbers = list(counts.mentions)
    for part in slices(len(numbers)):
        rows = numbers[part]
        await connection.execute(
            "update entities e set mention_count = mention_count + w.c,"
            " first_seen = least(first_seen, w.f), last_seen = greatest(last_seen, w.l)"
            " from unnest($2::int[], $3::int[], $4::timestamptz[], $5::timestamptz[]) w(n, c, f, l)"
            " where e.bank = $1 and e.entity_no = w.n",
            bank,
            rows,
            [counts.mentions[n] for n in rows],
            [counts.first.get(n) for n in rows],
            [counts.last.get(n) for n in rows],
        )
    pairs = list(counts.pairs)
    for part in slices(len(pairs)):
        keys = pairs[part]
        await connection.execute(
            "insert into entity_cooccurrences as o (bank, a, b, count, last_cooccurred)"
            " select $1, a, b, c, l from"
            " unnest($2::int[], $3::int[], $4::int[], $5::timestamptz[]) w(a, b, c, l)"
            " on conflict (bank, a, b) do update set count = o.count + excluded.count,"
            " last_cooccurred = greatest(o.last_cooccurred, excluded.last_cooccurred)",
            bank,
            [a for a, _ in keys],
            [b for _, b in keys],
            [counts.pairs[key] for key in keys],
            [counts.met.get(key) for key in keys],
        )
