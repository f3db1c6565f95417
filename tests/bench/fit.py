"""Fits the model that makes the fused score: `python -m tests.bench.fit --write`.

Asks every question of every set through the real engine (kept in `--cache`: minutes once), fits
weights to the sets that may be used for it, and judges them by sets that a fit had not seen: each
row of the first table is of a model fitted without that set and its relatives. The second table
leaves out half of the questions of every set instead. Beside it stand the arms, reciprocal ranks
and the hand-written formula (hand_written.py) that the fit is held to.

Sets for evaluation only (non-commercial, or without a stated licence) are never fitted to.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path

import numpy as np

from retrieval.ranking import scoring_model, signals
from retrieval.ranking.score_fusion import by_hand, lifted
from retrieval.ranking.scoring_model import GATES, ScoringModel
from retrieval.types import Doubles, Ints
from tests.bench import hand_written, listwise, metrics, replay, report, sets
from tests.bench.replay import Asked

FITTED = {
    "longmemeval": "MIT",
    "musique": "CC BY 4.0",
    "hotpotqa": "CC BY-SA 4.0",
    "qmsum": "MIT",
    "madial-en": "MIT",
    "madial-zh": "MIT",
    "morehop": "Apache-2.0",
    "entailment": "Apache-2.0",
    "timeqa": "BSD-3-Clause",
    "chronoqa": "CC BY 4.0",
    "xquad-en": "CC BY-SA 4.0",
    "xquad": "CC BY-SA 4.0",
    "jsquad": "CC BY-SA 4.0",
}
"""The sets that weights are fitted to, and their licences. LoCoMo, SciFact (non-commercial),
Cranfield and CISI (none stated) are only measured."""

RELATIVES = ({"madial-en", "madial-zh"}, {"xquad-en", "xquad", "jsquad"})
"""Sets of one source or one make: none is seen by a fit that is judged by another."""

MEASURES = ("nDCG@10", "R@10", "R@5", "MRR")
MOST, SEED = 90, 19
"""So many questions of a set are fitted to at most, drawn with a seed; all are measured."""

HAND = {
    "meaning": 1.5, "words": 6.0, "covered": 6.0, "document_meaning": 0.5, "document_words": 2.0,
    "beside_meaning": 0.5, "beside_words": 2.0, "further_meaning": 0.4, "further_words": 1.6,
    "named": 0.7, "length": 1.3, "asks": 0.5, "timely": 1.0,
}  # fmt: skip
"""The hand-written formula in these signals."""

START, EVIDENCE = {**HAND, "length": 0.65}, 1.8
"""What a fit starts from and is held to: the same, but for half of what it gives to length, which
every set of short memories asks for and none misses, and more for links, as sets of two hops ask
for while the smooth loss hardly sees a place gained behind another."""

Order = Callable[[str, Asked], Ints]


def score(model: ScoringModel, one: Asked) -> Doubles:
    """The score of a question's candidates, as a recall computes it."""
    own = model.parts(one.values.astype(np.float64), one.context).sum(axis=1) + by_hand(one.pool)
    handed = model.worth(one.context) * one.pool.evidence.astype(np.float64)
    return lifted(own, handed, one.support.astype(np.intp), model.behind)


def trained(asked: Mapping[str, Sequence[Asked]], names: Iterable[str]) -> ScoringModel:
    """The model fitted to MOST of the questions of each of these sets."""
    batches = [
        listwise.batch(sampled(asked[name]), lambda one: hand_written.scores(one.pool))
        for name in names
    ]
    return listwise.fit(batches, listwise.hand_prior(START, EVIDENCE))


def left_out(asked: Mapping[str, Sequence[Asked]]) -> dict[str, ScoringModel]:
    """set -> the model that was fitted without it and its relatives."""
    made: dict[tuple[str, ...], ScoringModel] = {}
    found = {}
    for name in asked:
        kin = next((group for group in RELATIVES if name in group), {name})
        names = tuple(other for other in FITTED if other in asked and other not in kin)
        if names not in made:
            made[names] = trained(asked, names)
        found[name] = made[names]
    return found


def halves(asked: Mapping[str, Sequence[Asked]]) -> list[dict[str, ScoringModel]]:
    """Two models, each fitted to one half of the questions of every set; the other half is what
    it is judged by. Halves are runs of questions, so that what belongs together stays together."""
    models = []
    for half in (0, 1):
        part = {
            name: [one for i, one in enumerate(rows) if 2 * i // len(rows) == half]
            for name, rows in asked.items()
        }
        model = trained(part, [name for name in FITTED if name in asked])
        models.append(dict.fromkeys(asked, model))
    return models


def measured(one: Asked, order: Ints) -> Doubles:
    """MEASURES of one ranking."""
    gain = one.gain[order]
    if one.document is not None:
        _, first = np.unique(one.document[order], return_index=True)
        gain = gain[np.sort(first)]
    found = np.zeros((1, 50))
    found[0, : min(50, len(gain))] = gain[:50]
    ideal = np.array([one.gold])
    return np.array(
        [
            metrics.ndcg(found, ideal, 10)[0],
            metrics.recall(found, ideal, 10)[0],
            metrics.recall(found, ideal, 5)[0],
            metrics.reciprocal_rank(found, ideal)[0],
        ]
    )


def table(
    asked: Mapping[str, Sequence[Asked]], orders: Mapping[str, Order]
) -> dict[str, dict[str, Doubles]]:
    """set -> column -> MEASURES, means over its questions."""
    return {
        name: {
            column: np.mean([measured(one, order(name, one)) for one in rows], axis=0)
            for column, order in orders.items()
        }
        for name, rows in asked.items()
    }


def shown(title: str, found: Mapping[str, Mapping[str, Doubles]]) -> None:
    columns = list(next(iter(found.values())))
    for at, measure in enumerate(MEASURES):
        rows = {
            name: {column: float(row[column][at]) for column in columns}
            for name, row in found.items()
        }
        rows["mean"] = {c: float(np.mean([row[c] for row in rows.values()])) for c in columns}
        report.table(f"{title}: {measure}", columns, rows)


def judged(asked: Mapping[str, Sequence[Asked]]) -> dict[str, dict[str, Doubles]]:
    """Every way to order a question's candidates, by sets that its fit has not seen, and (`half`)
    by the other half of sets that it has."""
    unseen, parted = left_out(asked), halves(asked)
    place = {id(one): 2 * i // len(rows) for rows in asked.values() for i, one in enumerate(rows)}
    return table(
        asked,
        {
            "semantic": lambda _, one: one.arm(0),
            "bm25": lambda _, one: one.arm(1),
            "graph": lambda _, one: one.arm(2),
            "rrf": lambda _, one: one.reciprocal(),
            "by hand": lambda _, one: one.served(hand_written.scores(one.pool)),
            "fitted": lambda name, one: one.served(score(unseen[name], one)),
            "half fitted": lambda name, one: one.served(
                score(parted[1 - place[id(one)]][name], one)
            ),
        },
    )


def written(model: ScoringModel, found: Mapping[str, Mapping[str, Doubles]]) -> str:
    """The file of a model."""
    means = {
        column: [
            round(float(np.mean([row[column][at] for row in found.values()])), 4) for at in (0, 1)
        ]
        for column in next(iter(found.values()), {})
    }
    origin = {
        "made_by": "python -m tests.bench.fit --write",
        "fitted_on": FITTED,
        "questions_of_a_set_at_most": MOST,
        "nDCG@10_and_R@10_over_sets": means,
    }
    data = {
        "origin": origin,
        "signals": signals.SIGNALS,
        "context": signals.CONTEXT,
        "weights": np.round(model.weights, 4).tolist(),
        "evidence": round(model.evidence, 4),
        "behind": model.behind,
        "start": round(model.start, 4),
        "slopes": dict(zip(GATES, np.round(model.slopes, 4).tolist(), strict=True)),
    }
    text = json.dumps(data, indent=1)
    return _one_line_lists(text)


def _one_line_lists(text: str) -> str:
    """Lists of numbers on one line each."""
    return (
        re.sub(r"\[\s+([-\d.,\s]+?)\s+\]", lambda m: "[" + " ".join(m[1].split()) + "]", text)
        + "\n"
    )


def sampled(rows: Sequence[Asked]) -> list[Asked]:
    """At most MOST of the questions, in their order."""
    if len(rows) <= MOST:
        return list(rows)
    chosen = np.random.default_rng(SEED).choice(len(rows), MOST, replace=False)
    return [rows[i] for i in np.sort(chosen)]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench fit", description=__doc__.split("\n")[0])
    parser.add_argument("--set", action="append", choices=list(sets.LOADERS), dest="names")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "fourfold-fit")
    parser.add_argument("--write", action="store_true", help="write the model that is served")
    parser.add_argument("--only-fit", action="store_true", help="no tables")
    given = parser.parse_args(arguments)
    names = given.names or list(sets.LOADERS)
    asked = replay.questions(names, given.cache)
    found = {} if given.only_fit else judged(asked)
    if found:
        shown("a set that the fit has not seen", found)
    if given.write:
        model = trained(asked, [name for name in FITTED if name in asked])
        path = Path(str(resources.files("retrieval.ranking") / scoring_model.FILE))
        path.write_text(written(model, found))


if __name__ == "__main__":
    main()
