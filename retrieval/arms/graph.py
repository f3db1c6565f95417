"""The graph arm: memories that neither word nor vector finds, reached from those that do.

The walk starts at seeds (the memories that fit the question best, and those about entities it
names) and follows links for one to three hops. A link hands on a share of its parent's strength:

    shared entities  0.4 * tanh(0.5 * sum of rarity over the entities both mention)
    subject          0.7 * rarity: the parent mentions what the memory is about
    semantic         0.4 * (weight - 0.7) / 0.3
    causal           0.6 * weight, both ways; 0.9 towards causes if the question asks why
    sequence         0.5: next to the parent in its document

    rarity(e) = ln(N / frequency(e)) / ln(N / 2), at most 1; below 0.2 the entity is not followed,
                unless at most 20 of the memories that may be returned mention it: then 0.2

N counts the live memories, without observations that mention nothing themselves;
so an entity that two memories mention counts in full and one that most of the bank mentions
carries nothing. Strength of a seed: its affinity to the question (ranking/score_fusion.py), and 5
more if it mentions a rare entity that the question names, because the question is about what such a
memory leads to. Strength of a memory reached later: its own affinity or what reached it, whichever
is more. *Evidence* is the best share that a memory receives. The arm orders by affinity + evidence,
lists its seeds too, and leaves out what falls short of a tenth of the best, so it may be short.

Without damping it is plain link expansion of one hop, each fact type by itself, from its at most
SEEDS most similar memories: tanh(0.5 * number of distinct entities shared with any seed) + best
semantic weight + best causal weight, seeds not among the results unless a causal link leads to
them, equal scores by similarity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from retrieval.arms.adjacency import Adjacency, GraphHits, GraphSettings, Late, LinkTable, PathLink
from retrieval.arms.link_expansion import link_expansion
from retrieval.arms.walk import Walk, leading_of_each
from retrieval.topk import distinct
from retrieval.types import Bools, Doubles, Hits, Ints

__all__ = [
    "SEEDS",
    "Adjacency",
    "GraphHits",
    "GraphSettings",
    "LinkTable",
    "PathLink",
    "expand",
    "merged",
    "pick_seeds",
    "walk",
]

SEEDS = 20


def pick_seeds(
    lists: Iterable[Hits],
    affinity: Callable[[Ints], Doubles],
    derived: Bools | None = None,
) -> Ints:
    """The SEEDS best of these arms' memories by affinity, best first, equal ones by ordinal; of the
    `derived` (bool over ordinals) as many beside them."""
    ordinals = distinct(np.concatenate([np.empty(0, np.int32), *(h.ordinals for h in lists)]))
    ordinals = ordinals[np.argsort(-affinity(ordinals), kind="stable")].astype(np.int32)
    return ordinals[leading_of_each(ordinals, derived, SEEDS)]


def walk(
    graph: Adjacency,
    seeds: Ints,
    affinity: Callable[[Ints], Doubles],
    allowed: Bools,
    settings: GraphSettings,
    *,
    named: Ints | None = None,
    derived: Bools | None = None,
    late: Late = lambda: False,
) -> GraphHits:
    """The graph arm's answer.

    seeds int32, distinct, best first; `affinity` gives float64 per ordinal (any real numbers, about
    0 for the average memory). allowed bool (size,): no other memory is returned or walked through,
    and the cap per entity counts only these. named: entities the question names; memories about
    them join the seeds. derived bool (size,): observations, for which all limits hold apart, so
    that they take no place of a memory's; None where there are none. `late` is asked before each
    search through entities: once true, only links are followed. Empty where there is no seed. Pure;
    any thread.
    """
    none = np.empty(0, np.int32)
    named = none if named is None else named
    walk = Walk(graph, affinity, allowed, settings, late, named, derived)
    return walk.run(seeds[allowed[seeds]])


def expand(
    graph: Adjacency,
    seeds: Ints,
    similarity: Callable[[Ints], Doubles],
    allowed: Bools,
    settings: GraphSettings,
    late: Late = lambda: False,
) -> GraphHits:
    """Plain link expansion from at most SEEDS seeds; arguments as in `walk`, of one fact type."""
    return link_expansion(graph, seeds[allowed[seeds]][:SEEDS], similarity, allowed, settings, late)


def merged(parts: Sequence[GraphHits]) -> GraphHits:
    """Several answers as one: by score, equal ones in the order of the parts."""
    scores = np.concatenate([part.hits.scores for part in parts])
    order = np.argsort(-scores, kind="stable")
    return GraphHits(
        Hits(np.concatenate([part.hits.ordinals for part in parts])[order], scores[order]),
        *(
            np.concatenate([getattr(part, name) for part in parts])[order]
            for name in ("parent", "link", "hop", "via", "evidence", "support")
        ),
    )
