"""How good the rankings are: `python -m tests.bench.quality --set locomo --json quality.json`.

Imports each set into a fresh server of its own (in this process), asks every question with all
arms, without the graph arm and without the temporal one, and reports per question category
recall@5/10/20/50, all@5 (every relevant memory within five), MRR and nDCG@10 of

    semantic, bm25, graph, temporal    each arm's own list
    words + vectors                    reciprocal rank fusion of semantic and bm25: a baseline
    rrf                                reciprocal rank fusion of all four
    final                              what the server answers
    final, no graph / no temporal      what it answers with that arm off

An arm's list is read after the cut to the reranker's cap (300 of the fused candidates).

`--all` prints one table over all sets for nDCG@10, R@5, R@10 and MRR: the final list with its 95 %
interval (bootstrap over questions), each arm, the fusions by rank, and, with `--against` the file
that a former commit's run wrote, what that one answered. `--asked` reads the questions that
`fit` has kept in its folder, with their candidates from the real engine, and ranks them as a recall
would: seconds instead of an hour, without the arms left out.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np

from retrieval.ranking import fusion, scoring_model
from retrieval.ranking.shortlist import Shortlist
from retrieval.recall.engine import RecallEngine, Retriever
from retrieval.settings import RecallSettings
from retrieval.types import Arm, Budget, Doubles, Include, Ints, RecallQuery
from tests.bench import fit, metrics, replay, report, sets
from tests.support.system import System, system

DEPTH = 50
OPTIONAL = ("graph", "temporal")
"""The arms whose worth is measured by leaving them out."""
BASELINES = ("semantic", "bm25", "words + vectors")
ALONE = (*BASELINES, "graph", "temporal", "rrf", "final")
LISTS = (*ALONE, *(f"final, no {arm}" for arm in OPTIONAL))
RECIPROCAL = {"words + vectors": [Arm.SEMANTIC, Arm.BM25], "rrf": list(Arm)}
"""Arms whose ranks are fused."""
MEASURES = ("R@5", "R@10", "R@20", "R@50", "all@5", "MRR", "nDCG@10")
PEER = {
    "locomo": {
        "peer, four arms + RRF": {"R@5": 0.303, "R@10": 0.482, "R@50": 0.746, "MRR": 0.188},
        "peer, graph arm off": {"R@5": 0.529, "R@10": 0.636, "R@50": 0.833, "MRR": 0.437},
    },
}
"""Figures of Hindsight 1.1.0 on the same part of LoCoMo with the same embedding model and no
cross-encoder, measured once on two cores."""

GOALS: Mapping[str, Mapping[str, tuple[str, float]]] = {
    "locomo": {"R@10": ("final", 0.80), "R@5": ("final", 0.70)},
    "scifact": {"nDCG@10": ("bm25", 0.68)},
    "cranfield": {"nDCG@10": ("bm25", 0.349)},
    "cisi": {"nDCG@10": ("bm25", 0.312)},
}
"""What a list has to reach, by measure."""
NOISE_QUESTIONS = 0.5
"""What fewer questions than this make between two lists is no difference."""
MARGINS: Mapping[str, Mapping[str, float]] = {
    "musique": {"R@5": 0.02, "all@5": 0.10},
    "hotpotqa": {"R@5": 0.05, "all@5": 0.10},
}
"""By how much the final list has to be better than the best baseline, by measure."""


COMPARED = ("nDCG@10", "R@5", "R@10", "MRR")
OTHERS = ("semantic", "bm25", "graph", "temporal", "words + vectors", "rrf")
RESAMPLES, SEED = 2_000, 19


class Recorder:
    """Passes a retriever's shortlist on and keeps the last one."""

    def __init__(self, inner: Retriever) -> None:
        self._inner = inner
        self.last: Shortlist | None = None

    async def look(self, name: str, arguments: Mapping[str, Any]) -> Any:
        return await self._inner.look(name, arguments)

    async def retrieve(self, query: RecallQuery, *, texts: bool) -> Shortlist:
        self.last = await self._inner.retrieve(query, texts=texts)
        return self.last


@dataclass(slots=True)
class Answers:
    """The rankings of a bank's questions: list name -> one list of keys per question."""

    questions: Sequence[sets.Question]
    rankings: dict[str, list[list[str]]] = field(
        default_factory=lambda: {name: [] for name in LISTS}
    )
    seconds: list[float] = field(default_factory=list)


async def ask(
    run: System, bank: sets.Bank, ids: Mapping[str, str], settings: RecallSettings, budget: Budget,
    reranker: str, most: int,
) -> Answers:  # fmt: skip
    """Asks a bank's questions (`most` of them, evenly spread; 0 = all)."""
    keys = {memory_id: key for key, memory_id in ids.items()}
    documents = {m["key"]: str(m.get("document_id")) for m in bank.memories}
    recorder = Recorder(run.retriever(settings))
    whole = run.engine(settings, reranker, retriever=recorder)
    without = {
        arm: run.engine(settings.with_overrides({f"enable_{arm}_retrieval": False}), reranker)
        for arm in OPTIONAL
    }
    step = max(1, len(bank.questions) // most) if most else 1
    answers = Answers(bank.questions[::step])
    for question in answers.questions:
        query = RecallQuery(
            tenant=run.tenant,
            bank_id=bank.name,
            text=question.text,
            now=question.now or datetime.now(UTC),
            budget=budget,
            max_tokens=10**6,
            include=Include(entities=None),
            limit=None if question.by_document else DEPTH,
        )
        begin = time.perf_counter()
        final = await _ids(whole, query)
        answers.seconds.append(time.perf_counter() - begin)
        assert recorder.last is not None
        found = {**arm_lists(recorder.last), "final": final}
        for arm, engine in without.items():
            found[f"final, no {arm}"] = await _ids(engine, query)
        for name, ranked in found.items():
            ranking = [keys[i] for i in ranked]
            if question.by_document:
                ranking = list(dict.fromkeys(documents[key] for key in ranking))
            answers.rankings[name].append(ranking)
    return answers


async def _ids(engine: RecallEngine, query: RecallQuery) -> list[str]:
    result = await engine.recall(query)
    if result.degraded:
        raise RuntimeError(f"recall was degraded: {result.degraded}")
    return [str(row["id"]) for row in result.body["results"]]


def arm_lists(shortlist: Shortlist) -> dict[str, list[str]]:
    """The ids that each arm listed, and those of the fused list, best first."""
    ids = [str(UUID(bytes=row.tobytes())) for row in shortlist.facts.ids]
    found = {}
    for arm in Arm:
        ranks = shortlist.found.ranks[:, arm]
        listed = np.flatnonzero(ranks > 0)
        found[arm.wire] = [ids[i] for i in listed[np.argsort(ranks[listed])]]
    for name, arms in RECIPROCAL.items():
        score = fusion.rank_scores(shortlist.found.ranks[:, arms])
        order = np.argsort(-score, kind="stable")
        found[name] = [ids[i] for i in order if score[i] > 0]
    return found


def kept(rows: Sequence[replay.Asked]) -> Answers:
    """The rankings of kept questions, by the model that is served. Keys are those of candidates, or
    of their documents where answers are documents."""
    model = scoring_model.packaged()
    questions: list[sets.Question] = []
    answers = Answers(questions, {name: [] for name in ALONE})
    for one in rows:
        orders: dict[str, Ints] = {arm.wire: one.arm(arm) for arm in Arm}
        for name, arms in RECIPROCAL.items():
            score = fusion.rank_scores(one.pool.ranks[:, arms])
            order = np.argsort(-score, kind="stable").astype(np.int32)
            orders[name] = order[score[order] > 0]
        orders["final"] = one.served(fit.score(model, one))
        keys = np.arange(len(one.gain)) if one.document is None else one.document
        gold = {str(keys[i]): float(one.gain[i]) for i in np.flatnonzero(one.gain > 0)}
        unfound = list(one.gold)
        for gain in gold.values():
            unfound.remove(gain)
        gold |= {f"unfound {i}": gain for i, gain in enumerate(unfound)}
        questions.append(sets.Question("", gold, "all", by_document=one.document is not None))
        for name, order in orders.items():
            ranked = dict.fromkeys(keys[order].astype(str).tolist())
            answers.rankings[name].append(list(ranked))
    return answers


def of_kept(names: Sequence[str], folder: Path) -> list[dict[str, Any]]:
    """Reports of kept questions, as far as `print_comparison` reads them."""
    reports = []
    for name in names:
        answers = kept(replay.questions([name], folder)[name])
        reports.append(
            {
                "set": name,
                "questions": len(answers.questions),
                "measures": measured([answers]),
                "intervals": intervals([answers]),
            }
        )
    return reports


def verdicts(
    name: str, lists: Mapping[str, Mapping[str, float]], questions: int
) -> list[dict[str, Any]]:
    """What was aimed at and what was reached, from a set's measures over all its questions."""
    noise = NOISE_QUESTIONS / questions
    aims = [
        (f"{measure} of {ranked}", lists[ranked][measure], goal)
        for measure, (ranked, goal) in GOALS.get(name, {}).items()
    ]
    for measure, margin in MARGINS.get(name, {}).items():
        best = max(lists[baseline][measure] for baseline in BASELINES)
        aims.append(
            (
                f"{measure} of final, best baseline {best:.3f}",
                lists["final"][measure],
                best + margin,
            )
        )
    for arm in OPTIONAL:
        for measure in ("R@5", "R@10", "MRR", "nDCG@10"):
            off = lists[f"final, no {arm}"][measure]
            aims.append((f"{measure} of final against no {arm}", lists["final"][measure], off))
    return [
        {"what": what, "reached": reached, "goal": goal, "met": reached >= goal - noise}
        for what, reached, goal in aims
    ]


def measured(answers: Sequence[Answers]) -> dict[str, dict[str, dict[str, float]]]:
    """category -> list -> measure -> mean over its questions; "all" comes first."""
    questions = [q for part in answers for q in part.questions]
    categories = np.array([q.category for q in questions])
    table: dict[str, dict[str, dict[str, float]]] = {}
    for name in answers[0].rankings:
        rankings = [ranking for part in answers for ranking in part.rankings[name]]
        values = _measures(*metrics.gains(rankings, [q.gold for q in questions], DEPTH))
        for category in ("all", *sorted(set(categories.tolist()))):
            chosen = np.ones(len(questions), bool) if category == "all" else categories == category
            table.setdefault(category, {})[name] = {
                measure: float(np.nanmean(column[chosen])) for measure, column in values.items()
            }
    return table


def intervals(answers: Sequence[Answers]) -> dict[str, tuple[float, float]]:
    """measure -> where the mean of the final list lies in 95 % of resampled sets of questions."""
    rankings = [ranking for part in answers for ranking in part.rankings["final"]]
    gold = [question.gold for part in answers for question in part.questions]
    values = _measures(*metrics.gains(rankings, gold, DEPTH))
    drawn = np.random.default_rng(SEED).integers(0, len(gold), (RESAMPLES, len(gold)))
    found = {}
    for measure in COMPARED:
        low, high = np.percentile(np.nanmean(values[measure][drawn], axis=1), [2.5, 97.5])
        found[measure] = (float(low), float(high))
    return found


def _measures(found: Doubles, ideal: Doubles) -> dict[str, Doubles]:
    return {
        **{f"R@{k}": metrics.recall(found, ideal, k) for k in (5, 10, 20, 50)},
        "all@5": metrics.complete(found, ideal, 5),
        "MRR": metrics.reciprocal_rank(found, ideal),
        "nDCG@10": metrics.ndcg(found, ideal, 10),
    }


async def measure(
    run: System,
    data: sets.EvaluationSet,
    *,
    reranker: str = "fused",
    budget: Budget = Budget.MID,
    settings: RecallSettings | None = None,
    most: int = 0,
) -> dict[str, Any]:
    """The report of one set: imported into `run`, asked, measured."""
    # The collections hold queries longer than a server would take.
    settings = settings or RecallSettings(recall_max_query_tokens=0)
    begin, spent = time.perf_counter(), time.process_time()
    ids = {bank.name: await run.import_bank(bank.name, bank.memories) for bank in data.banks}
    wall, cpu = time.perf_counter() - begin, time.process_time() - spent
    answers = [
        await ask(run, bank, ids[bank.name], settings, budget, reranker, most)
        for bank in data.banks
    ]
    seconds = np.array([s for part in answers for s in part.seconds])
    measures = measured(answers)
    return {
        "set": data.name,
        "reranker": reranker,
        "budget": budget.value,
        "banks": len(data.banks),
        "memories": data.memories,
        "questions": len(seconds),
        "import_per_s": data.memories / wall,
        "import_cpu_ms_each": 1000 * cpu / data.memories,
        "recall_p50_ms": 1000 * float(np.median(seconds)),
        "measures": measures,
        "intervals": intervals(answers),
        "verdicts": verdicts(data.name, measures["all"], len(seconds)),
        "reference": PEER.get(data.name, {}),
    }


async def bench(
    names: Sequence[str], *, reranker: str, budget: Budget, most: int, brief: bool = False
) -> list[dict[str, Any]]:
    reports = []
    async with system() as run:
        for name in names:
            data = sets.load(name)
            reports.append(await measure(run, data, reranker=reranker, budget=budget, most=most))
            if not brief:
                print_report(reports[-1])
    return reports


def print_report(found: Mapping[str, Any]) -> None:
    print(
        f"\n{found['set']}: {found['memories']:,} memories in {found['banks']} bank(s), "
        f"{found['questions']:,} questions, budget {found['budget']}, ranked by "
        f"{found['reranker']}\nimport {found['import_per_s']:.0f} memories/s "
        f"({found['import_cpu_ms_each']:.1f} CPU-ms each, without Postgres), "
        f"recall p50 {found['recall_p50_ms']:.1f} ms in process"
    )
    for category, lists in found["measures"].items():
        rows = {**lists, **(found["reference"] if category == "all" else {})}
        report.table(f"{found['set']} / {category}", MEASURES, rows)
    for verdict in found["verdicts"]:
        word = "met" if verdict["met"] else "MISSED"
        print(f"{word:6} {verdict['what']}: {verdict['reached']:.3f}, goal {verdict['goal']:.3f}")


def comparison(
    reports: Sequence[Mapping[str, Any]], former: Sequence[Mapping[str, Any]], measure: str
) -> dict[str, dict[str, float]]:
    """set -> list -> the measure over all its questions; `former` holds the reports of another
    run."""
    before = {found["set"]: found["measures"]["all"]["final"][measure] for found in former}
    rows = {}
    for found in reports:
        lists = found["measures"]["all"]
        low, high = found["intervals"][measure]
        rows[found["set"]] = {
            "final": lists["final"][measure],
            "from": low,
            "to": high,
            **{name: lists[name][measure] for name in OTHERS},
        }
        if found["set"] in before:
            rows[found["set"]]["former"] = before[found["set"]]
    return rows


def print_comparison(
    reports: Sequence[Mapping[str, Any]], former: Sequence[Mapping[str, Any]]
) -> None:
    for measure in COMPARED:
        rows = comparison(reports, former, measure)
        report.table(measure, ("final", "from", "to", *OTHERS, "former"), rows)
        below = [
            f"{name} ({row['final']:.3f} below {max(row[arm] for arm in OTHERS[:4]):.3f})"
            for name, row in rows.items()
            if row["final"] < max(row[arm] for arm in OTHERS[:4])
        ]
        print(f"below the best arm in {measure}: {', '.join(below) or 'none'}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench quality", description=__doc__.split("\n")[0])
    parser.add_argument("--set", action="append", choices=list(sets.LOADERS), dest="names")
    parser.add_argument("--reranker", default="fused", choices=("fused", "rrf"))
    parser.add_argument("--budget", default="mid", choices=[b.value for b in Budget])
    parser.add_argument("--questions", type=int, default=0, help="about so many per bank; 0 = all")
    parser.add_argument("--all", action="store_true", help="one table over all sets")
    parser.add_argument("--asked", type=Path, help="rank what `fit` kept in this folder")
    parser.add_argument("--against", type=Path, help="the --json file of a former commit")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    names = given.names or list(sets.LOADERS)
    if given.asked:
        reports = of_kept(names, given.asked)
    else:
        reports = asyncio.run(
            bench(
                names,
                reranker=given.reranker,
                budget=Budget(given.budget),
                most=given.questions,
                brief=given.all,
            )
        )
    if given.all or given.asked:
        former = json.loads(given.against.read_text())["reports"] if given.against else []
        print_comparison(reports, former)
    if given.json:
        given.json.write_text(json.dumps({**report.machine(), "reports": reports}, indent=1))


if __name__ == "__main__":
    main()
