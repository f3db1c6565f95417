"""Every kind of expectation, each once.

A check is `async (scene, expected) -> None` and raises AssertionError with a sentence. Parameters
that a check does not know are an error too: a case must never pass because part of it was not read.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

from retrieval.text import tokens
from tests.cases import measures, spans
from tests.cases.scene import Reply, Scene

Expected = Mapping[str, Any]
Check = Callable[[Scene, Expected], Awaitable[None]]

_CHECKS: dict[str, tuple[Check, frozenset[str]]] = {}


def check(*parameters: str) -> Callable[[Check], Check]:
    """Registers a check under its function's name, with the parameters that it reads."""

    def register(function: Check) -> Check:
        _CHECKS[function.__name__] = (function, frozenset(parameters) | {"kind", "why"})
        return function

    return register


async def run(scene: Scene, expected: Expected) -> None:
    """Raises AssertionError where the scene is not as expected, or the expectation not known."""
    kind = expected["kind"]
    if kind not in _CHECKS:
        raise AssertionError(f"no check of kind {kind!r} exists")
    function, parameters = _CHECKS[kind]
    unknown = set(expected) - parameters
    if unknown:
        raise AssertionError(f"check {kind!r} does not know {sorted(unknown)}")
    try:
        await function(scene, expected)
    except AssertionError as failed:
        raise AssertionError(f"{kind}: {failed}") from failed


def kinds() -> frozenset[str]:
    return frozenset(_CHECKS)


def flatten(expected: Expected) -> Iterator[Expected]:
    """The expectations inside an `all_of`, or the expectation itself."""
    if expected["kind"] == "all_of":
        for part in expected["of"]:
            yield from flatten(part)
    else:
        yield expected


@check("of")
async def all_of(scene: Scene, expected: Expected) -> None:
    for part in expected["of"]:
        await run(scene, part)


# Which memories come back, and where


@check("memories")
async def contains(scene: Scene, expected: Expected) -> None:
    _answered(scene)
    missing = [m for m in expected["memories"] if scene.place(m) is None]
    assert not missing, f"memories {missing} are missing from {_shown(scene)}"


@check("memories")
async def not_contains(scene: Scene, expected: Expected) -> None:
    _answered(scene)
    present = [m for m in expected["memories"] if scene.place(m) is not None]
    assert not present, f"memories {present} are among the results"


@check("memories")
async def exact_set(scene: Scene, expected: Expected) -> None:
    _answered(scene)
    present = {m for m, known in enumerate(scene.ids) if known and scene.place(m) is not None}
    assert present == set(expected["memories"]), f"{sorted(present)} instead of {expected}"


@check("memory")
async def first(scene: Scene, expected: Expected) -> None:
    _answered(scene)
    place = scene.place(expected["memory"])
    assert place == 0, f"memory {expected['memory']} is at place {place} of {_shown(scene)}"


@check("memory", "k")
async def top_k(scene: Scene, expected: Expected) -> None:
    _answered(scene)
    place = scene.place(expected["memory"])
    assert place is not None, f"memory {expected['memory']} is missing"
    assert place < expected["k"], f"memory {expected['memory']} is at place {place}"


@check("before", "after", "after_optional")
async def order(scene: Scene, expected: Expected) -> None:
    _answered(scene)
    before, after = scene.place(expected["before"]), scene.place(expected["after"])
    assert before is not None, f"memory {expected['before']} is missing"
    if after is None:
        assert expected.get("after_optional"), f"memory {expected['after']} is missing"
        return
    assert before < after, f"memory {expected['before']} is at {before}, the other at {after}"


@check("eq", "ge", "le")
async def count(scene: Scene, expected: Expected) -> None:
    _answered(scene)
    _within(len(scene.reply.results), expected, "results")


@check()
async def unique_ids(scene: Scene, expected: Expected) -> None:
    _answered(scene)
    assert len(set(scene.reply.ids)) == len(scene.reply.ids), "a memory comes back twice"


@check()
async def ids_known(scene: Scene, expected: Expected) -> None:
    _answered(scene)
    foreign = set(scene.reply.ids) - set(scene.known.get(scene.case.bank, {}))
    assert not foreign, f"ids {foreign} are no memories of the bank"


# Status and errors


@check("in")
async def status(scene: Scene, expected: Expected) -> None:
    reply = scene.reply
    assert reply.status in expected["in"], f"{reply.status} {reply.text[:300]}"


@check()
async def no_error(scene: Scene, expected: Expected) -> None:
    replies = [scene.reply, *(scene.load.replies if scene.load else ())]
    for reply in replies:
        assert reply.status == 200, f"{reply.status} {reply.text[:300]}"
        _strict(reply)


@check()
async def error_text_nonempty(scene: Scene, expected: Expected) -> None:
    reply = scene.reply
    if reply.status < 400:
        return
    detail = (reply.body or {}).get("detail")
    assert detail, f"a {reply.status} without a message: {reply.text[:300]}"


@check("stage")
async def degraded_flag(scene: Scene, expected: Expected) -> None:
    _answered(scene)
    said = _degraded(scene.reply)
    stage = expected.get("stage")
    assert said if stage is None else any(stage in name for name in said), f"only {said} is named"


@check("stage")
async def not_degraded(scene: Scene, expected: Expected) -> None:
    _answered(scene)
    said = _degraded(scene.reply)
    stage = expected.get("stage")
    named = said if stage is None else [name for name in said if stage in name]
    assert not named, f"{named} was left out"


# The window


@check("start", "end", "also_ok", "must_include", "must_exclude")
async def window(scene: Scene, expected: Expected) -> None:
    anchor = scene.case.params.get("query_timestamp")
    found = spans.of_trace(await scene.trace())
    wanted = (expected.get("start"), expected.get("end"))
    spans.check(
        found,
        spans.parse(anchor) if anchor else None,
        wanted if "start" in expected or "end" in expected else "any",
        [(start, end) for start, end in expected.get("also_ok", ())],
        expected.get("must_include", ()),
        expected.get("must_exclude", ()),
    )


@check()
async def window_null(scene: Scene, expected: Expected) -> None:
    found = spans.of_trace(await scene.trace())
    assert found is None, f"there is a window {found}"


# Candidates of an arm


@check("arm", "memory")
async def arm_hit(scene: Scene, expected: Expected) -> None:
    assert await _in_arm(scene, expected), f"memory {expected['memory']} was no candidate"


@check("arm", "memory")
async def arm_miss(scene: Scene, expected: Expected) -> None:
    assert not await _in_arm(scene, expected), f"memory {expected['memory']} was a candidate"


@check("arm", "value")
async def arm_count_at_most(scene: Scene, expected: Expected) -> None:
    listed = measures.candidates(await scene.trace(), expected["arm"])
    assert len(listed) <= expected["value"], f"{len(listed)} candidates"


# Scores


@check("memory", "field", "value", "tol")
async def score_equals(scene: Scene, expected: Expected) -> None:
    score = _score(scene.result(expected["memory"]), expected["field"])
    assert score is not None, f"no {expected['field']} score"
    assert abs(score - expected["value"]) <= expected.get("tol", 1e-6), f"{score}"


@check("field", "higher", "lower")
async def score_order(scene: Scene, expected: Expected) -> None:
    """An absent score counts as below every present one: that arm did not surface the memory."""
    _answered(scene)
    scores = [_score_of(scene, expected[side], expected["field"]) for side in ("higher", "lower")]
    higher, lower = scores
    assert higher is not None, f"memory {expected['higher']} has no {expected['field']} score"
    assert lower is None or higher > lower, f"{higher} against {lower}"


@check("field")
async def scores_distinct(scene: Scene, expected: Expected) -> None:
    _answered(scene)
    scores = [_score(result, expected["field"]) for result in scene.reply.results]
    assert None not in scores, f"a result has no {expected['field']} score"
    assert len(set(scores)) == len(scores), f"{scores}"


@check("field")
async def scores_finite(scene: Scene, expected: Expected) -> None:
    _answered(scene)
    _strict(scene.reply)
    for result in scene.reply.results:
        scores = {k: v for k, v in result["scores"].items() if v is not None}
        assert all(math.isfinite(value) for value in scores.values()), f"{scores}"


@check("field")
async def scores_non_increasing(scene: Scene, expected: Expected) -> None:
    _answered(scene)
    scores = [_score(result, expected.get("field", "final")) for result in scene.reply.results]
    present = [score for score in scores if score is not None]
    assert len(present) == len(scores), f"a result has no {expected.get('field')} score"
    assert present == sorted(present, reverse=True), f"{present}"


@check("field", "tol")
async def stub_scores_passthrough(scene: Scene, expected: Expected) -> None:
    _answered(scene)
    finite = {m: value for m, value in scene.stub_scores.items() if math.isfinite(value)}
    assert finite, "the stub gives no finite score"
    for memory, value in finite.items():
        score = _score(scene.result(memory), expected.get("field", "reranker"))
        assert score is not None, f"memory {memory} has no reranker score"
        assert abs(score - value) <= expected.get("tol", 1e-6), f"memory {memory}: {score}"


@check("memory", "rotate")
async def nan_ranked_last(scene: Scene, expected: Expected) -> None:
    turns = len(scene.ids) if expected.get("rotate") else 1
    for turn in range(turns):
        if turn == 0:
            reply = scene.reply
        else:
            assert scene.rotated is not None, "the stub cannot be rotated"
            reply = await scene.rotated(turn)
        assert reply.status == 200, f"{reply.status} {reply.text[:300]}"
        _strict(reply)
        nan = [m for m, value in scene.stub_scores.items() if math.isnan(value)]
        memory = expected.get("memory", nan[0] if nan else None)
        assert memory is not None, "the stub gives no NaN"
        wanted = scene.id_of((memory + turn) % len(scene.ids))
        assert reply.ids, "no results"
        assert reply.ids[-1] == wanted, f"turn {turn}: the NaN item is not last"


# Fields


@check("path", "memory", "field", "value", "compare")
async def field_equals(scene: Scene, expected: Expected) -> None:
    _answered(scene)
    found, wanted = _field(scene, expected), expected["value"]
    if expected.get("compare") == "date":
        assert str(found)[:10] == str(wanted)[:10], f"{found!r}"
    elif expected.get("compare") == "instant":
        assert spans.parse(str(found)) == spans.parse(str(wanted)), f"{found!r}"
    else:
        assert found == wanted, f"{found!r} instead of {wanted!r}"


@check("path", "memory", "field", "value")
async def field_contains(scene: Scene, expected: Expected) -> None:
    _answered(scene)
    found = _field(scene, expected)
    assert found is not None, "the field is absent"
    assert expected["value"] in found, f"{found!r}"


@check("memory", "value", "text", "contains")
async def text_of(scene: Scene, expected: Expected) -> None:
    _answered(scene)
    text = scene.result(expected["memory"])["text"]
    if "contains" in expected:
        assert expected["contains"] in text, f"{text!r}"
    else:
        assert text == expected.get("value", expected.get("text")), f"{text!r}"


@check("value", "text", "contains")
async def no_text(scene: Scene, expected: Expected) -> None:
    _answered(scene)
    unwanted = next(expected[k] for k in ("value", "text", "contains") if k in expected)
    found = [result["text"] for result in scene.reply.results if unwanted in result["text"]]
    assert not found, f"{found}"


@check()
async def text_matches_id(scene: Scene, expected: Expected) -> None:
    _answered(scene)
    stored = scene.known[scene.case.bank]
    for result in scene.reply.results:
        assert result["id"] in stored, f"{result['id']} is no memory of the bank"
        assert result["text"] == stored[result["id"]], f"{result['text']!r}"


@check("memory", "memories", "sources")
async def sources_exclude(scene: Scene, expected: Expected) -> None:
    _answered(scene)
    unwanted = {scene.id_of(m) for m in expected.get("memories", expected.get("sources", ()))}
    if "memory" in expected:
        results = [scene.result(expected["memory"])]
    else:
        results = scene.reply.results
    named = {i for result in results for i in result.get("source_fact_ids") or ()}
    named |= set((scene.reply.body or {}).get("source_facts") or {})
    assert not named & unwanted, f"{named & unwanted} are named as sources"


@check("field", "seconds")
async def field_drift_at_most(scene: Scene, expected: Expected) -> None:
    _answered(scene)
    field, compared = expected["field"], 0
    for memory, given in enumerate(scene.case.memories):
        if given.get(field) is None or scene.place(memory) is None:
            continue
        shown = scene.result(memory).get(field)
        assert shown is not None, f"memory {memory} came back without {field}"
        drift = abs((spans.parse(shown) - spans.parse(given[field])).total_seconds())
        assert drift <= expected["seconds"], f"memory {memory} drifted by {drift} s"
        compared += 1
    assert compared, "no memory came back to compare"


# Packing


@check("tokens", "encoding", "unless_single")
async def token_total_at_most(scene: Scene, expected: Expected) -> None:
    _answered(scene)
    assert expected.get("encoding", "cl100k_base") == "cl100k_base"
    if expected.get("unless_single") and len(scene.reply.results) == 1:
        return
    total = sum(tokens.count(result["text"]) for result in scene.reply.results)
    assert total <= expected["tokens"], f"{total} tokens"


@check("tokens")
async def packing_maximal(scene: Scene, expected: Expected) -> None:
    _answered(scene)
    budget = expected.get("tokens", scene.case.params.get("max_tokens", 4096))
    rest = budget - sum(tokens.count(result["text"]) for result in scene.reply.results)
    for memory, given in enumerate(scene.case.memories):
        if scene.ids[memory] is not None and scene.place(memory) is None:
            size = tokens.count(given["text"])
            assert size >= rest, f"memory {memory} of {size} tokens fits the {rest} left"


@check("param", "values", "measure", "min_growth")
async def budget_monotonic(scene: Scene, expected: Expected) -> None:
    sizes = []
    for value in expected["values"]:
        reply = await scene.ask(**{expected["param"]: value, "trace": True})
        assert reply.status == 200, f"{reply.status} {reply.text[:300]}"
        sizes.append(measures.measure(reply, expected["measure"]))
    growth = expected.get("min_growth", 1.0)
    for smaller, larger in itertools.pairwise(sizes):
        assert larger >= smaller * growth, f"{sizes}"


# Many calls


@check("calls", "concurrency", "score_tol")
async def stable_across_calls(scene: Scene, expected: Expected) -> None:
    _answered(scene)
    replies = await measures.together(
        scene.ask, expected["calls"] - 1, expected.get("concurrency", 1)
    )
    for reply in replies:
        assert reply.ids == scene.reply.ids, "another order"
        for ours, theirs in zip(scene.reply.results, reply.results, strict=True):
            for name, value in ours["scores"].items():
                other = theirs["scores"].get(name)
                same = value == other or (
                    value is not None
                    and other is not None
                    and abs(value - other) <= expected.get("score_tol", 1e-6)
                )
                assert same, f"{name}: {value} against {other}"


@check("per_bank", "per_tenant")
async def isolated(scene: Scene, expected: Expected) -> None:
    assert scene.load is not None, "no load was run"
    for reply in scene.load.replies:
        assert reply.status == 200, f"{reply.status} {reply.text[:300]}"
        own = scene.known[reply.bank]
        assert reply.ids, f"bank {reply.bank} came back empty"
        foreign = [i for i in reply.ids if i not in own]
        assert not foreign, f"bank {reply.bank} answered with {foreign}"


@check("share")
async def neighbours_unaffected(scene: Scene, expected: Expected) -> None:
    assert scene.load is not None, "no load was run"
    sound = [reply for reply in scene.load.replies if not reply.poisoned]
    assert sound, "every request was poisoned"
    failed = [reply for reply in sound if reply.status != 200]
    assert not failed, f"{len(failed)} of {len(sound)} failed, first {failed[0].text[:200]}"


@check("seconds", "stage", "percentile")
async def latency_at_most(scene: Scene, expected: Expected) -> None:
    replies = scene.load.replies if scene.load else (scene.reply,)
    waits = [measures.seconds(reply, expected.get("stage")) for reply in replies]
    wait = measures.percentile(waits, expected.get("percentile", 100))
    assert wait <= expected["seconds"], f"{wait:.3f} s"


@check("seconds", "percentile")
async def health_latency_at_most(scene: Scene, expected: Expected) -> None:
    assert scene.load is not None, "no load was run"
    assert scene.load.health_seconds, "the health route never answered"
    wait = measures.percentile(scene.load.health_seconds, expected.get("percentile", 100))
    assert wait <= expected["seconds"], f"{wait:.3f} s"


@check("allowed", "max_queue_wait_s")
async def overload(scene: Scene, expected: Expected) -> None:
    assert scene.load is not None, "no load was run"
    for reply in scene.load.replies:
        assert reply.status in expected["allowed"], f"{reply.status} {reply.text[:300]}"
        if reply.status in (429, 503):
            assert reply.headers.get("retry-after"), "a refusal without Retry-After"
        wait = reply.seconds
        said = f"a {reply.status} after {wait:.1f} s: {reply.text[:200]}"
        assert wait <= expected["max_queue_wait_s"], said


@check("bytes", "mb", "mib", "value")
async def peak_memory_growth_at_most(scene: Scene, expected: Expected) -> None:
    assert scene.load is not None, "no load was run"
    limits = {"bytes": 1, "mb": 10**6, "mib": 2**20, "value": 2**20}
    unit = next(unit for unit in limits if unit in expected)
    growth = scene.load.memory_growth_bytes
    assert growth <= expected[unit] * limits[unit], f"{growth / 2**20:.0f} MiB"


# What the checks share


def _answered(scene: Scene) -> None:
    reply = scene.reply
    assert reply.status == 200, f"{reply.status} {reply.text[:300]}"


def _strict(reply: Reply) -> None:
    """JSON as the standard has it: without NaN and Infinity."""

    def refuse(literal: str) -> Any:
        raise AssertionError(f"{literal} in the answer")

    json.loads(reply.text, parse_constant=refuse)


def _shown(scene: Scene) -> str:
    return str([result["text"][:60] for result in scene.reply.results[:5]])


def _within(value: int, expected: Expected, what: str) -> None:
    if "eq" in expected:
        assert value == expected["eq"], f"{value} {what}"
    if "ge" in expected:
        assert value >= expected["ge"], f"{value} {what}"
    if "le" in expected:
        assert value <= expected["le"], f"{value} {what}"


_SCORE_NAMES = {"text": "keyword", "bm25": "keyword", "cross_encoder": "reranker"}


def _score(result: Mapping[str, Any], field: str) -> float | None:
    value: float | None = result["scores"].get(_SCORE_NAMES.get(field, field))
    return value


def _score_of(scene: Scene, memory: int, field: str) -> float | None:
    return None if scene.place(memory) is None else _score(scene.result(memory), field)


def _field(scene: Scene, expected: Expected) -> Any:
    if "path" in expected:
        return measures.at(scene.reply.body, expected["path"])
    return measures.at(scene.result(expected["memory"]), expected["field"])


def _degraded(reply: Reply) -> list[str]:
    body = reply.body or {}
    named = list(body.get("degraded") or ())
    named += (body.get("trace") or {}).get("degraded") or ()
    header = reply.headers.get("x-degraded", "")
    return named + [name.strip() for name in header.split(",") if name.strip()]


async def _in_arm(scene: Scene, expected: Expected) -> bool:
    """Whether the arm listed the memory: by the result's own scores where they tell, otherwise
    by the trace."""
    _answered(scene)
    arm, memory = expected["arm"], expected["memory"]
    if arm in ("text", "bm25", "keyword", "semantic") and scene.place(memory) is not None:
        return _score(scene.result(memory), arm) is not None
    return scene.id_of(memory) in measures.candidates(await scene.trace(), arm)
