"""What only links found and a reranker: the path that it reads, the places that are kept."""

from __future__ import annotations

import numpy as np
import pytest

from retrieval.arms.adjacency import PathLink
from retrieval.ranking import document, graph_quota
from retrieval.types import Doubles

pytestmark = pytest.mark.unit

ENTITY, NEXT = PathLink.ENTITY, PathLink.SEQUENCE


@pytest.mark.parametrize(
    ("led", "link", "read"),
    [
        ([-1, 0, 1], [0, ENTITY, PathLink.CAUSAL], ["A", "a; B", "a; b; C"]),
        ([-1, 0, 1], [0, NEXT, ENTITY], ["A", "B", "b; C"]),
        ([-1, 0, 1], [0, ENTITY, PathLink.SEMANTIC], ["A", "a; B", "C"]),
        ([1, 0, -1], [ENTITY, ENTITY, 0], ["b; A", "a; B", "C"]),
        ([-1, -1, -1], [ENTITY, ENTITY, ENTITY], ["A", "B", "C"]),
    ],
    ids=["chain", "turns-are-none", "likeness-is-none", "circle", "nowhere"],
)
def test_paths_stand_in_front(led: list[int], link: list[int], read: list[str]) -> None:
    places, links = np.array(led), np.array(link, np.uint8)
    assert document.path_prefixed("abc", "ABC", places, links) == read


def test_a_path_is_short_and_so_is_what_is_read_of_each() -> None:
    texts = [str(i) * 500 for i in range(6)]
    led, link = np.arange(6) - 1, np.full(6, ENTITY, np.uint8)
    last = document.path_prefixed(texts, texts, led, link)[5]
    assert last == "; ".join([*(str(i) * document.READ_OF_EACH for i in (2, 3, 4)), texts[5]])


def lift(
    evidence: dict[int, float], support: dict[int, int], quota: int, count: int = 20
) -> tuple[Doubles, list[int], list[int]]:
    """Candidates in the order of their places, weights 1.0 downwards: weights, order, lifted."""
    handed, held = np.zeros(count, np.float32), np.full(count, -1)
    handed[list(evidence)] = list(evidence.values())
    held[list(support)] = list(support.values())
    weight, order, lifted = graph_quota.keep(
        np.linspace(1.0, 0.05, count), np.arange(count, dtype=np.int32), handed, held, quota
    )
    assert sorted(order.tolist()) == list(range(count))
    assert np.all(np.diff(weight[order]) <= 0)
    return weight, order.tolist(), np.flatnonzero(lifted).tolist()


def test_the_strongest_stand_behind_what_they_come_from() -> None:
    weight, order, lifted = lift(
        {15: 5.0, 16: 4.0, 17: 6.0, 18: 3.0}, dict.fromkeys((15, 16, 17, 18), 2), 3
    )
    assert order[:7] == [0, 1, 2, 17, 15, 16, 3]
    assert lifted == [15, 16, 17]
    assert set(weight[[15, 16, 17]]) == {weight[2]}


def test_a_chain_is_lifted_from_its_first_link_on() -> None:
    _, order, lifted = lift({15: 5.0, 18: 4.0}, {15: 0, 18: 15}, 3)
    assert order[:4] == [0, 15, 18, 1]
    assert lifted == [15, 18]


def test_equals_of_the_support_stand_behind() -> None:
    weight = np.ones(20)
    support = np.full(20, -1)
    support[19] = 0
    evidence = np.where(support >= 0, 9.0, 0.0).astype(np.float32)
    _, order, _ = graph_quota.keep(weight, np.arange(20, dtype=np.int32), evidence, support, 1)
    assert order.tolist()[:3] == [0, 19, 1]


@pytest.mark.parametrize(
    ("evidence", "support", "quota"),
    [
        ({15: 5.0}, {15: 2}, 0),
        ({15: graph_quota.STRONG - 0.1}, {15: 2}, 3),
        ({15: 5.0}, {15: 12}, 3),
        ({15: 5.0}, {}, 3),
        ({5: 5.0}, {5: 2}, 3),
    ],
    ids=["no-quota", "weak", "support-is-buried", "no-support", "found-anyway"],
)
def test_nothing_else_moves(
    evidence: dict[int, float], support: dict[int, int], quota: int
) -> None:
    _, order, lifted = lift(evidence, support, quota)
    assert order == list(range(20))
    assert lifted == []
