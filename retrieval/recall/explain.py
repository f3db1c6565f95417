"""Why a memory stands where it does: the scores and the short account that go with every result."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retrieval.arms.adjacency import PathLink
from retrieval.ranking.floors import ARM_DIGITS, FINAL_DIGITS
from retrieval.ranking.score_fusion import PARTS
from retrieval.ranking.shortlist import Shortlist
from retrieval.ranking.weights import Ranked
from retrieval.types import Arm, Doubles, Floats, Ints

_ARMS = tuple(arm.wire for arm in Arm)
_LINKS = tuple(link.wire for link in PathLink)


def scores(
    shortlist: Shortlist, ranked: Ranked, positions: NDArray[np.int64]
) -> Iterator[dict[str, float | None]]:
    """The scores of the candidates at these positions, in their order: the final one and, where
    there are such, that of the reranker and those of the semantic and keyword arms. Rounded to
    what they can tell: digits are a sixth of an answer."""
    raw = np.round(shortlist.found.scores[positions].astype(np.float64), ARM_DIGITS)
    base = np.round(ranked.base[positions], FINAL_DIGITS).tolist()
    columns = zip(
        np.round(ranked.weight[positions], FINAL_DIGITS).tolist(),
        base if ranked.raw is not None else [None] * len(positions),
        raw[:, Arm.SEMANTIC].tolist(),
        raw[:, Arm.BM25].tolist(),
        strict=True,
    )
    for final, reranker, similarity, words in columns:
        yield {
            "final": final,
            "reranker": reranker,
            "semantic": None if similarity != similarity else similarity,  # NaN: not in that arm
            "keyword": None if words != words else words,
        }


def accounts(
    shortlist: Shortlist, ranked: Ranked, positions: NDArray[np.int64]
) -> Iterator[dict[str, Any]]:
    """The explanations of the candidates at these positions, in their order.

    Each holds, per arm that surfaced the memory, [rank, score]; its place and score in the fusion;
    who ordered the list and the base score; the signals of recency, time and proof; the path by
    which the graph arm came to it, if it did; and whether something else than its score lifted it.
    `contributions` are the parts of the fused score: they add up to its logarithm, `fused_log`.
    """
    found, paths = shortlist.found, shortlist.paths
    columns = zip(
        positions.tolist(),
        _by_arm(found.ranks[positions], found.scores[positions]),
        np.round(found.rrf[positions], 6).tolist(),
        np.round(ranked.base[positions], 6).tolist(),
        np.round(ranked.recency[positions], 4).tolist(),
        np.round(ranked.proximity[positions], 4).tolist(),
        np.round(ranked.proof[positions], 4).tolist(),
        paths.hop[positions].tolist(),
        ranked.lifted[positions].tolist(),
        strict=True,
    )
    for position, arms, rrf, base, recency, temporal, proof, hop, lifted in columns:
        why: dict[str, Any] = {
            "arms": arms,
            "fused_rank": position + 1,
            "rrf": rrf,
            "ranked_by": ranked.member,
            "base": base,
            "recency": recency,
            "temporal": temporal,
            "proof": proof,
        }
        if shortlist.parts is not None:
            why["fused_log"], why["contributions"] = _contributions(shortlist.parts[position])
        if hop:
            why["path"] = _path(shortlist, position, hop)
        if lifted:
            why["lifted"] = True
        if shortlist.outside is not None and shortlist.outside[position]:
            why["outside_its_time"] = True
        yield why


def _by_arm(ranks: Ints, scores: Floats) -> list[dict[str, list[float]]]:
    """Per row {arm: [rank, score]} of the arms that have it."""
    found: list[dict[str, list[float]]] = [{} for _ in range(len(ranks))]
    row, arm = np.nonzero(ranks)
    values = np.round(scores[row, arm].astype(np.float64), 6).tolist()
    for i, a, rank, score in zip(
        row.tolist(), arm.tolist(), ranks[row, arm].tolist(), values, strict=True
    ):
        found[i][_ARMS[a]] = [rank, score]
    return found


def _contributions(parts: Doubles) -> tuple[float, dict[str, float]]:
    """(their sum, {part: value}), the sum that of the values as they are shown."""
    values = np.round(parts, 6).tolist()
    return round(sum(values), 6), dict(zip(PARTS, values, strict=True))


def _path(shortlist: Shortlist, position: int, hop: int) -> dict[str, Any]:
    paths = shortlist.paths
    path = {
        "from": _uuid(paths.parent[position].tobytes().hex()),
        "link": _LINKS[paths.link[position]],
        "hop": hop,
    }
    if paths.via[position] is not None:
        path["via"] = paths.via[position]
    return path


def _uuid(digits: str) -> str:
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
