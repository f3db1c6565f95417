"""Bad input for every endpoint of the description: the right status, a sentence that names the
field, and nothing changed. What is wrong with a request is generated from what is right."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest

from tests.serve.conftest import B, Live, state

pytestmark = pytest.mark.integration

BANK = "spoilt"
NOBODY = str(uuid4())
LONG = "long " * 5_000

RIGHT: Mapping[str, Any] = {
    "recall_memories": {
        "query": "kiln",
        "types": ["world"],
        "prefer_observations": False,
        "budget": "low",
        "max_tokens": 100,
        "trace": False,
        "query_timestamp": "2025-01-01",
        "include": {
            "entities": {"max_tokens": 10},
            "chunks": {"max_tokens": 10},
            "source_facts": {"max_tokens": 10, "max_tokens_per_observation": 5},
        },
        "tags": ["t"],
        "tags_match": "any",
        "min_scores": {"semantic": 0.1, "keyword": 0.1, "reranker": 0.1, "final": 0.1},
        "temporal_window": {"start": "2025-01-01", "end": "2025-02-01"},
        "temporal_mode": "rank",
        "as_of": "2025-01-01",
        "metadata_filter": {"a": {"eq": "b"}},
        "exclude_ids": [NOBODY],
        "limit": 5,
        "dedupe": 0.9,
    },
    "retain_memories": {
        "items": [
            {
                "content": "c",
                "timestamp": "2025-01-01",
                "context": "x",
                "metadata": {"a": "b"},
                "document_id": "d",
                "entities": [{"text": "Ann", "type": "PERSON"}],
                "resolve_entities": True,
                "tags": ["t"],
                "observation_scopes": "shared",
                "update_mode": "replace",
            }
        ],
        "async": False,
        "document_tags": ["t"],
    },
    "import_memories": {
        "memories": [
            {
                "key": "k",
                "text": "t",
                "type": "world",
                "context": "x",
                "occurred_start": "2025-01-01",
                "occurred_end": "2025-01-02",
                "mentioned_at": "2025-01-02",
                "entities": ["Ann"],
                "tags": ["t"],
                "metadata": {"a": "b"},
                "document_id": "d",
                "proof_count": 1,
                "sources": [],
                "links": [{"to": "k", "type": "causes", "weight": 0.5}],
            }
        ]
    },
    "dry_run_extract_memories": {
        "content": "c",
        "context": "x",
        "timestamp": "2025-01-01",
        "agent_name": "a",
        "retain_mission": "m",
        "retain_extraction_mode": "chunks",
        "retain_custom_instructions": "i",
        "retain_extract_causal_links": True,
        "retain_chunk_size": 3000,
        "entity_labels": [{"key": "k"}],
        "entities_allow_free_form": True,
        "llm_output_language": "English",
    },
    "preview_prompt": {"operation": "retain"},
    "preview_consolidation_strategies": {"strategies": [], "sample_limit": 5},
    "create_or_update_bank": {
        "name": "n",
        "mission": "m",
        "background": "b",
        "reflect_mission": "r",
        "disposition": {"skepticism": 3, "literalism": 3, "empathy": 3},
        "disposition_skepticism": 3,
        "disposition_literalism": 3,
        "disposition_empathy": 3,
        "retain_mission": "m",
        "retain_extraction_mode": "chunks",
        "retain_custom_instructions": "i",
        "retain_chunk_size": 3000,
        "retain_structured_chunk_size": 3000,
        "enable_observations": False,
        "observations_mission": "o",
        "enable_text_search": True,
        "enable_temporal_retrieval": True,
        "enable_graph_retrieval": True,
        "enable_reranking": True,
    },
    "update_bank_disposition": {
        "disposition": {"skepticism": 3, "literalism": 3, "empathy": 3},
    },
    "add_bank_background": {"content": "c", "update_disposition": True},
    "update_bank_config": {"updates": {"recall_budget_min": 20}},
    "update_memory": {
        "text": "t",
        "context": "c",
        "occurred_start": "2025-01-01",
        "occurred_end": "2025-01-02",
        "mentioned_at": "2025-01-02",
        "fact_type": "world",
        "entities": ["Ann"],
        "resolve_entities": True,
        "state": "valid",
        "reason": "r",
    },
    "update_document": {"tags": ["t"], "observation_scopes": [["t"]]},
    "reflect": {
        "query": "What does Ann do?",
        "budget": "low",
        "context": "c",
        "max_tokens": 100,
        "include": {"facts": {}, "tool_calls": {"output": True}},
        "response_schema": {"type": "object", "properties": {"a": {"type": "string"}}},
        "tags": ["t"],
        "tags_match": "any",
        "apply_all_directives": True,
        "fact_types": ["world"],
        "exclude_mental_models": True,
        "exclude_mental_model_ids": ["m"],
        "reflect_search_observations_max_tokens": 100,
        "reflect_search_observations_include_entities": True,
    },
    "create_directive": {
        "name": "n",
        "content": "c",
        "priority": 1,
        "is_active": True,
        "tags": ["t"],
    },
    "import_bank_template": {
        "version": "1",
        "bank": {"recall_budget_fixed_low": 50, "disposition_empathy": 4},
        "mental_models": [
            {
                "id": "m",
                "name": "n",
                "source_query": "q",
                "tags": ["t"],
                "max_tokens": 300,
                "trigger": {"mode": "full"},
            }
        ],
        "directives": [
            {"name": "n", "content": "c", "priority": 1, "is_active": True, "tags": ["t"]}
        ],
    },
    "update_directive": {"name": "n"},
    "update_mental_model": {"name": "n"},
    "create_knowledge_folder": {"name": "n"},
    "update_knowledge_node": {"name": "n"},
    "create_webhook": {
        "url": "https://hooks.example.org/x",
        "secret": "s",
        "event_types": ["retain.completed"],
        "enabled": True,
        "http_config": {
            "method": "POST",
            "timeout_seconds": 5,
            "headers": {"X-A": "b"},
            "params": {"a": "b"},
        },
    },
    "update_webhook": {"enabled": False},
    "create_bank_alias": {"alias": f"{BANK} too", "primary": False},
    "set_bank_alias_primary": {"primary": True},
    "erase": {
        "dry_run": True,
        "document_ids": ["d"],
        "memory_ids": [NOBODY],
        "tags": ["t"],
        "tags_match": "any",
        "entity_ids": [NOBODY],
        "metadata": {"a": "b"},
        "text_contains": "kiln",
        "observations": "delete",
    },
    "purge_invalidated": {"older_than_days": 1},
    "merge_entities": {"others": [NOBODY]},
    "split_entity": {"name": "Bo"},
}
ALL_RIGHT = {
    **RIGHT,
    "update_bank": RIGHT["create_or_update_bank"],
    "preview_consolidation_strategies": {"strategies": []},
    "explain_recall": {
        **RIGHT["recall_memories"],
        "settings": {"fusion": "rrf"},
        "why": [NOBODY],
        "check": False,
        "lists": 10,
    },
}

MAKES_BANKS = {
    "recall_memories": False,
    "explain_recall": False,
    "retain_memories": True,
    "file_retain": True,
    "import_memories": True,
    "create_or_update_bank": True,
    "update_bank_disposition": True,
    "add_bank_background": True,
    "create_directive": True,
    "create_mental_model": True,
    "create_knowledge_folder": True,
    "create_knowledge_page": True,
    "create_webhook": True,
    "import_bank_template": True,
    "import_bank_transfer": True,
    "import_documents": True,
}
WITHOUT_BANK = {
    "reflect",
    "regenerate_entity_observations",
    "export_documents_sync_removed",
}
"""Refused whatever the bank."""
ANY_TEXT = {("import_bank_transfer", "target_bank_id")}
"""Parameters that are right as they are: what is wrong is that no archive comes along."""


@dataclass(frozen=True, slots=True)
class Operation:
    id: str
    method: str
    path: str
    queries: tuple[Mapping[str, Any], ...]

    @property
    def needed(self) -> dict[str, str]:
        """Query parameters that must be there."""
        return {one["name"]: "x" for one in self.queries if one.get("required")}

    def url(self, bank: str = BANK) -> str:
        return self.path.format(
            bank_id=bank,
            memory_id=NOBODY,
            entity_id=NOBODY,
            operation_id=NOBODY,
            document_id="d",
            chunk_id="c",
            directive_id=NOBODY,
            mental_model_id="m",
            node_id="n",
            page_id="p",
            key="k",
            webhook_id=NOBODY,
            delivery_id=NOBODY,
            log_id=NOBODY,
            alias="other",
            attachment_id="0" * 12,
        )


def operations(description: Mapping[str, Any]) -> list[Operation]:
    return [
        Operation(
            one["operationId"],
            method.upper(),
            path,
            tuple(p for p in one.get("parameters", ()) if p["in"] == "query"),
        )
        for path, methods in description["paths"].items()
        for method, one in methods.items()
    ]


class Findings:
    """Requests that were not answered as they should have been."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._before: list[Any] | None = None
        self.wrong: list[str] = []
        self.statuses: dict[int, int] = {}

    async def ask(
        self,
        operation: Operation,
        what: str,
        *,
        named: str = "",
        expected: tuple[int, ...] = (),
        method: str = "",
        url: str = "",
        **sent: Any,
    ) -> None:
        before = self._before or await state(self._live)
        self._before = None
        method, url = method or operation.method, url or operation.url()
        answer = await self._live.http.request(method, url, **sent)
        status = answer.status_code
        self.statuses[status] = self.statuses.get(status, 0) + 1
        problem = ""
        if expected and status not in expected:
            problem = f"expected {expected}"
        elif status >= 500 and status != 501:
            problem = "a fault of ours"
        elif status >= 400:
            detail = answer.json().get("detail")
            if not detail:
                problem = "no detail"
            elif "Traceback" in answer.text or ".py" in answer.text:
                problem = "it tells of our code"
            elif (
                named
                and status in (400, 422)
                and "needs a language model" not in detail  # the value was good enough
                and not _told(named, json.dumps(detail))
            ):
                problem = f"{named} is not named"
            elif (after := await state(self._live)) != before:
                problem = "something changed"
            else:
                self._before = after
        if problem:
            told = f"{operation.id} {what}: {problem}: {status} {answer.text[:200]}"
            self.wrong.append(told)


def _told(named: str, detail: str) -> bool:
    return named in detail or "'x'" in detail  # the key that some of the values bring


WRONG: tuple[Any, ...] = (
    None,
    "",
    " ",
    "no such value",
    0,
    -1,
    1.5,
    10**30,
    True,
    [],
    {},
    [None],
    [[]],
    {"x": None},
    LONG,
)


def fields(body: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The place of every value inside a body."""
    pairs = body.items() if isinstance(body, dict) else enumerate(body)
    for key, value in pairs:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from fields(value, (*path, key))


def put(body: Any, path: tuple[str | int, ...], value: Any) -> Any:
    changed = copy.deepcopy(body)
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return changed


def without(body: Any, path: tuple[str | int, ...]) -> Any:
    changed = copy.deepcopy(body)
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    return changed


def name_of(path: tuple[str | int, ...]) -> str:
    return next((key for key in reversed(path) if isinstance(key, str)), "")


async def described(live: Live) -> list[Operation]:
    await live.import_memories(
        BANK, {"key": "k", "text": "The kiln is hot.", "document_id": "d", "entities": ["Ann"]}
    )
    return operations(live.api.openapi())


@pytest.mark.timeout(280)
@pytest.mark.parametrize("id", sorted(RIGHT))
async def test_every_field_with_every_wrong_value(live: Live, id: str) -> None:
    (operation,) = (one for one in await described(live) if one.id == id)
    findings, right = Findings(live), RIGHT[id]
    url = operation.url()
    for place in ("memory", "entity"):
        if f"{{{place}_id}}" in operation.path:
            folder = {"memory": "memories/list", "entity": "entities"}[place]
            listed = (await live.http.get(f"{B}/{BANK}/{folder}")).json()["items"]
            url = url.replace(NOBODY, listed[0]["id"])
    for path in fields(right):
        await findings.ask(operation, f"without {path}", url=url, json=without(right, path))
        for value in WRONG:
            named = name_of(path)
            shown = f"{path} = {str(value)[:20]!r}"
            wrong = put(right, path, value)
            await findings.ask(operation, shown, named=named, url=url, json=wrong)
        for text in ("NaN", "Infinity", "-Infinity", "1e999"):
            content = json.dumps(put(right, path, "@@")).replace('"@@"', text)
            await findings.ask(
                operation,
                f"{path} = {text}",
                expected=(400, 422),
                url=url,
                content=content,
                headers={"content-type": "application/json"},
            )
    assert not findings.wrong, "\n".join(findings.wrong)
    assert findings.statuses.get(422, 0) > 10 or findings.statuses.get(400, 0) > 10


BODIES: Mapping[str, tuple[bytes, str]] = {
    "nothing": (b"", "application/json"),
    "broken": (b'{"query": ', "application/json"),
    "null": (b"null", "application/json"),
    "a list": (b"[]", "application/json"),
    "a number": (b"5", "application/json"),
    "a string": (b'"x"', "application/json"),
    "no UTF-8": (b'{"query": "\xff"}', "application/json"),
    "half a surrogate": (b'{"query": "\\ud800"}', "application/json"),
    "deep": (b"[" * 50_000 + b"]" * 50_000, "application/json"),
    "deep inside": (b'{"x": ' * 5_000 + b"1" + b"}" * 5_000, "application/json"),
    "text": (b'{"query": "x"}', "text/plain"),
    "a form": (b"query=x", "application/x-www-form-urlencoded"),
    "parts": (b"--b\r\n\r\nx\r\n--b--", "multipart/form-data; boundary=b"),
    "another coding": (b'{"query": "x"}', "application/json; charset=utf-16"),
    "XML": (b"<query/>", "application/xml"),
}


async def test_bodies_that_are_none(live: Live) -> None:
    findings = Findings(live)
    for operation in await described(live):
        if operation.id not in ALL_RIGHT:
            continue
        for what, (content, kind) in BODIES.items():
            readable = what in ("nothing", "another coding", "deep inside")
            await findings.ask(
                operation,
                what,
                expected=() if readable else (422,),
                content=content,
                headers={"content-type": kind},
            )
    assert not findings.wrong, "\n".join(findings.wrong)


async def test_every_parameter_of_an_address(live: Live) -> None:
    findings = Findings(live)
    for operation in await described(live):
        for parameter in operation.queries:
            name = parameter["name"]
            for value in ("", "x", "-1", "1.5", "99999999999999999999", "NaN", "null", LONG[:3000]):
                await findings.ask(
                    operation,
                    f"{name}={value[:20]}",
                    named="" if (operation.id, name) in ANY_TEXT else name,
                    params={**operation.needed, name: value},
                    **({"json": ALL_RIGHT[operation.id]} if operation.id in ALL_RIGHT else {}),
                )
            nul = f"{operation.url()}?{name}=%00"
            await findings.ask(operation, f"{name}=NUL", expected=(400,), url=nul)
        for place in ("memory_id", "entity_id", "operation_id"):
            if f"{{{place}}}" not in operation.path or operation.id in WITHOUT_BANK:
                continue
            for value in ("x", "1", "0" * 32 + "z", "%20", "é"):
                url = operation.url().replace(NOBODY, value)
                body = {"json": ALL_RIGHT[operation.id]} if operation.id in ALL_RIGHT else {}
                await findings.ask(
                    operation, f"{place}={value}", expected=(400,), named=place, url=url, **body
                )
    assert not findings.wrong, "\n".join(findings.wrong)


async def test_an_unknown_bank_everywhere(live: Live) -> None:
    findings = Findings(live)
    for operation in await described(live):
        if "{bank_id}" not in operation.path or operation.id in WITHOUT_BANK:
            continue
        if MAKES_BANKS.get(operation.id):
            continue
        body = {"json": ALL_RIGHT[operation.id]} if operation.id in ALL_RIGHT else {}
        url = operation.url("never-heard-of")
        sent = {"url": url, "params": operation.needed, **body}
        await findings.ask(operation, "unknown bank", expected=(404,), **sent)
    assert not findings.wrong, "\n".join(findings.wrong)
    listed = (await live.http.get(f"{B}?q=never-heard-of")).json()
    assert listed["total"] == 0


async def test_what_is_not_there_in_a_known_bank(live: Live) -> None:
    findings = Findings(live)
    for operation in await described(live):
        places = {"{memory_id}", "{entity_id}"} & set(operation.path.split("/"))
        if not places or operation.id in WITHOUT_BANK:
            continue
        body = {"json": ALL_RIGHT[operation.id]} if operation.id in ALL_RIGHT else {}
        await findings.ask(operation, "unknown id", expected=(404,), **body)
    assert not findings.wrong, "\n".join(findings.wrong)


async def test_every_other_method(live: Live) -> None:
    findings = Findings(live)
    known: dict[str, set[str]] = {}
    every = await described(live)
    for operation in every:
        known.setdefault(operation.url(), set()).add(operation.method)
    for operation in every:
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
            url = operation.url()
            answer = await live.http.request(method, url) if method not in known[url] else None
            # `recall` and its like may also be read as an id: then they are none.
            if answer is not None and answer.status_code not in (400, 404, 405, 422):
                findings.wrong.append(f"{method} {url}: {answer.status_code} {answer.text[:100]}")
            if answer is not None and not answer.json()["detail"]:
                findings.wrong.append(f"{method} {url}: no detail")
    assert not findings.wrong, "\n".join(findings.wrong)
