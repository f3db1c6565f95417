"""What a consolidation would do and cost, and which scopes strategies take: nothing is written."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from retrieval.consolidation import prompts, rounds, scopes
from retrieval.consolidation.actions import Action, ActionReader, Decided
from retrieval.consolidation.batch import Batch
from retrieval.consolidation.deps import ConsolidationDeps
from retrieval.errors import ModelFailed, NeedsModel
from retrieval.ingest.extract.preview import run_settings
from retrieval.ingest.scopes import scope_key
from retrieval.llm.asking import Asker
from retrieval.settings.consolidation import ConsolidationSettings
from retrieval.store import banks
from retrieval.store.database.pool import Pool, read
from retrieval.store.edge import iso
from retrieval.text import tokens
from retrieval.types import FactType

MEMORIES = 2_000
"""Memories that wait which a preview looks at; it says where there are more."""
SAMPLED = 6
"""Batches that are put together to learn what a prompt costs."""
SCOPES = 2_000
"""Scopes that a preview of strategies is computed over."""
_ANSWER_TOKENS = 70
"""Of an answer per memory, as the prompt asks for it."""
_SHOWN_TOKENS = 35
"""Of an observation in a prompt beside its text: handle, dates, evidence."""


@dataclass(frozen=True, slots=True)
class _Planned:
    """The batches of one scope."""

    scope: frozenset[str]
    batches: list[list[Any]]
    settings: ConsolidationSettings


async def preview(
    deps: ConsolidationDeps,
    tenant: str,
    bank_id: str,
    only: Sequence[Sequence[str]] | None = None,
    *,
    run: bool = False,
    deadline: float | None = None,
) -> dict[str, Any]:
    """{pending, scopes: [{tags, memories, calls}], calls, tokens, complete, batch}: what waits, and
    what it would cost by an estimate. With `run` the first batch is asked about, and its actions
    are shown as they were checked.

    NeedsModel where there is nobody to ask; the errors of asking.
    """
    if not deps.able:
        raise NeedsModel.to("consolidation")
    head = await banks.head(deps.ingest.pool, tenant, bank_id)
    settings = deps.settings.with_overrides(head.config)
    _, works = await rounds.waiting(deps, tenant, bank_id, settings, only, limit=MEMORIES + 1)
    complete = len(works) <= MEMORIES
    planned = _planned(works[:MEMORIES], settings)
    calls = sum(len(each.batches) for each in planned)
    cost = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
    first: Batch | None = None
    if planned:
        sampled = await _sampled(deps, tenant, bank_id, planned)
        first = sampled[0][0]
        if deps.model is not None:
            cost = _cost(planned, sampled)
    shown: dict[str, Any] = {
        "pending": len(works[:MEMORIES]),
        "scopes": [
            {
                "tags": sorted(each.scope),
                "memories": sum(map(len, each.batches)),
                "calls": len(each.batches) if deps.model is not None else 0,
            }
            for each in planned
        ],
        "calls": calls if deps.model is not None else 0,
        "tokens": cost,
        "complete": complete,
        "batch": None,
    }
    if run and first is not None:
        own = scopes.settings_of(settings, first.scope).base
        shown["batch"] = await _tried(deps, first, own, tenant, bank_id, deadline)
    return shown


def _planned(
    works: Sequence[rounds.PendingMemory], settings: ConsolidationSettings
) -> list[_Planned]:
    by_scope: dict[frozenset[str], list[rounds.PendingMemory]] = defaultdict(list)
    for work in works:
        for scope in work.scopes:
            by_scope[scope].append(work)
    found = []
    for scope in sorted(by_scope, key=scope_key):
        own = scopes.settings_of(settings, scope).base
        size = own.consolidation_llm_batch_size
        found.append(_Planned(scope, rounds.batches(by_scope[scope], size), own))
    return found


async def _sampled(
    deps: ConsolidationDeps, tenant: str, bank_id: str, planned: Sequence[_Planned]
) -> list[tuple[Batch, int]]:
    """Some batches as they would be asked about now, with the tokens of their prompts; the first
    one first."""
    every = [(each, group) for each in planned for group in each.batches]
    step = max(1, len(every) // SAMPLED)
    found = []
    for each, group in every[::step][:SAMPLED]:
        batch = await rounds.gathered(deps, tenant, bank_id, each.scope, group, each.settings)
        said = prompts.messages(batch, None)
        found.append((batch, sum(tokens.counts([m["content"] for m in said]))))
    return found


def _cost(planned: Sequence[_Planned], sampled: Sequence[tuple[Batch, int]]) -> dict[str, int]:
    """What the sampled prompts come to for all batches. Batches behind others of their scope see
    what those will have made."""
    memories = sum(len(group) for each in planned for group in each.batches)
    calls = sum(len(each.batches) for each in planned)
    texts = [one.fact.text for batch, _ in sampled for one in batch.facts]
    mean = sum(tokens.counts(texts)) / max(1, len(texts))
    told = 2 * mean + _SHOWN_TOKENS  # with the memory that it was made from
    asked = calls * sum(cost for _, cost in sampled) / len(sampled)
    for each in planned:
        made = 0
        for group in each.batches:
            room = len(group) * each.settings.consolidation_recall_max_tokens / max(1.0, mean)
            asked += min(made, room) * told
            made += len(group)
    answered = memories * (_ANSWER_TOKENS + mean)
    return {
        "input_tokens": round(asked),
        "output_tokens": round(answered),
        "total_tokens": round(asked + answered),
    }


async def _tried(
    deps: ConsolidationDeps,
    batch: Batch,
    settings: ConsolidationSettings,
    tenant: str,
    bank_id: str,
    deadline: float | None,
) -> dict[str, Any]:
    reader = ActionReader(batch, translated=rounds.language(deps, batch) is not None)
    about = {"scope": "consolidation_preview"}
    asker = None
    if deps.model is not None:
        asker = Asker(
            deps.model, "consolidation", "reflect", tenant, bank_id, deadline=deadline, about=about
        )
    error = None
    try:
        decided = await rounds.decide(deps, asker, batch, reader, settings)
    except ModelFailed as failed:  # a round would halve the batch
        decided, error = Decided(()), str(failed)
    return {
        "tags": sorted(batch.scope),
        "facts": [{"id": str(f.fact.id), "text": f.fact.text} for f in batch.facts],
        "actions": [_shown(action, batch) for action in decided.actions],
        "dropped": list(reader.dropped),
        "error": error,
        "usage": {} if asker is None else asker.usage.wire(),
    }


def _shown(action: Action, batch: Batch) -> dict[str, Any]:
    about = None
    if action.observation is not None:
        about = str(batch.observations[action.observation].stored.fact.id)
    return {
        "do": action.do,
        "reason": action.reason,
        "observation_id": about,
        "fact_ids": [str(batch.facts[place].fact.id) for place in action.facts],
        "text": action.text or None,
        "valid_from": iso(action.since),
        "valid_until": iso(action.until),
    }


async def strategies(
    pool: Pool,
    tenant: str,
    bank_id: str,
    drafts: Sequence[Mapping[str, Any]],
    samples: int,
) -> dict[str, Any]:
    """Which of the scopes that have observations each strategy, and each of its rules, takes."""
    head = await banks.head(pool, tenant, bank_id)
    rows = await read(
        pool,
        lambda connection: connection.fetch(
            "select array(select distinct unnest(tags) order by 1) as scope, count(*)::int as n"
            " from memory_units where bank = $1 and fact_type = $2 and ordinal is not null"
            " group by 1 order by n desc, 1 limit $3",
            head.bank,
            int(FactType.OBSERVATION),
            SCOPES + 1,
        ),
    )
    found = [(tuple(row["scope"]), int(row["n"])) for row in rows[:SCOPES]]
    shown = await asyncio.to_thread(_matched, found, drafts, samples)
    return {**shown, "scopes_scanned": len(found), "complete": len(rows) <= SCOPES}


def _matched(
    found: Sequence[tuple[tuple[str, ...], int]], drafts: Sequence[Mapping[str, Any]], samples: int
) -> dict[str, Any]:
    live = [(i, draft) for i, draft in enumerate(drafts) if _is_active(draft)]
    winner = {
        scope: next((i for i, draft in live if _takes(draft, scope)), None) for scope, _ in found
    }

    def listed(mine: Sequence[tuple[tuple[str, ...], int]]) -> list[dict[str, Any]]:
        return [
            {"tags": list(scope), "count": n, "handled_by": winner[scope]}
            for scope, n in mine[:samples]
        ]

    shown = []
    for i, draft in enumerate(drafts):
        each = []
        for rule in draft.get("scopes") or ():
            mine = [(scope, n) for scope, n in found if scopes.takes(rule, scope)]
            earlier = [s for s, _ in mine if (w := winner[s]) is not None and w < i]
            each.append(
                {
                    "match_count": len(mine),
                    "taken_count": len(earlier),
                    "observation_count": sum(n for _, n in mine),
                    "samples": listed(mine),
                }
            )
        claimed = sum(1 for scope, _ in found if winner[scope] == i)
        shown.append({"active": _is_active(draft), "claimed_count": claimed, "rules": each})
    rest = [(scope, n) for scope, n in found if winner[scope] is None]
    return {
        "strategies": shown,
        "default": {
            "match_count": len(rest),
            "observation_count": sum(n for _, n in rest),
            "samples": listed(rest),
        },
    }


def _is_active(draft: Mapping[str, Any]) -> bool:
    """Whether a strategy has a rule that can take a scope, and says anything."""
    says = any(draft.get(key) is not None for key in draft if key != "scopes")
    return says and any(rule.get("tags") for rule in draft.get("scopes") or ())


def _takes(draft: Mapping[str, Any], scope: Sequence[str]) -> bool:
    return any(scopes.takes(rule, scope) for rule in draft["scopes"])


RUN_SETTINGS = (
    "consolidation_llm_batch_size", "consolidation_max_attempts", "consolidation_recall_budget",
    "consolidation_recall_max_tokens", "consolidation_dedup_threshold",
    "max_observations_per_scope",
)  # fmt: skip
"""Settings that shape a consolidation without standing in its prompt."""


def prompt_preview(
    settings: ConsolidationSettings, output_language: str | None, *, needs_model: bool
) -> dict[str, Any]:
    """The messages of a batch as blocks, with the settings that shape it besides."""
    skipped = None
    if needs_model:
        skipped = "no language model is configured for consolidation"
    elif not settings.enable_observations:
        skipped = "observations are switched off"
    system = prompts.blocks(settings.observations_mission, output_language)
    user = {**prompts.content_block().view(editable=False), "value": None}
    messages = [
        {"role": "system", "blocks": [block.view() for block in system]},
        {"role": "user", "blocks": [user]},
    ]
    return {
        "messages": [] if skipped else messages,
        "strategy": None,
        "strategies": [],
        "run_settings": run_settings(settings, RUN_SETTINGS),
        "response_schema": None if skipped else prompts.schema()[1],
        "skipped_reason": skipped,
    }
