"""How many dated questions are resolved rightly, against dateparser in the same run; the cost.

Run: python -m tests.bench.timex [--shared PATH] [--baseline N]

Cases: `data/timex` of the shared folder (Microsoft Recognizers-Text, MIT): sentences in fifteen
languages with the days that are meant. A strict case is right where both its days are; of the cases
that the source resolves to nothing, right is no window.

The cases are also scored in five folds by kind of phrase, whatever the language: all cases of a
kind lie in one fold, so that a fold tells how well the rules do on kinds that the others do not
show. Beside it stands the share that is right by rules that are right in another fold too: what
would be left, had nobody seen the fold's kinds.

Cost is CPU time a question, of questions without a date, from a few words to 500 tokens. Prints
tables, then one line of JSON.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import statistics
import sys
import time
import zlib
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from retrieval.timex import Settings, TimeExpression, parse
from retrieval.timex.engine.grammar import KINDS, Context
from retrieval.timex.engine.lexicon import lexicon
from retrieval.timex.engine.text import fold

Answer = tuple[str | None, str | None]
_NEVER = "0001-01-01"  # how the data marks a day that no calendar has


@dataclass(frozen=True, slots=True)
class Case:
    language: str
    query: str
    text: str
    anchor: datetime
    kind: str
    starts: tuple[str | None, ...]
    ends: tuple[str | None, ...]
    strict: bool
    verified: bool

    @property
    def group(self) -> str:
        if self.kind == "none":
            return "none"
        return "strict" if self.strict else "open"

    def right(self, answer: Answer | None) -> bool:
        if self.kind == "none" or self.starts[0] == _NEVER:
            return answer is None
        return answer is not None and answer[0] in self.starts and answer[1] in self.ends


def shared_folder(given: str | None = None) -> Path | None:
    """The folder of shared data: the given one, FOURFOLD_SHARED, or ../shared; None if absent."""
    root = Path(__file__).resolve().parents[2]
    for place in (given, os.environ.get("FOURFOLD_SHARED"), str(root.parent / "shared")):
        if place and (Path(place) / "data" / "timex" / "timex.jsonl.gz").is_file():
            return Path(place)
    return None


def load(shared: Path) -> list[Case]:
    with gzip.open(shared / "data" / "timex" / "timex.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [_case(json.loads(line)) for line in lines]


def _case(row: dict[str, Any]) -> Case:
    loose = "start_alt" in row or "end_alt" in row
    return Case(
        row["lang"],
        row["query"],
        row["text"] or row["query"],
        datetime.fromisoformat(row["reference"]) if row["reference"] else datetime(2018, 1, 1),
        row["kind"],
        (row["start"], *(row.get("start_alt") or ())),
        (row["end"], *(row.get("end_alt") or ())),
        row["kind"] != "none" and not loose and not row.get("unverified"),
        not row.get("unverified"),
    )


def found_in(case: Case) -> TimeExpression | None:
    region = "GB" if case.language == "en-GB" else None
    return parse(case.query, case.anchor, Settings(region=region))


def ours(case: Case) -> Answer | None:
    return answer(case, found_in(case))


def answer(case: Case, found: TimeExpression | None) -> Answer | None:
    """First and last day of what was found, in the anchor's offset."""
    if found is None:
        return None
    zone = case.anchor.tzinfo or UTC
    return tuple(  # type: ignore[return-value]
        None if bound is None else bound.astimezone(zone).date().isoformat()
        for bound in (found.window.start, found.window.end)
    )


def baseline(case: Case) -> Answer | None:
    """dateparser's search, told the language and to prefer the past: its longest find, one day."""
    from dateparser.search import search_dates

    anchor = case.anchor.replace(tzinfo=None)
    try:
        found = search_dates(
            case.query,
            languages=[case.language[:2]],
            settings={"RELATIVE_BASE": anchor, "PREFER_DATES_FROM": "past"},
        )
    except Exception:
        return None
    if not found:
        return None
    day = max(found, key=lambda pair: len(pair[0]))[1].date().isoformat()
    return day, day


def accuracy(cases: list[Case], sampled: int) -> list[dict[str, Any]]:
    """One row per language and group: right and all of ours, and of the baseline on a sample."""
    groups: dict[tuple[str, str], list[Case]] = defaultdict(list)
    for case in cases:
        groups[case.language, case.group].append(case)
    rows: list[dict[str, Any]] = []
    rng = random.Random(0)
    for (language, group), members in sorted(groups.items()):
        right = sum(case.right(ours(case)) for case in members)
        sample = rng.sample(members, min(sampled, len(members))) if group != "open" else []
        base = sum(case.right(baseline(case)) for case in sample)
        both = sum(case.right(ours(case)) for case in sample)
        rows.append(
            {
                "language": language,
                "group": group,
                "cases": len(members),
                "right": right,
                "share": round(right / len(members), 4),
                "sampled": len(sample),
                "sampled_right": both,
                "baseline_right": base,
            }
        )
    return rows


FOLDS = 5


def kind_of_phrase(case: Case) -> str:
    """What a phrase is made of, in any language: "PREV UWEEK", "NUM MON YEAR"; of words that no
    list has, only that they are there."""
    words = lexicon(case.language[:2])
    tokens = words.tokens(
        Context(datetime(2024, 1, 1), Settings(), words.language), fold(case.text)
    )
    names = {character: name for name, character in KINDS.items()}
    kinds = [names[token.kind] for token in tokens]
    return " ".join(
        kind for kind, before in zip(kinds, [None, *kinds], strict=False) if kind != before
    )


def by_kind(cases: list[Case]) -> list[dict[str, Any]]:
    """One row a fold: its kinds and cases (strict and none), how many are right, how many of those
    by a rule that is right in another fold too, and the share of each language."""
    members: list[list[tuple[Case, str]]] = [[] for _ in range(FOLDS)]
    for case in cases:
        if case.group != "open":
            kind = kind_of_phrase(case)
            members[zlib.crc32(kind.encode()) % FOLDS].append((case, kind))
    right: list[dict[str | None, int]] = []
    languages: list[dict[str, list[bool]]] = []
    for fold_members in members:
        rules: dict[str | None, int] = defaultdict(int)
        results: dict[str, list[bool]] = defaultdict(list)
        for case, _ in fold_members:
            found = found_in(case)
            good = case.right(answer(case, found))
            results[case.language].append(good)
            if good:
                rules[None if found is None else found.rule] += 1
        right.append(rules)
        languages.append(results)
    rows: list[dict[str, Any]] = []
    for number, fold_members in enumerate(members):
        known = {None}.union(*(rules for other, rules in enumerate(right) if other != number))
        count = len(fold_members)
        total = sum(right[number].values())
        shared = sum(n for rule, n in right[number].items() if rule in known)
        rows.append(
            {
                "fold": number + 1,
                "kinds": len({kind for _, kind in fold_members}),
                "cases": count,
                "right": total,
                "share": round(total / count, 4),
                "share_by_shared_rules": round(shared / count, 4),
                "languages": {
                    language: round(sum(results) / len(results), 4)
                    for language, results in sorted(languages[number].items())
                },
            }
        )
    return rows


_WORDS = {
    "en": "what is the name of project that we discussed with their team about migration service "
    "latency python deploy rollback cluster tokens memory retrieval ranking vector index schema "
    "storage bucket owner ticket review merge branch 42 8080 v1.2.3 node17",
    "de": "welche mannschaft hat die datenbank umgestellt und warum wurde der dienst nicht mit "
    "einem anderen speicher verbunden obwohl wir das vereinbart hatten",
    "ru": "какая команда перенесла базу данных и почему сервис не был связан с другим хранилищем",
    "hi": "किस टीम ने डेटाबेस बदला और सेवा को दूसरे भंडार से क्यों नहीं जोड़ा",
    "tr": "hangi ekip veritabanını taşıdı ve hizmet neden başka bir depoya bağlanmadı",
}
_UNSPACED = {
    "zh": "哪个团队迁移了数据库并且为什么服务没有连接到另外的存储我们讨论过配置",
    "ja": "どのチームがデータベースを移行しなぜサービスは別の保管庫に接続されなかったのですか",
    "ko": "어느 팀이 데이터베이스를 옮겼고 왜 서비스를 다른 저장소에 연결하지 않았나요",
}


def undated() -> list[str]:
    """Questions without a date, of 5 to 500 words, in eight languages; the same in every run."""
    rng = random.Random(0)
    texts: list[str] = []
    for words in _WORDS.values():
        pool = words.split()
        for size in (6, 12, 25, 50, 100, 200, 400, 500):
            texts.extend(" ".join(rng.choices(pool, k=size)) for _ in range(12))
    for text in _UNSPACED.values():
        for size in (10, 30, 100, 300, 700):
            texts.extend("".join(rng.choices(text, k=size)) for _ in range(12))
    return texts


def cost(call: Any, texts: list[str], repeats: int = 3) -> list[float]:
    """CPU milliseconds of each text, the least of some runs, sorted."""
    times: list[float] = []
    for text in texts:
        least = float("inf")
        for _ in range(repeats):
            start = time.process_time_ns()
            call(text)
            least = min(least, (time.process_time_ns() - start) / 1e6)
        times.append(least)
    return sorted(times)


def _quantile(times: list[float], share: float) -> float:
    return round(times[min(len(times) - 1, int(share * len(times)))], 4)


def measure_cost(baseline_texts: int) -> dict[str, float]:
    from dateparser.search import search_dates

    now = datetime(2025, 6, 18, 10, 30, tzinfo=UTC)
    texts = undated()
    parse("yesterday", now)
    parse("когда 昨天 कल 어제", now)
    times = cost(lambda text: parse(text, now), texts)
    rng = random.Random(1)
    short = rng.sample([t for t in texts if len(t) < 200], baseline_texts)
    search_dates("yesterday")
    theirs = cost(lambda text: search_dates(text), short, repeats=1)
    ours_short = cost(lambda text: parse(text, now), short)
    return {
        "texts": len(texts),
        "p50_ms": _quantile(times, 0.5),
        "p99_ms": _quantile(times, 0.99),
        "max_ms": round(times[-1], 4),
        "baseline_p50_ms": _quantile(theirs, 0.5),
        "ours_p50_ms_on_those": _quantile(ours_short, 0.5),
    }


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--shared", help="the folder that holds data/timex")
    options.add_argument("--baseline", type=int, default=20, help="cases a group for dateparser")
    chosen = options.parse_args()
    shared = shared_folder(chosen.shared)
    if shared is None:
        print("timex: no shared data folder; set FOURFOLD_SHARED", file=sys.stderr)
        return 2
    cases = load(shared)
    rows = accuracy(cases, chosen.baseline)
    print(f"{'language':9} {'group':7} {'right':>11} {'share':>7}   sample: ours / dateparser")
    for row in rows:
        sample = (
            f"{row['sampled_right']}/{row['sampled']}  {row['baseline_right']}/{row['sampled']}"
        )
        print(
            f"{row['language']:9} {row['group']:7} {row['right']:5}/{row['cases']:<5} "
            f"{row['share']:7.1%}   {sample if row['sampled'] else ''}"
        )
    none = [row for row in rows if row["group"] == "none"]
    total = {"none_share": round(sum(r["right"] for r in none) / sum(r["cases"] for r in none), 4)}
    for group in ("strict", "none"):
        some = [row for row in rows if row["group"] == group]
        sampled = sum(r["sampled"] for r in some)
        total[f"{group}_sample_ours"] = round(sum(r["sampled_right"] for r in some) / sampled, 4)
        total[f"{group}_sample_dateparser"] = round(
            sum(r["baseline_right"] for r in some) / sampled, 4
        )
    folds = by_kind(cases)
    print("fold (by kind of phrase)  kinds  cases   right  by rules that other folds need too")
    for row in folds:
        print(
            f"{row['fold']:<25} {row['kinds']:5} {row['cases']:6} {row['share']:7.1%}  "
            f"{row['share_by_shared_rules']:7.1%}"
        )
    shares = [row["share"] for row in folds]
    total["folds_mean"] = round(statistics.mean(shares), 4)
    total["folds_deviation"] = round(statistics.pstdev(shares), 4)
    print(f"mean {total['folds_mean']:.1%}, standard deviation {total['folds_deviation']:.1%}")
    spent = measure_cost(chosen.baseline)
    print(f"no window where none is due: {total['none_share']:.1%}")
    print(
        f"CPU a question without a date: p50 {spent['p50_ms']} ms, p99 {spent['p99_ms']} ms; "
        f"dateparser p50 {spent['baseline_p50_ms']} ms "
        f"({spent['baseline_p50_ms'] / max(spent['ours_p50_ms_on_those'], 1e-4):.0f} x)"
    )
    print(
        json.dumps(
            {"bench": "timex", "accuracy": rows, "folds": folds, "total": total, "cost": spent}
        )
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
