"""From scores to an order: every candidate's weight, and what removes candidates after it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from retrieval.ranking import boosts, floors, graph_quota, leaders, scoring
from retrieval.ranking.contributions import Contributions
from retrieval.ranking.shortlist import Shortlist
from retrieval.settings import RecallSettings
from retrieval.topk import places
from retrieval.types import Arm, Bools, Doubles, FactType, Ints, RecallQuery, microseconds


@dataclass(frozen=True, slots=True)
class RerankerOutput:
    """scores float64 (c,) or None from a passthrough; `member` names who answered."""

    scores: Doubles | None
    scale: str
    member: str
    degraded: bool = False


@dataclass(frozen=True, slots=True)
class Ranked:
    """The shortlist after scoring: everything float64 (c,), in the shortlist's order.

    `order` lists the survivors of the floors, best first; `raw` is None where nothing reranked;
    `lifted` bool (c,): stands where it does because of what leads to it. `steps`: the weight after
    each thing that changed it, by name; the first is `base`, the last `weight`.
    """

    order: Ints
    weight: Doubles
    combined: Doubles
    base: Doubles
    raw: Doubles | None
    recency: Doubles
    proximity: Doubles
    proof: Doubles
    lifted: Bools
    member: str
    dropped: Mapping[int, str]
    steps: tuple[tuple[str, Doubles], ...]

    @property
    def contributions(self) -> Contributions:
        """What adds up to `weight`."""
        return Contributions.of_steps(self.steps)


def rank(
    query: RecallQuery, shortlist: Shortlist, scores: RerankerOutput, settings: RecallSettings
) -> Ranked:
    """Base score x recency x proximity x proof, plus strategy boosts; floors; best first, the
    first of every arm among the first ten, and observations that tell nothing new behind all that
    does, unless they are preferred. What was interleaved keeps its order, whatever the signals
    say."""
    facts = shortlist.facts
    raw: Doubles | None = None
    if scores.scores is not None:
        reranked = scoring.normalise(scores.scores, scores.scale)
        raw, base = reranked.raw, reranked.normalised
        if len(raw) > 1 and np.ptp(raw) == 0:
            # The same score for every candidate says nothing: without the fused order in it,
            # recency would be all that is left.
            base = base * shortlist.fused
    elif scores.member == "interleave":
        base = shortlist.found.rrf
    elif scores.member == "rrf":
        base = scoring.passthrough(len(shortlist))
    else:
        base = shortlist.fused
    recent = scoring.recency(
        facts.occurred_start,
        facts.occurred_end,
        facts.mentioned_at,
        microseconds(query.now),
        function=settings.recency_decay_function,
        window_days=settings.recency_decay_linear_window_days,
        halflife_days=settings.recency_decay_halflife_days,
    )
    near = np.where(np.isnan(shortlist.proximity), scoring.NEUTRAL, shortlist.proximity)
    proven = scoring.proof(facts.proof)
    combined = weight = base
    steps = [("base", base)]
    if scores.member != "interleave":
        steps = scoring.steps(base, recent, near, proven)
        combined = steps[-1][1]
        if raw is not None and shortlist.outside is not None:  # the fused order knows
            combined = np.where(shortlist.outside, combined * scoring.OUTSIDE, combined)
            steps.append(("outside", combined))
        strategy = boosts.parse(settings.recall_strategy_boosts)
        weight = combined
        if strategy:
            weight = combined + boosts.addends(shortlist.found, strategy)
            steps.append(("boosts", weight))
    first = np.argsort(-base, kind="stable")
    order = first[np.argsort(-weight[first], kind="stable")].astype(np.int32)
    lifted: Bools = np.zeros(len(shortlist), np.bool_)
    if raw is not None and settings.graph_quota > 0 and len(shortlist):
        paths = shortlist.paths
        support = places(shortlist.found.ordinals, paths.support)
        weight, order, lifted = graph_quota.keep(
            weight, order, paths.evidence, support, settings.graph_quota
        )
    dropped: dict[int, str] = {}
    wanted = query.min_scores
    if wanted.reranker is not None and raw is not None:
        order = _floor(order, base, wanted.reranker, "min_scores.reranker", dropped)
    if wanted.final is not None:
        order = _floor(order, weight, wanted.final, "min_scores.final", dropped)
    moved = bool(lifted.any())
    if scores.member != "interleave":
        told: Bools = np.zeros(len(shortlist), np.bool_)
        if not prefers_observations(query, settings):
            told = _told(shortlist, weight, order)
            weight, order = _behind(weight, order, told)
        leads = leaders.first(_leading(shortlist), told)
        weight, order, led = _led(weight, order, leads)
        lifted |= led
        moved = bool(lifted.any() or told.any())
    if moved:
        steps.append(("place", weight))
    return Ranked(
        order, weight, combined, base, raw, recent, near, proven, lifted, scores.member, dropped,
        tuple(steps),
    )  # fmt: skip


def prefers_observations(query: RecallQuery, settings: RecallSettings) -> bool:
    """Whether observations are to stand for what they were made from."""
    wanted = query.prefer_observations
    if wanted is None:
        wanted = settings.recall_prefer_observations
    types = set(query.filters.types)
    return wanted and FactType.OBSERVATION in types and len(types) > 1


def _told(shortlist: Shortlist, weight: Doubles, order: Ints) -> Bools:
    """bool (c,): observations that tell nothing which the rest of the list does not: all that they
    were made of stands in it, and weighs as much, or is a single memory which they echo."""
    told: Bools = np.zeros(len(shortlist), np.bool_)
    made = np.flatnonzero(np.diff(shortlist.source_ptr))
    if not len(made):
        return told
    listed = np.full(len(shortlist), -np.inf)
    listed[order] = weight[order]
    of = places(shortlist.found.ordinals, shortlist.source_ordinals)
    least = np.where(of >= 0, listed[of], -np.inf)
    least = np.minimum.reduceat(least, shortlist.source_ptr[made])
    says_more = least < weight[made]
    if shortlist.echo is not None:
        says_more &= ~shortlist.echo[made]
    told[made[~says_more & (least > -np.inf)]] = True
    return told


def _behind(weight: Doubles, order: Ints, told: Bools) -> tuple[Doubles, Ints]:
    """(weight, order) with these behind all others, where they weigh no more than the last of them.

    In their own places, two of the first ten told one thing: of the evidence of LoCoMo (part) they
    held 0.82 so, 0.85 with the memories alone.
    """
    last = told[order]
    if last.all() or not last.any():
        return weight, order
    rest, echoes = order[~last], order[last]
    weight = weight.copy()
    weight[echoes] = np.minimum(weight[echoes], weight[rest].min())
    return weight, np.concatenate([rest, echoes])


def _leading(shortlist: Shortlist) -> Ints:
    """The ranks in which candidates lead an arm. What holds all through a window is nothing that
    its time alone tells of: in a bank that matures, most of what it knows does."""
    ranks = shortlist.found.ranks
    if shortlist.lasting is None:
        return ranks
    ranks = ranks.copy()
    ranks[shortlist.lasting, Arm.TEMPORAL] = 0
    return ranks


def _led(weight: Doubles, order: Ints, leads: Bools) -> tuple[Doubles, Ints, Bools]:
    """(weight, order, lifted) with every arm's first near the top; whatever is lifted weighs as
    much as what it stands behind."""
    lifted: Bools = np.zeros(len(weight), np.bool_)
    led = leaders.kept(order, leads)
    if led is order:
        return weight, order, lifted
    lifted[np.setdiff1d(led[: leaders.PLACES], order[: leaders.PLACES])] = True
    weight = weight.copy()
    for before, at in pairwise(led[: leaders.PLACES].tolist()):
        if lifted[at]:
            weight[at] = weight[before]
    return weight, led, lifted


def without_sources(shortlist: Shortlist, order: Ints, dropped: dict[int, str]) -> Ints:
    """Drops world and experience memories that a leading observation was made from; it stands where
    the best of them stood.

    Left in its own place, an observation without a document and links around it ranks far lower
    than what it was made from: of the evidence of LoCoMo (part) the first ten held 0.65 so, 0.86
    with the memories alone and 0.86 this way.
    """
    head = order[: 2 * shortlist.budget]
    leading = np.flatnonzero(shortlist.facts.fact_type[head] == FactType.OBSERVATION)
    ptr = shortlist.source_ptr
    spans = [shortlist.source_ordinals[ptr[i] : ptr[i + 1]] for i in head[leading]]
    if not spans:
        return order
    of = np.repeat(leading, [len(span) for span in spans])
    source = places(shortlist.found.ordinals[order], np.concatenate(spans))
    listed = source >= 0
    of, source = of[listed], source[listed]
    facts = shortlist.facts.fact_type[order[source]] != FactType.OBSERVATION
    of, source = of[facts], source[facts]
    stands = np.arange(len(order))
    np.minimum.at(stands, of, source)
    kept = np.ones(len(order), np.bool_)
    kept[source] = False
    dropped.update((int(i), "told_by_observation") for i in order[~kept])
    return order[kept][np.argsort(stands[kept], kind="stable")]


def without_duplicates(
    shortlist: Shortlist, order: Ints, threshold: float, dropped: dict[int, str]
) -> tuple[Ints, dict[int, int]]:
    """Keeps the best of every group of memories whose vectors agree to `threshold` (cosine), or of
    which one is an observation made from the other alone.

    The second value counts, per kept position, how many were merged into it.
    """
    assert shortlist.vectors is not None
    vectors = shortlist.vectors[order]
    alike = vectors @ vectors.T >= threshold
    alone = np.flatnonzero(np.diff(shortlist.source_ptr)[order] == 1)
    source = shortlist.source_ordinals[shortlist.source_ptr[order[alone]]]
    made, of = np.nonzero(source[:, None] == shortlist.found.ordinals[order])
    alike[alone[made], of] = alike[of, alone[made]] = True
    free: Bools = np.ones(len(order), np.bool_)
    kept, merged = [], {}
    for i in range(len(order)):
        if not free[i]:
            continue
        group = np.flatnonzero(alike[i] & free)
        group = group[group > i]
        free[group] = False
        kept.append(i)
        if len(group):
            merged[int(order[i])] = len(group)
            dropped.update((int(order[j]), "duplicate") for j in group)
    return order[kept], merged


def _floor(
    order: Ints, scores: Doubles, floor: float, reason: str, dropped: dict[int, str]
) -> Ints:
    good = scores[order] >= floors.least(floor, floors.FINAL_DIGITS)
    dropped.update((int(i), reason) for i in order[~good])
    return order[good]


def cut(order: Ints, limit: int, reason: str, dropped: dict[int, str]) -> Ints:
    dropped.update((int(i), reason) for i in order[limit:])
    return order[:limit]
