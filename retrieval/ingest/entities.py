"""Which entity a name means, decided while the bank is locked.

Per name: an entity of exactly this name (case aside), or the only one known by it as an alias;
else the best candidate by evidence (`similarity`); else a new entity, shared by the new names of
the write that are spelt nearly alike. What evidence joined is remembered as an alias. Because
writers of one bank take turns, two of them never make the same entity twice.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import combinations
from typing import Any

from retrieval.ingest.facts import Mention, new_ids
from retrieval.ingest.nicknames import variants
from retrieval.ingest.similarity import ACCEPT, cluster, collapse, recency, score
from retrieval.settings import RetainSettings
from retrieval.store.pool import Connection

NAME_LIMIT = 500


@dataclass(frozen=True, slots=True)
class Sighting:
    """The names of one fact and when it happened."""

    mentions: Sequence[Mention]
    date: datetime | None


@dataclass(frozen=True, slots=True)
class Resolution:
    """Per sighting the distinct (entity_no, name as given), in the order of first mention."""

    entities: Sequence[Sequence[tuple[int, str]]]
    next_entity: int


@dataclass(frozen=True, slots=True)
class _Candidate:
    entity_no: int
    name: str
    last_seen: datetime | None


def distinct(mentions: Sequence[Mention]) -> tuple[Mention, ...]:
    """Mentions with tidy names, one per name whatever its case; `resolve` only if all say so."""
    found: dict[str, Mention] = {}
    for mention in mentions:
        name = collapse(mention.name)
        if not name:
            continue
        known = found.get(name.lower())
        found[name.lower()] = Mention(
            known.name if known else name,
            mention.resolve and (known is None or known.resolve),
            mention.label or (known is not None and known.label),
        )
    return tuple(found.values())


async def resolve(
    connection: Connection,
    bank: int,
    version: int,
    next_entity: int,
    sightings: Sequence[Sighting],
    settings: RetainSettings,
) -> Resolution:
    """Finds or makes the entities of the sightings and counts them in. The bank is locked."""
    names = list(dict.fromkeys(m.name for s in sightings for m in s.mentions))
    if not names:
        return Resolution([()] * len(sightings), next_entity)
    keys = await _keys(connection, names)
    book = _Book(sightings, keys)
    chosen = await _known(connection, bank, list(book.spelling), book.resolvable)
    open_keys = [key for key in book.resolvable if key not in chosen]
    by_evidence = await _by_evidence(connection, bank, open_keys, book, chosen, settings)
    chosen.update(by_evidence)
    new = [key for key in book.spelling if key not in chosen]
    made, next_entity = await _create(connection, bank, version, next_entity, new, book, settings)
    chosen.update(made.numbers)
    await _remember(connection, bank, {**by_evidence, **made.aliases})
    resolved = [
        list({chosen[keys[m.name]]: m.name for m in reversed(s.mentions)}.items())[::-1]
        for s in sightings
    ]
    await _count(connection, bank, resolved, [s.date for s in sightings])
    return Resolution(resolved, next_entity)


class _Book:
    """The names of a write, by the key the database compares them under."""

    def __init__(self, sightings: Sequence[Sighting], keys: Mapping[str, str]) -> None:
        self.counts: Counter[str] = Counter()
        spellings: dict[str, Counter[str]] = defaultdict(Counter)
        literal: set[str] = set()
        self.labels: set[str] = set()
        self.facts: dict[str, set[tuple[frozenset[str], datetime | None]]] = defaultdict(set)
        apart: set[frozenset[str]] = set()
        for sighting in sightings:
            own = frozenset(keys[m.name] for m in sighting.mentions)
            for mention in sighting.mentions:
                key = keys[mention.name]
                self.counts[key] += 1
                spellings[key][mention.name] += 1
                if mention.label:
                    self.labels.add(key)
                if mention.label or not mention.resolve:
                    literal.add(key)
                self.facts[key].add((own - {key}, sighting.date))
            apart.update(map(frozenset, combinations(sorted(own), 2)))
        self.apart = frozenset(apart)
        self.spelling = {
            key: min(found, key=lambda name: (-found[name], name))
            for key, found in spellings.items()
        }
        self.resolvable = [key for key in self.spelling if key not in literal]


async def _keys(connection: Connection, names: Sequence[str]) -> dict[str, str]:
    """Each name under the database's lower-casing, which the unique index uses."""
    rows = await connection.fetch("select n, lower(n) from unnest($1::text[]) n", list(names))
    return {row[0]: row[1] for row in rows}


async def _known(
    connection: Connection, bank: int, keys: Sequence[str], resolvable: Sequence[str]
) -> dict[str, int]:
    """Entities of exactly these names; of those to resolve also the only one of that alias."""
    exact = await connection.fetch(
        "select name_key, coalesce(merged_into, entity_no) from entities"
        " where bank = $1 and name_key = any($2)",
        bank,
        list(keys),
    )
    alias = await connection.fetch(
        "select name_key, min(entity_no) from entity_aliases"
        " where bank = $1 and name_key = any($2) group by name_key having count(*) = 1",
        bank,
        list(resolvable),
    )
    return {**{row[0]: row[1] for row in alias}, **{row[0]: row[1] for row in exact}}


async def _by_evidence(
    connection: Connection,
    bank: int,
    keys: Sequence[str],
    book: _Book,
    chosen: Mapping[str, int],
    settings: RetainSettings,
) -> dict[str, int]:
    candidates = await _candidates(connection, bank, keys, settings)
    numbers = {c.entity_no for found in candidates.values() for c in found}
    if not numbers:
        return {}
    company = await _company(connection, bank, numbers, set(chosen.values()))
    decided: dict[str, int] = {}
    for key, found in candidates.items():
        best: tuple[float, int, int] | None = None
        for candidate in found:
            value = max(
                (
                    score(
                        key,
                        candidate.name,
                        _share(candidate.entity_no, others, chosen, company),
                        recency(date, candidate.last_seen),
                    )
                    for others, date in book.facts[key]
                    # Two names of one fact are two entities.
                    if candidate.entity_no not in {chosen.get(other) for other in others}
                ),
                default=0.0,
            )
            ranked = (value, company_size(company, candidate.entity_no), -candidate.entity_no)
            if value > ACCEPT and (best is None or ranked > best):
                best = ranked
        if best is not None:
            decided[key] = -best[2]
    return _one_per_fact(decided, book)


def _one_per_fact(decided: dict[str, int], book: _Book) -> dict[str, int]:
    """Two names of one fact that lead to one entity: neither is sure enough."""
    unsure = {
        key
        for pair in book.apart
        if len({decided[key] for key in pair if key in decided}) == 1 and pair <= decided.keys()
        for key in pair
    }
    return {key: number for key, number in decided.items() if key not in unsure}


def company_size(company: Mapping[int, set[int]], entity_no: int) -> int:
    return len(company.get(entity_no, ()))


def _share(
    entity_no: int,
    others: frozenset[str],
    chosen: Mapping[str, int],
    company: Mapping[int, set[int]],
) -> float:
    if not others:
        return 0.0
    known = company.get(entity_no, set())
    return sum(chosen.get(other, -1) in known for other in others) / len(others)


async def _candidates(
    connection: Connection, bank: int, keys: Sequence[str], settings: RetainSettings
) -> dict[str, list[_Candidate]]:
    if not keys:
        return {}
    await connection.execute(
        "select set_config('pg_trgm.similarity_threshold', $1, true)",
        str(settings.entity_trgm_similarity_threshold),
    )
    similar = "e.name_key % w.probe"
    if settings.retain_entity_lookup == "full":
        similar = (
            "(e.name_key like '%' || w.pattern || '%' or w.probe like '%' || e.name_key || '%')"
        )
    found: dict[str, dict[int, _Candidate]] = defaultdict(dict)
    size = settings.retain_entity_resolution_batch_size
    for start in range(0, len(keys), size):
        probes = [
            (key, probe) for key in keys[start : start + size] for probe in (key, *variants(key))
        ]
        rows = await connection.fetch(
            "select w.key, e.*"
            " from unnest($2::text[], $3::text[], $4::text[]) w(key, probe, pattern)"
            " cross join lateral (select e.entity_no, e.canonical_name, e.last_seen"
            f"  from entities e where e.bank = $1 and {similar}"
            "  and e.merged_into is null and e.kind <> 'label'"
            "  order by similarity(e.name_key, w.probe) desc, e.entity_no limit $5) e",
            bank,
            [key for key, _ in probes],
            [probe for _, probe in probes],
            [_literal(probe) for _, probe in probes],
            settings.retain_entity_resolution_max_candidates,
        )
        known = await connection.fetch(
            "select a.name_key, e.entity_no, e.canonical_name, e.last_seen"
            " from entity_aliases a join entities e using (bank, entity_no)"
            " where a.bank = $1 and a.name_key = any($2)",
            bank,
            list(keys[start : start + size]),
        )
        for key, number, name, last_seen in [*rows, *known]:
            found[key][number] = _Candidate(number, name, last_seen)
    return {key: list(by_number.values()) for key, by_number in found.items()}


def _literal(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


async def _company(
    connection: Connection, bank: int, candidates: set[int], others: set[int]
) -> dict[int, set[int]]:
    """Which of `others` each candidate is known to appear with."""
    if not others:
        return {}
    rows = await connection.fetch(
        "select a, b from entity_cooccurrences where bank = $1"
        " and ((a = any($2) and b = any($3)) or (a = any($3) and b = any($2)))",
        bank,
        list(candidates),
        list(others),
    )
    company: dict[int, set[int]] = defaultdict(set)
    for a, b in rows:
        company[a].add(b)
        company[b].add(a)
    return company


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
    book: _Book,
    settings: RetainSettings,
) -> tuple[_Made, int]:
    if not keys:
        return _Made({}, {}), next_entity
    loose = [key for key in keys if key in set(book.resolvable)]
    leader = {
        **{key: key for key in keys},
        **cluster(loose, book.counts, book.apart, settings.entity_intrabatch_merge_similarity),
    }
    leaders = [key for key in keys if leader[key] == key]
    numbers = {key: next_entity + i for i, key in enumerate(leaders)}
    await connection.execute(
        "insert into entities (bank, entity_no, id, canonical_name, name_key, kind, version)"
        " select $1, n, id, name, lower(name), kind, $2"
        " from unnest($3::int[], $4::uuid[], $5::text[], $6::text[]) w(n, id, name, kind)",
        bank,
        version,
        [numbers[key] for key in leaders],
        new_ids(len(leaders)),
        [book.spelling[key] for key in leaders],
        ["label" if key in book.labels else "regular" for key in leaders],
    )
    every = {key: numbers[leader[key]] for key in keys}
    aliases = {key: number for key, number in every.items() if leader[key] != key}
    return _Made(every, aliases), next_entity + len(leaders)


async def _remember(connection: Connection, bank: int, aliases: Mapping[str, int]) -> None:
    if aliases:
        await connection.execute(
            "insert into entity_aliases (bank, name_key, entity_no)"
            " select $1, k, n from unnest($2::text[], $3::int[]) w(k, n) on conflict do nothing",
            bank,
            list(aliases),
            list(aliases.values()),
        )


async def _count(
    connection: Connection,
    bank: int,
    resolved: Sequence[Sequence[tuple[int, str]]],
    dates: Sequence[datetime | None],
) -> None:
    """Adds the sightings to the entities' counts, times and company."""
    mentions: Counter[int] = Counter()
    first: dict[int, datetime] = {}
    last: dict[int, datetime] = {}
    pairs: Counter[tuple[int, int]] = Counter()
    met: dict[tuple[int, int], datetime] = {}
    for entities, date in zip(resolved, dates, strict=True):
        numbers = sorted(number for number, _ in entities)
        mentions.update(numbers)
        for pair in combinations(numbers, 2):
            pairs[pair] += 1
        if date is None:
            continue
        for number in numbers:
            first[number] = min(first.get(number, date), date)
            last[number] = max(last.get(number, date), date)
        for pair in combinations(numbers, 2):
            met[pair] = max(met.get(pair, date), date)
    rows: list[Any] = list(mentions)
    await connection.execute(
        "update entities e set mention_count = mention_count + w.c,"
        " first_seen = least(first_seen, w.f), last_seen = greatest(last_seen, w.l)"
        " from unnest($2::int[], $3::int[], $4::timestamptz[], $5::timestamptz[]) w(n, c, f, l)"
        " where e.bank = $1 and e.entity_no = w.n",
        bank,
        rows,
        [mentions[n] for n in rows],
        [first.get(n) for n in rows],
        [last.get(n) for n in rows],
    )
    if pairs:
        keys = list(pairs)
        await connection.execute(
            "insert into entity_cooccurrences as o (bank, a, b, count, last_cooccurred)"
            " select $1, a, b, c, l from"
            " unnest($2::int[], $3::int[], $4::int[], $5::timestamptz[]) w(a, b, c, l)"
            " on conflict (bank, a, b) do update set count = o.count + excluded.count,"
            " last_cooccurred = greatest(o.last_cooccurred, excluded.last_cooccurred)",
            bank,
            [a for a, _ in keys],
            [b for _, b in keys],
            [pairs[key] for key in keys],
            [met.get(key) for key in keys],
        )
