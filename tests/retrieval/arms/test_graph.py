from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.arms import graph
from retrieval.arms.affinity import Scale, affinity
from retrieval.arms.graph import GraphHits, GraphSettings, PathLink
from retrieval.ranking.score_fusion import fused_scores
from retrieval.ranking.signals import CandidatePool, windows
from retrieval.types import Bools, Doubles, Hits, Ints, LinkType
from tests.retrieval.arms.small_graph import SmallGraph

pytestmark = pytest.mark.unit


def ints(*values: int) -> Ints:
    return np.array(values, np.int32)


def lookup(values: Sequence[float]) -> Callable[[Ints], Doubles]:
    held = np.asarray(values, np.float64)
    return lambda ordinals: held[ordinals]


def everyone(bank: SmallGraph) -> Bools:
    return np.ones(bank.size, np.bool_)


def plain(
    bank: SmallGraph, seeds: Ints, *, limit: int = 300, allowed: Bools | None = None
) -> GraphHits:
    return graph.expand(
        bank,
        seeds,
        lookup([0.0] * bank.size),
        everyone(bank) if allowed is None else allowed,
        GraphSettings(limit=limit),
    )


def scores(hits: GraphHits) -> dict[int, float]:
    return dict(
        zip(hits.hits.ordinals.tolist(), hits.hits.scores.astype(float).tolist(), strict=True)
    )


def at(hits: GraphHits, ordinal: int) -> tuple[int, PathLink, int]:
    i = hits.hits.ordinals.tolist().index(ordinal)
    return int(hits.parent[i]), PathLink(hits.link[i]), int(hits.hop[i])


FILLER = [[f"subject {i}", f"thing {i}"] for i in range(60)]


class TestPlainLinkExpansion:
    @pytest.mark.parametrize(
        ("shared", "score"), [(1, 0.462117), (2, 0.761594), (3, 0.905148), (4, 0.964028)]
    )
    def test_counts_distinct_shared_entities(self, shared: int, score: float) -> None:
        names = [f"e{i}" for i in range(shared)]
        hits = plain(SmallGraph([names, names, ["other"]]), ints(0))
        assert scores(hits) == {1: pytest.approx(score, abs=1e-6)}

    def test_adds_the_three_signals(self) -> None:
        bank = SmallGraph(
            [["a", "b"], ["a", "b"]],
            links=[(1, 0, LinkType.SEMANTIC, 0.82), (0, 1, LinkType.CAUSED_BY, 1.0)],
        )
        assert scores(plain(bank, ints(0)))[1] == pytest.approx(2.581594, abs=1e-6)

    def test_an_entity_shared_with_two_seeds_counts_once(self) -> None:
        hits = plain(SmallGraph([["a"], ["a"], ["a"]]), ints(0, 1))
        assert scores(hits) == {2: pytest.approx(0.462117, abs=1e-6)}

    def test_a_seed_returns_only_through_a_causal_link(self) -> None:
        bank = SmallGraph(
            [["a"], ["a"]],
            links=[(0, 1, LinkType.SEMANTIC, 0.9), (0, 1, LinkType.CAUSES, 0.5)],
        )
        assert scores(plain(bank, ints(0, 1))) == {0: 0.5, 1: 0.5}

    def test_causal_cut_is_by_weight(self) -> None:
        links = [(0, i, LinkType.CAUSES, i / 10) for i in range(1, 6)]
        hits = plain(
            SmallGraph([["s"]] + [[f"x{i}"] for i in range(5)], links=links), ints(0), limit=2
        )
        assert hits.hits.ordinals.tolist() == [5, 4]

    def test_cap_per_entity_keeps_the_newest_of_those_allowed(self) -> None:
        bank = SmallGraph([["hub"]] * 10)
        allowed = everyone(bank)
        allowed[9] = False
        hits = graph.expand(
            bank, ints(0), lookup([0.0] * 10), allowed,
            GraphSettings(per_entity=3),
        )  # fmt: skip
        assert sorted(hits.hits.ordinals.tolist()) == [6, 7, 8]

    def test_observations_share_through_their_sources(self) -> None:
        # 4 was made from 0; 5 from 1, 2 and 3, two of which share "a" with 0.
        bank = SmallGraph([["a"], ["a"], ["a", "c"], ["d"], [], []], sources={4: [0], 5: [1, 2, 3]})
        allowed = np.array([False] * 4 + [True] * 2)
        hits = plain(bank, ints(4), allowed=allowed)
        assert scores(hits) == {5: pytest.approx(np.tanh(1.0), abs=1e-6)}
        assert at(hits, 5) == (4, PathLink.ENTITY, 1)

    def test_without_time_only_links_are_followed(self) -> None:
        bank = SmallGraph([["a"], ["a"], ["b"]], links=[(0, 2, LinkType.SEMANTIC, 0.8)])
        for expand in (graph.expand, graph.walk):
            hits = expand(
                bank, ints(0), lookup([3.0, 0.0, 0.0]), everyone(bank), GraphSettings(),
                late=lambda: True,
            )  # fmt: skip
            assert 2 in hits.hits.ordinals
            assert 1 not in hits.hits.ordinals

    def test_equal_scores_go_by_similarity(self) -> None:
        bank = SmallGraph([["a"], ["a"], ["a"], ["a"]])
        hits = graph.expand(
            bank, ints(0), lookup([0.0, 0.1, 0.9, 0.5]), everyone(bank),
            GraphSettings(),
        )  # fmt: skip
        assert hits.hits.ordinals.tolist() == [2, 3, 1]

    def test_starts_from_twenty_seeds_at_most(self) -> None:
        bank = SmallGraph([[f"e{i}"] for i in range(25)] + [["e19"], ["e20"]])
        assert plain(bank, ints(*range(25))).hits.ordinals.tolist() == [25]

    def test_answers_of_several_types_are_one_list_by_score(self) -> None:
        bank = SmallGraph([["a", "b"], ["a", "b"], ["a"], ["b"]])
        parts = [plain(bank, ints(0), allowed=np.arange(4) != left) for left in (1, 2)]
        both = graph.merged(parts)
        assert both.hits.ordinals.tolist() == [1, 2, 3, 3]
        assert both.parent.tolist() == [0, 0, 0, 0]
        assert np.all(np.diff(both.hits.scores) <= 0)


def walk(
    bank: SmallGraph,
    fit: dict[int, float],
    *,
    hops: int = 2,
    named: Sequence[str] = (),
    allowed: Bools | None = None,
    causes: bool = False,
    per_entity: int = 200,
    limit: int = 300,
    derived: Bools | None = None,
) -> GraphHits:
    """Seeds are the memories in `fit`, best first; all others have affinity 0."""
    values = np.zeros(bank.size)
    values[list(fit)] = list(fit.values())
    seeds = ints(*sorted(fit, key=lambda i: -fit[i]))
    return graph.walk(
        bank,
        seeds,
        lookup(values.tolist()),
        everyone(bank) if allowed is None else allowed,
        GraphSettings(hops=hops, causes=causes, per_entity=per_entity, limit=limit),
        named=ints(*(bank.names[n] for n in named)),
        derived=derived,
    )


class TestDampedWalk:
    def test_lists_its_seeds_first_with_their_own_score(self) -> None:
        hits = walk(SmallGraph([["a"], ["b"], *FILLER]), {0: 4.0, 1: 2.0})
        assert scores(hits) == {0: 4.0, 1: 2.0}
        assert at(hits, 0) == (-1, PathLink.SEED, 0)

    def test_a_rare_entity_leads_further_than_a_common_one(self) -> None:
        bank = SmallGraph([["s", "rare", "common"], ["x", "rare"], ["y", "common"],
                           *([f"z{i}", "common"] for i in range(6)), *FILLER])  # fmt: skip
        found = scores(walk(bank, {0: 5.0}, hops=1))
        assert found[1] > found[2] > 0

    def test_shared_entities_add_up_by_rarity(self) -> None:
        bank = SmallGraph([["s", "a", "b"], ["x", "a", "b"], ["y", "a"], *FILLER])
        found = scores(walk(bank, {0: 10.0}, hops=1))
        n = bank.size
        rarity = np.log(n / np.array([3, 2])) / np.log(n / 2)
        assert found[1] == pytest.approx(10 * 0.4 * np.tanh(0.5 * rarity.sum()), abs=1e-5)
        assert found[2] == pytest.approx(10 * 0.4 * np.tanh(0.5 * rarity[0]), abs=1e-5)

    def test_what_the_seed_mentions_leads_to_what_is_about_it(self) -> None:
        bank = SmallGraph([["s", "a"], ["a", "other"], *FILLER])
        hits = walk(bank, {0: 10.0}, hops=1)
        assert scores(hits)[1] == pytest.approx(7.0)
        assert at(hits, 1) == (0, PathLink.SUBJECT, 1)
        assert hits.via[hits.hits.ordinals == 1] == bank.names["a"]

    def test_observations_take_no_place_of_a_memory(self) -> None:
        """One of each memory, which fits the question better: what the memories get is the same."""
        mentions = [["s", "a", "b"], ["x", "a", "b"], ["y", "a"], *FILLER]
        alone = walk(SmallGraph(mentions), {0: 4.0, 1: 1.0}, limit=2)
        count = len(mentions)
        bank = SmallGraph(
            [*mentions, *([] for _ in mentions)], sources={count + i: [i] for i in range(count)}
        )
        fit = {0: 4.0, 1: 1.0, count: 90.0, count + 1: 80.0}
        derived = np.arange(bank.size) >= count
        found = walk(bank, fit, limit=2, derived=derived)
        facts = found.hits.ordinals < count
        assert found.hits.ordinals[facts].tolist() == alone.hits.ordinals.tolist()
        assert found.evidence[facts] == pytest.approx(alone.evidence, rel=0.2)
        assert int((~facts).sum()) == 2
        none = walk(SmallGraph(mentions), {0: 4.0, 1: 1.0}, limit=2, derived=np.zeros(count, bool))
        for name in ("parent", "evidence", "support", "via"):
            assert getattr(none, name).tolist() == getattr(alone, name).tolist()
        assert none.hits.scores.tolist() == alone.hits.scores.tolist()

    def test_an_entity_everywhere_leads_nowhere(self) -> None:
        bank = SmallGraph([["both", f"x{i}"] for i in range(50)])
        hits = walk(bank, {0: 5.0, 1: 4.0}, named=["both"])
        assert hits.hits.ordinals.tolist() == [0, 1]
        assert not hits.evidence.any()

    def test_observations_make_nobody_rare(self) -> None:
        """A speaker who is in half of the memories is in half of them after consolidation too."""
        facts = [["both", f"x{i}"] if i % 2 else [f"y{i}"] for i in range(50)]
        walks = [
            walk(SmallGraph([*facts, *[[]] * made], sources={50 + i: [i] for i in range(made)}),
                 {1: 5.0, 3: 4.0}, named=["both"])
            for made in (0, 50)
        ]  # fmt: skip
        assert scores(walks[0]) == scores(walks[1])

    def test_hops_are_a_budget(self) -> None:
        bank = SmallGraph([["a", "b"], ["b", "c"], ["c", "d"], ["d", "e"], *FILLER])
        for hops in (1, 2, 3):
            hits = walk(bank, {0: 10.0}, hops=hops)
            assert hits.hits.ordinals.tolist() == list(range(hops + 1))
            assert hits.hop.tolist() == list(range(hops + 1))
        assert hits.parent.tolist() == [-1, 0, 1, 2]
        assert np.all(np.diff(hits.hits.scores) < 0)

    def test_the_walk_does_not_return_on_its_own_steps(self) -> None:
        bank = SmallGraph([["a", "b"], ["b", "a"], *FILLER])
        hits = walk(bank, {0: 10.0}, hops=3)
        assert scores(hits) == {0: 10.0, 1: pytest.approx(7.0)}

    def test_a_weak_seed_with_a_strong_parent_is_led_to_and_leads_on(self) -> None:
        bank = SmallGraph([["a", "b"], ["b", "c"], ["c", "d"], *FILLER])
        hits = walk(bank, {0: 10.0, 1: 0.1})
        assert at(hits, 1) == (0, PathLink.SUBJECT, 1)
        assert at(hits, 2) == (1, PathLink.SUBJECT, 2)

    def test_an_entity_named_in_the_question_is_a_seed(self) -> None:
        bank = SmallGraph([["s"], ["acme", "x"], ["x", "y"], *FILLER])
        assert walk(bank, {0: 3.0}).hits.ordinals.tolist() == [0]
        hits = walk(bank, {0: 3.0}, named=["acme"], hops=1)
        assert at(hits, 2) == (1, PathLink.SUBJECT, 1)
        assert scores(hits)[2] == pytest.approx(3.5)

    def test_filters_come_before_the_cap_and_are_never_walked_through(self) -> None:
        bank = SmallGraph([["s", "a"], *([f"x{i}", "a"] for i in range(6)), *FILLER])
        allowed = everyone(bank)
        allowed[1:4] = False
        hits = walk(bank, {0: 9.0}, per_entity=4, allowed=allowed)
        assert sorted(hits.hits.ordinals.tolist()) == [0, 4, 5, 6]
        chain = SmallGraph([["a", "b"], ["b", "c"], ["c", "d"], *FILLER])
        allowed = everyone(chain)
        allowed[1] = False
        assert walk(chain, {0: 9.0}, allowed=allowed).hits.ordinals.tolist() == [0]

    def test_neighbours_in_the_document_follow(self) -> None:
        bank = SmallGraph([["x"], ["y"], ["z"], *FILLER], documents=["d", "d", "d"])
        hits = walk(bank, {1: 8.0}, hops=1)
        assert scores(hits) == {1: 8.0, 0: 4.0, 2: 4.0}
        assert at(hits, 0) == (1, PathLink.SEQUENCE, 1)
        assert not hits.evidence.any()  # the fused score counts sequence by itself

    def test_semantic_links_lead_both_ways(self) -> None:
        bank = SmallGraph(
            [["x"], ["y"], ["z"], *FILLER],
            links=[(0, 1, LinkType.SEMANTIC, 0.85), (2, 0, LinkType.SEMANTIC, 1.0)],
        )
        hits = walk(bank, {0: 10.0}, hops=1)
        found = scores(hits)
        assert found[1] == pytest.approx(2.0, abs=1e-4)
        assert found[2] == pytest.approx(4.0)
        assert not hits.evidence.any()  # similar memories are about as similar to the question

    def test_why_goes_to_causes_and_still_sees_effects(self) -> None:
        bank = SmallGraph(
            [["effect"], ["now"], ["cause"], *FILLER],
            links=[(1, 2, LinkType.CAUSED_BY, 1.0), (0, 1, LinkType.CAUSED_BY, 1.0)],
        )
        neutral, why = scores(walk(bank, {1: 10.0})), scores(walk(bank, {1: 10.0}, causes=True))
        assert neutral[0] == neutral[2] == pytest.approx(6.0)
        assert why[2] == pytest.approx(9.0)
        assert why[0] == pytest.approx(6.0)

    def test_a_chain_of_causes_is_followed(self) -> None:
        links = [(i, i + 1, LinkType.CAUSED_BY, 1.0) for i in range(3)]
        bank = SmallGraph([[], [], [], [], *FILLER], links=links)
        hits = walk(bank, {0: 8.0}, hops=3, causes=True)
        assert hits.hits.ordinals.tolist() == [0, 1, 2, 3]
        assert hits.hop.tolist() == [0, 1, 2, 3]
        assert hits.parent.tolist() == [-1, 0, 1, 2]

    def test_observations_share_through_their_sources(self) -> None:
        bank = SmallGraph([["a"], ["a"], ["q"], [], [], *FILLER], sources={3: [0], 4: [1, 2]})
        allowed = everyone(bank)
        allowed[:3] = False
        hits = walk(bank, {3: 10.0}, allowed=allowed)
        assert scores(hits)[4] == pytest.approx(10 * 0.4 * np.tanh(0.5), abs=1e-5)

    def test_may_be_short_and_keeps_to_its_limit(self) -> None:
        bank = SmallGraph([["a"], ["b"], *FILLER])
        assert walk(bank, {0: 10.0, 1: 0.9}).hits.ordinals.tolist() == [0]
        assert len(walk(bank, {i: 5.0 + i for i in range(15)}, limit=4)) == 4

    def test_nothing_from_nothing(self) -> None:
        for bank in (SmallGraph([]), SmallGraph([["a"]])):
            for expand in (graph.expand, graph.walk):
                hits = expand(bank, ints(), lookup([0.0]), everyone(bank), GraphSettings())
                assert len(hits) == 0

    @given(st.data())
    def test_is_distinct_ordered_allowed_and_repeatable(self, data: st.DataObject) -> None:
        n = data.draw(st.integers(1, 30))
        names = st.lists(st.sampled_from("abcdefgh"), max_size=4, unique=True)
        kinds = st.sampled_from([LinkType.SEMANTIC, LinkType.CAUSES, LinkType.CAUSED_BY])
        node = st.integers(0, n - 1)
        links = st.lists(st.tuples(node, node, kinds, st.floats(0.1, 1.0)), max_size=20)
        bank = SmallGraph(
            data.draw(st.lists(names, min_size=n, max_size=n)),
            links=data.draw(links),
            documents=data.draw(
                st.lists(st.sampled_from(["d", "e", None]), min_size=n, max_size=n)
            ),
        )
        fit = np.array(data.draw(st.lists(st.floats(-3, 8), min_size=n, max_size=n)))
        allowed = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
        seeds = np.argsort(-fit, kind="stable")[:5].astype(np.int32)
        for expand in (graph.expand, graph.walk):
            settings = GraphSettings(hops=3, limit=10)
            one, two = (expand(bank, seeds, lookup(fit.tolist()), allowed, settings) for _ in "12")
            found = one.hits.ordinals
            assert len(np.unique(found)) == len(found) <= 10
            assert allowed[found].all()
            assert np.all(np.diff(one.hits.scores) <= 0)
            assert np.all(one.evidence >= 0)
            assert np.all(one.support[one.evidence > 0] >= 0)
            assert found.tolist() == two.hits.ordinals.tolist()
            assert one.parent.tolist() == two.parent.tolist()
            reached = one.parent >= 0
            assert allowed[one.parent[reached]].all()
            assert np.all(one.hop[reached] >= 1)


def test_seeds_are_the_best_of_all_arms() -> None:
    semantic = Hits(ints(3, 1), np.array([0.9, 0.8], np.float32))
    keyword = Hits(ints(7, 3), np.array([5.0, 4.0], np.float32))
    values = [0.0, 1.0, 9.0, 2.0, 9.0, 9.0, 9.0, 3.0]
    assert graph.pick_seeds([semantic, keyword], lookup(values)).tolist() == [7, 3, 1]
    assert len(graph.pick_seeds([], lookup(values))) == 0


def test_observations_take_no_seed_of_a_memory() -> None:
    values = [float(i) for i in range(60)]
    derived = np.arange(60) >= 30
    every = Hits(np.arange(60, dtype=np.int32), np.ones(60, np.float32))
    found = graph.pick_seeds([every], lookup(values), derived).tolist()
    assert found == [*range(59, 39, -1), *range(29, 9, -1)]


class TestScenarios:
    """Small banks, similarities as all-MiniLM gives them: high where the names or words agree,
    a little below the average otherwise. No cross-encoder."""

    @staticmethod
    def ranked(
        bank: SmallGraph, deviations: dict[int, float], matched: dict[int, float], named: list[str],
        *, causes: bool = False, hops: int = 2,
    ) -> tuple[list[int], GraphHits]:  # fmt: skip
        n = bank.size
        similarity = np.random.default_rng(7).normal(0.0, 0.02, n).astype(np.float32)
        similarity[list(deviations)] = 0.1 * np.array(list(deviations.values()))
        keyword = np.zeros(n, np.float32)
        keyword[list(matched)] = list(matched.values())
        scale = Scale(0.0, 0.1, float(keyword.max(initial=0.0)))

        def fit(ordinals: Ints) -> Doubles:
            return affinity(similarity[ordinals], keyword[ordinals], scale)

        order = np.argsort(-fit(np.arange(n, dtype=np.int32)), kind="stable")[:40]
        seeds = graph.pick_seeds([Hits(order.astype(np.int32), np.zeros(40, np.float32))], fit)
        found = graph.walk(
            bank, seeds, fit, everyone(bank), GraphSettings(hops=hops, causes=causes),
            named=ints(*(bank.names[x] for x in named)),
        )  # fmt: skip
        candidates = np.union1d(order, found.hits.ordinals).astype(np.int32)
        evidence = np.zeros(n, np.float32)
        support = np.full(n, -1, np.int32)
        evidence[found.hits.ordinals] = found.evidence
        support[found.hits.ordinals] = found.support
        window = windows(candidates, bank.previous, bank.next)
        count = len(candidates)
        pool = CandidatePool(
            window=window,
            similarity=similarity[np.maximum(window, 0)],
            terms=keyword[np.maximum(window, 0)][None],
            ceilings=np.array([keyword.max(initial=0.0)], np.float32),
            scale=scale,
            ranks=np.zeros((count, 4), np.int32),
            document=np.full(count, -1, np.int32),
            tokens=np.full(count, 10, np.int32),
            named=np.isin(bank.subject[candidates], [bank.names[x] for x in named]),
            evidence=evidence[candidates],
            support=support[candidates],
            asks=np.zeros((count, 2), np.bool_),
        )
        fused = fused_scores(pool).score
        return candidates[np.argsort(-fused, kind="stable")].tolist(), found

    def test_an_outage_two_hops_from_a_person(self) -> None:
        bank = SmallGraph([["Alice", "Atlas"], ["Atlas", "Kubernetes"], ["Kubernetes"], *FILLER])
        # Sixty others, some of which speak of issues.
        others = dict.fromkeys(range(3, 18), 1.3)
        order, found = self.ranked(
            bank,
            {0: 2.9, 1: -1.5, 2: -1.2, **others},
            {0: 3.9, **dict.fromkeys(others, 1.3)},
            ["Alice"],
        )
        assert 2 in order[:5]
        assert at(found, 2) == (1, PathLink.SUBJECT, 2)
        assert at(found, 1) == (0, PathLink.SUBJECT, 1)

    def test_a_manager_through_a_project(self) -> None:
        bank = SmallGraph([["Tom", "Helios"], ["Priya", "Helios"], *FILLER])
        order, found = self.ranked(bank, {0: 3.0, 1: -0.3, 5: 1.5}, {0: 4.0}, ["Tom"])
        assert 1 in order[:3]
        assert at(found, 1) == (0, PathLink.ENTITY, 1)

    def test_facts_of_an_account_across_sessions(self) -> None:
        bank = SmallGraph(
            [["Acme", "renewal"], ["Acme", "Dana"], ["Dana", "leave"], ["budget", "Acme"], *FILLER]
        )
        order, _ = self.ranked(
            bank, {0: 2.5, 1: 0.2, 2: -0.5, 3: -0.4, 9: 1.6}, {0: 5.0, 9: 1.0}, ["Acme"]
        )
        assert {0, 1, 2, 3} <= set(order[:6])

    def test_a_chain_of_whys(self) -> None:
        links = [(0, 1, LinkType.CAUSED_BY, 1.0), (1, 2, LinkType.CAUSED_BY, 1.0)]
        bank = SmallGraph([["launch"], ["review"], ["lawyer"], *FILLER], links=links)
        order, found = self.ranked(
            bank, {0: 3.5, 1: -0.8, 2: -1.0, 8: 1.5}, {0: 5.0, 8: 1.5}, [], causes=True
        )
        assert order[:3] == [0, 1, 2]
        assert at(found, 2) == (1, PathLink.CAUSAL, 2)
