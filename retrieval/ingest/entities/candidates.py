"""Which entities of a bank a name may mean, and what is known of them: reads, a page at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from retrieval.ingest.entities.nicknames import variants
from retrieval.ingest.entities.similarity import plain
from retrieval.settings import RetainSettings
from retrieval.store.database.pool import Connection
from retrieval.store.edge import like

ROWS = 1_000
"""Rows that a statement gives or takes at most: what the event loop has to pack or unpack."""


def slices(count: int, size: int = ROWS) -> Iterator[slice]:
    return (slice(start, start + size) for start in range(0, count, size))


@dataclass(frozen=True, slots=True)
class Candidate:
    entity_no: int
    name: str
    last_seen: datetime | None


Probes = Mapping[str, Sequence[str]]
"""What a name is looked for as: itself and with other forms of its first word."""


def together(keys: Sequence[str], settings: RetainSettings) -> Iterator[Probes]:
    """The names in groups, each for one statement of `of_names`."""
    most = max(1, 2 * ROWS // max(1, settings.retain_entity_resolution_max_candidates))
    group: dict[str, Sequence[str]] = {}
    size = 0
    for key in keys:
        probes = (key, *variants(key))
        if group and (
            size + len(probes) > most or len(group) >= settings.retain_entity_resolution_batch_size
        ):
            yield group
            group, size = {}, 0
        group[key] = probes
        size += len(probes)
    if group:
        yield group


async def of_names(
    connection: Connection, bank: int, names: Probes, settings: RetainSettings
) -> dict[str, list[Candidate]]:
    """Entities that each name may mean: spelt alike, alike but for accents and punctuation, or
    known by it as an alias."""
    similar = "e.name_key % w.probe"
    if settings.retain_entity_lookup == "full":
        similar = (
            "(e.name_key like '%' || w.pattern || '%' or w.probe like '%' || e.name_key || '%')"
        )
    found: dict[str, dict[int, Candidate]] = defaultdict(dict)
    keys = list(names)
    probes = [(key, probe) for key in keys for probe in names[key]]
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
        [like(probe) for _, probe in probes],
        settings.retain_entity_resolution_max_candidates,
    )
    as_typed = [(key, form) for key in keys for form in {plain(key), key} if form]
    typed = await connection.fetch(
        "select w.key, e.entity_no, e.canonical_name, e.last_seen"
        " from unnest($2::text[], $3::text[]) w(key, typed) join entities e"
        "  on e.bank = $1 and (e.plain_key = w.typed or e.name_key = w.typed)"
        " where e.merged_into is null and e.kind <> 'label' order by e.entity_no limit $4",
        bank,
        [key for key, _ in as_typed],
        [form for _, form in as_typed],
        ROWS,
    )
    known = await connection.fetch(
        "select a.name_key, e.entity_no, e.canonical_name, e.last_seen"
        " from entity_aliases a join entities e using (bank, entity_no)"
        " where a.bank = $1 and a.name_key = any($2) order by e.entity_no limit $3",
        bank,
        keys,
        ROWS,
    )
    for key, number, name, last_seen in [*rows, *typed, *known]:
        found[key][number] = Candidate(number, name, last_seen)
    return {key: list(by_number.values()) for key, by_number in found.items()}


async def aliases(connection: Connection, bank: int, numbers: set[int]) -> dict[int, list[str]]:
    """Other names that the candidates are known by."""
    rows = await connection.fetch(
        "select entity_no, name_key from entity_aliases where bank = $1 and entity_no = any($2)"
        " order by entity_no, name_key limit $3",
        bank,
        list(numbers),
        ROWS,
    )
    found: dict[int, list[str]] = defaultdict(list)
    for number, name in rows:
        found[number].append(name)
    return found


async def cooccurring(
    connection: Connection, bank: int, candidates: set[int], others: set[int]
) -> dict[int, set[int]]:
    """Which of `others` each candidate is known to appear with."""
    found: dict[int, set[int]] = defaultdict(set)
    wanted = list(others)
    for part in slices(len(wanted)):
        rows = await connection.fetch(
            "select a, b from entity_cooccurrences where bank = $1"
            " and ((a = any($2) and b = any($3)) or (a = any($3) and b = any($2))) limit $4",
            bank,
            list(candidates),
            wanted[part],
            4 * ROWS,
        )
        for a, b in rows:
            found[a].add(b)
            found[b].add(a)
    return found
