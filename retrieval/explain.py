"""Why a memory stands where it does: the scores and the short account that go with every result."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retrieval.arms.adjacency import PathLink
from retrieval.ranking.weights import Ranked
from retrieval.shortlist import Shortlist
from retrieval.types import Arm

_ARMS = tuple(arm.wire for arm in Arm)
_LINKS = tuple(link.wire for link in PathLink)


def of(
    shortlist: Shortlist, ranked: Ranked, positions: NDArray[np.int64]
) -> Iterator[tuple[dict[str, float | None], dict[str, Any]]]:
    """(scores, explanation) of the candidates at these positions, in their order.

    The explanation holds, per arm that surfaced the memory, [rank, score]; its place and score in
    the fusion; who ordered the list and the base score; the signals of recency, time and proof;
    the path by which the graph arm came to it, if it did; and whether that lifted it.
    """
    found, paths = shortlist.found, shortlist.paths
    raw = found.scores[positions]
    ranks, scores = found.ranks[positions].tolist(), np.round(raw.astype(np.float64), 6).tolist()
    semantic, keyword = raw[:, Arm.SEMANTIC].tolist(), raw[:, Arm.BM25].tolist()
    final, base = ranked.weight[positions].tolist(), ranked.base[positions].tolist()
    rrf = np.round(found.rrf[positions], 6).tolist()
    shown_base = np.round(ranked.base[positions], 6).tolist()
    signals = np.round(
        np.stack([ranked.recency, ranked.proximity, ranked.proof], axis=1)[positions], 4
    ).tolist()
    hop = paths.hop[positions].tolist()
    parents = paths.parent[positions].tobytes().hex()
    reranked = ranked.raw is not None
    for i, position in enumerate(positions.tolist()):
        recency, temporal, proof = signals[i]
        why: dict[str, Any] = {
            "arms": {
                name: [rank, score]
                for name, rank, score in zip(_ARMS, ranks[i], scores[i], strict=True)
                if rank
            },
            "fused_rank": position + 1,
            "rrf": rrf[i],
            "ranked_by": ranked.member,
            "base": shown_base[i],
            "recency": recency,
            "temporal": temporal,
            "proof": proof,
        }
        if hop[i]:
            why["path"] = {
                "from": _uuid(parents[32 * i : 32 * i + 32]),
                "link": _LINKS[paths.link[position]],
                "hop": hop[i],
            }
            if paths.via[position] is not None:
                why["path"]["via"] = paths.via[position]
        if ranked.lifted[position]:
            why["lifted"] = True
        yield (
            {
                "final": final[i],
                "reranker": base[i] if reranked else None,
                "semantic": _or_none(semantic[i]),
                "keyword": _or_none(keyword[i]),
            },
            why,
        )


def _uuid(digits: str) -> str:
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _or_none(score: float) -> float | None:
    return None if score != score else score  # NaN: the arm did not surface it
