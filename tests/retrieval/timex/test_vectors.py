from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from retrieval.timex import parse
from tests.bench.sets import DataMissing, folder
from tests.bench.timex import load, ours, shared_folder
from tests.retrieval.timex.days_of import days_of, read
from tests.retrieval.timex.vectors import VECTORS

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(("question", "day", "first", "last"), VECTORS)
def test_vector(question: str, day: str, first: str | None, last: str | None) -> None:
    anchor = datetime.fromisoformat(f"{day}T10:30:00+00:00")
    expected = None if first is None and last is None else (first, last)
    assert read(question, anchor) == expected


def test_there_are_230_vectors() -> None:
    assert len(VECTORS) == 230


def _given() -> list[Any]:
    try:
        files = sorted((folder() / "cases").glob("given*.json"))
    except DataMissing:
        return []
    cases = [case for file in files for case in json.loads(file.read_text(encoding="utf-8"))]
    return [pytest.param(c, id=c["id"]) for c in cases if c["kind"] == "window"]


@pytest.mark.parametrize("case", _given())
def test_reported_case(case: dict[str, Any]) -> None:
    anchor = datetime.fromisoformat(case["query_timestamp"])
    found = parse(case["query"], anchor)
    got = days_of(found, anchor)
    expected = case["expect_window"]
    if expected == "any":
        assert found is not None
    else:
        allowed = [None if w is None else tuple(w) for w in (expected, *case.get("also_ok", []))]
        assert got in allowed
    for wanted, days in ((True, "must_include"), (False, "must_exclude")):
        for day in case.get(days, []):
            moment = datetime.fromisoformat(day)
            if len(day) == 10:
                moment = moment.replace(hour=12, tzinfo=anchor.tzinfo)
            assert found is not None
            start, end = found.window.start, found.window.end
            inside = (start is None or start <= moment) and (end is None or moment <= end)
            assert inside is wanted, (day, got)


_SHARED = shared_folder()
# Every language's floor; English is held to more.
_FLOORS = {"en": 0.95}


@pytest.mark.skipif(_SHARED is None, reason="the shared data/timex folder is not here")
def test_share_of_cases_resolved_rightly() -> None:
    assert _SHARED is not None
    right: dict[tuple[str, str], list[bool]] = {}
    for case in load(_SHARED):
        right.setdefault((case.language, case.group), []).append(case.right(ours(case)))
    strict = {k[0]: v for k, v in right.items() if k[1] == "strict"}
    for language, results in strict.items():
        assert sum(results) / len(results) >= _FLOORS.get(language, 0.85), language
    none = [one for key, results in right.items() if key[1] == "none" for one in results]
    assert sum(none) / len(none) >= 0.95


def test_an_anchor_without_an_offset_is_utc() -> None:
    naive = parse("yesterday", datetime(2025, 6, 18, 0, 30))
    assert naive == parse("yesterday", datetime(2025, 6, 18, 0, 30, tzinfo=UTC))
