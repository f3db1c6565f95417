"""The API as its OpenAPI description says: generated requests never meet a fault of ours.

Requests that fit the description and requests that break it, by schemathesis. No 5xx but the ones
that mean "not built", "busy" or "the time that you gave is over", no trace of ours in a body,
nothing changed by a refusal.
"""

from __future__ import annotations

import json
import os
import warnings
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import schemathesis
    from schemathesis import GenerationMode

from serve import app
from serve.local import sample
from serve.settings import Settings
from tests.serve.conftest import Live, state

EXAMPLES = int(os.environ.get("FOURFOLD_FUZZ_EXAMPLES", "6"))
"""Per operation and kind: half a minute for all of them. More are new ones at every run."""

BANK = "fuzzed"


def _numbers(schema: dict[str, Any]) -> list[dict[str, Any]]:
    found = [schema] if schema.get("type") == "integer" else []
    for kind in ("anyOf", "oneOf", "allOf"):
        found += [one for part in schema.get(kind, ()) for one in _numbers(part)]
    return found


@pytest.mark.unit
def test_whole_numbers_of_requests_have_a_least_one() -> None:
    """-1 where it is "no limit" in the public client, else not below 0: a budget of -1 would be
    answered with nothing. Priorities alone may be negative."""
    description = app.create(Settings()).openapi()
    least: dict[str, set[float]] = {}
    for path, methods in description["paths"].items():
        for operation in methods.values():
            for one in operation.get("parameters", ()):
                for number in _numbers(one["schema"]):
                    least.setdefault(f"{path} {one['name']}", set()).add(number["minimum"])
    for name, schema in description["components"]["schemas"].items():
        for field, one in schema.get("properties", {}).items():
            for number in _numbers(one):
                lowest = number.get("minimum", number.get("exclusiveMinimum", float("-inf")))
                least.setdefault(f"{name}.{field}", set()).add(lowest)
    negative = {name for name, values in least.items() if min(values) < 0}
    assert {name for name in negative if min(least[name]) < -1} == {
        "DirectiveBody.priority", "DirectivePatch.priority"
    }  # fmt: skip
    assert negative - {"DirectiveBody.priority", "DirectivePatch.priority"} == {
        "SourceFactBudget.max_tokens",
        "SourceFactBudget.max_tokens_per_observation",
        "StrategyBody.max_observations_per_scope",
        "StrategyBody.consolidation_source_facts_max_tokens",
        "StrategyBody.consolidation_source_facts_max_tokens_per_observation",
    }


@pytest.mark.unit
def test_it_describes_what_the_public_client_calls() -> None:
    description = app.create(Settings()).openapi()
    operations = {
        operation["operationId"]
        for path in description["paths"].values()
        for operation in path.values()
    }
    called = {"recall_memories", "retain_memories", "list_memories", "create_or_update_bank"}
    assert called <= operations
    body = description["components"]["schemas"]["RecallBody"]["properties"]
    assert {"query", "budget", "temporal_window", "tag_groups", "metadata_filter"} <= set(body)
    assert json.dumps(description)


def generated(operation: Any, mode: GenerationMode) -> list[Any]:
    """Requests for an operation; half of them to a bank that is there."""
    found: list[Any] = []

    @settings(
        max_examples=EXAMPLES,
        database=None,
        deadline=None,
        derandomize="FOURFOLD_FUZZ_EXAMPLES" not in os.environ,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def collect(case: Any) -> None:
        if "bank_id" in case.path_parameters and len(found) % 2:
            case.path_parameters["bank_id"] = BANK
        found.append(case)

    collect()
    return found


@pytest.mark.integration
@pytest.mark.timeout(200 + 10 * EXAMPLES)
async def test_generated_requests(live: Live) -> None:
    await live.import_memories(
        BANK, *({**memory, "links": []} for memory in sample.memories()[:40])
    )
    description = live.api.openapi()
    schema = schemathesis.openapi.from_dict(description)
    seen: Counter[int] = Counter()
    result: Any
    for result in schema.get_all_operations():
        operation = result.ok()
        for mode in (
            GenerationMode.POSITIVE,
            *([GenerationMode.NEGATIVE] if operation.body else []),
        ):
            for case in generated(operation, mode):
                seen[await fits(live, case)] += 1
    print(f"{seen.total()} requests: {dict(sorted(seen.items()))}")
    assert {200, 404, 422} <= set(seen)


async def fits(live: Live, case: Any) -> int:
    before = await state(live)
    sent = case.as_transport_kwargs(base_url="http://test")
    sent = {key: value for key, value in sent.items() if key not in ("cookies", "timeout")}
    if isinstance(sent.get("data"), str | bytes):
        sent["content"] = sent.pop("data")
    try:
        request = live.http.build_request(**sent)
        await request.aread()  # a form is only put together now
    except (UnicodeError, ValueError, TypeError, AttributeError):
        return 0  # no HTTP client could send it
    answer = await live.http.send(request)
    said = f"{request.method} {request.url}\n{sent}\n{answer.status_code} {answer.text[:500]}"
    right = {501, 503} | ({504} if "x-request-timeout-s" in request.headers else set())
    assert answer.status_code < 500 or answer.status_code in right, said
    assert "Traceback" not in answer.text, said
    if answer.headers["content-type"].startswith("application/json"):
        content = json.loads(answer.content, parse_constant=_no_constant)
        if answer.status_code >= 400:
            assert content["detail"], said
            assert await state(live) == before, said
    return int(answer.status_code)


def _no_constant(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")
