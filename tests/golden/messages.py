"""One message of each kind, with a value in every field."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from retrieval.bank.probe import Probe
from retrieval.bank.shards.shard import RangeReading
from retrieval.keyword.analyser import Query
from retrieval.keyword.bm25 import Evidence
from retrieval.ranking.contributions import Contributions
from retrieval.ranking.fusion import Candidates
from retrieval.ranking.shortlist import ArmList, EventFound, Facts, Paths, Question, Shortlist
from retrieval.recall.look.inspection import ArmReport, Inspection
from retrieval.recall.look.placing import Gate, Placed
from retrieval.store.answers import Key
from retrieval.store.heads import BankHead
from retrieval.types import (
    Arm,
    Budget,
    FactType,
    Filters,
    Hits,
    Include,
    MinScores,
    RecallQuery,
    TagAll,
    TagAny,
    TagLeaf,
    TagNot,
    TagsMatch,
    TemporalMode,
    Window,
)

FOLDER = Path(__file__).parent
NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)


def _ints(*values: int) -> Any:
    return np.array(values, np.int32)


def every() -> Mapping[str, Any]:
    window = Window(NOW, None)
    head = BankHead(7, "t", "b", 5, 2, 9, "m:3", "plain:1", {"recall_budget": 3}, "epoch-1")
    leaf = TagLeaf(("a", "b"), TagsMatch.ALL)
    query = RecallQuery(
        tenant="t",
        bank_id="b",
        text="where is the lamp",
        now=NOW,
        filters=Filters(
            (FactType.WORLD,),
            ("a",),
            TagsMatch.ALL_STRICT,
            (TagAll((leaf, TagNot(leaf))), TagAny((leaf,))),
            {"k": {"eq": 1}},
            NOW,
            window,
            (b"0123456789abcdef",),
        ),
        budget=Budget.HIGH,
        max_tokens=99,
        prefer_observations=True,
        include=Include(1, 2, 3, 4),
        min_scores=MinScores(0.1, 0.2, 0.3, 0.4),
        window=window,
        temporal_mode=TemporalMode.FILTER,
        limit=3,
        dedupe=0.9,
        explain=True,
        trace=True,
        timezone="Europe/Berlin",
        from_clock=True,
    )
    two = np.arange(2)
    ids = np.arange(32, dtype=np.uint8).reshape(2, 16)
    hits = Hits(_ints(4, 6), np.array([0.9, 0.5], np.float32))
    shortlist = Shortlist(
        head=head,
        question=Question("q", window, "day", EventFound("e", "after", 4, "id", 0.5), "s", "n"),
        budget=10,
        found=Candidates(
            _ints(4, 6),
            np.ones((2, len(Arm)), np.int32),
            np.ones((2, len(Arm)), np.float32),
            np.array([0.5, 0.25]),
        ),
        facts=Facts(ids, ids[:, 0], two, two, two, _ints(1, -1), _ints(8, 9)),
        proximity=np.array([0.5, 1.0]),
        fused=np.array([1.0, 0.5]),
        source_ptr=_ints(0, 1, 1),
        source_ordinals=_ints(3),
        paths=Paths(
            np.array([0, 1], np.int8),
            ids,
            _ints(-1, 4),
            np.array([0, 2], np.uint8),
            (None, "Ann"),
            np.array([0.0, 0.5], np.float32),
            _ints(-1, 4),
        ),
        outside=np.array([False, True]),
        texts=(("one", None, NOW), ("two", "c", None)),
        vectors=np.eye(2, 3, dtype=np.float32),
        query_vector=np.ones(3, np.float32),
        dropped=1,
        cap=2,
        degraded=("keyword",),
        arms=(ArmList(Arm(0), FactType.WORLD, hits, ids, 0.01),),
        seconds={"bank_open": 0.5},
    )
    terms = Query(np.array([5, 9], np.uint64), np.array([1, 2], np.float32))
    tf = np.array([1.0, 2.0], np.float32)
    evidence = Evidence(_ints(3, 4), tf, tf + 5, _ints(1, 1), _ints(0, 1), 9, 70.5)
    return {
        "BankHead": head,
        "RecallQuery": query,
        "Shortlist": shortlist,
        "Probe": Probe(np.ones(3, np.float32), terms),
        "RangeReading": RangeReading(np.array([0.5, np.nan], np.float32), evidence),
        "Key": Key("name", b"\x01\x02"),
        "Inspection": Inspection(
            memories=9,
            candidates=3,
            found=shortlist.found,
            ids=ids,
            paths=shortlist.paths,
            kept=_ints(4, 6),
            contributions=Contributions((("semantic", np.array([0.5, 0.25])),)),
            arms=(ArmReport(Arm(0), "ran", 7, 0.1, 300, 2, 0.5, hits),),
            terms=(("lamp", 1.5, 2),),
            entities=(("id", "Ann"),),
            intent=("now",),
            placed=(
                Placed(
                    b"0123456789abcdef",
                    4,
                    True,
                    (Gate("tags", False, "a", 0.5, 1.0, "id"),),
                    {"semantic": {"rank": 1}},
                    2,
                ),
            ),
            listed_ids={4: b"0123456789abcdef"},
        ),
    }
