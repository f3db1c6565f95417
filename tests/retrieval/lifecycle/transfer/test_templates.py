"""A bank's set-up as a manifest: what is in it, what it changes, and every fault at once."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from retrieval.errors import InvalidInput, NotFound
from retrieval.lifecycle.transfer import templates
from retrieval.store import banks
from retrieval.store.database.pool import Pool
from tests.retrieval.lifecycle.transfer import world

MANIFEST: dict[str, Any] = {
    "version": "1",
    "bank": {
        "recall_budget_fixed_low": 42,
        "reflect_mission": "to know boats",
        "disposition_skepticism": 5,
        "retain_mission": None,
    },
    "mental_models": [
        {
            "id": "boats",
            "name": "Boats",
            "source_query": "Which boats are there?",
            "tags": ["sea"],
            "max_tokens": 600,
            "trigger": {"mode": "delta", "refresh_after_consolidation": True},
        }
    ],
    "directives": [{"name": "Short", "content": "Answer in one line.", "priority": 3}],
    "later": {"passed": "over"},
}


@pytest.mark.integration
async def test_in_and_out(pool: Pool) -> None:
    bank = f"b{uuid4().hex}"
    dry = await templates.apply(pool, "default", bank, MANIFEST, dry_run=True)
    assert dry["mental_models_created"] == ["boats"]
    with pytest.raises(NotFound):
        await banks.head(pool, "default", bank)
    done = await templates.apply(pool, "default", bank, MANIFEST)
    assert len(done.pop("operation_ids")) == 1
    assert done == {
        "bank_id": bank,
        "config_applied": True,
        "mental_models_created": ["boats"],
        "mental_models_updated": [],
        "directives_created": ["Short"],
        "directives_updated": [],
        "dry_run": False,
    }
    told = await templates.export(pool, "default", bank)
    assert told["bank"] == {k: v for k, v in MANIFEST["bank"].items() if v is not None}
    assert told["directives"] == [{**MANIFEST["directives"][0], "is_active": True, "tags": []}]
    (model,) = told["mental_models"]
    assert model["trigger"]["mode"] == "delta"
    assert {k: model[k] for k in ("id", "name", "tags")} == {
        k: MANIFEST["mental_models"][0][k] for k in ("id", "name", "tags")
    }

    # What it says already changes nothing; what it says otherwise does.
    done = await templates.apply(pool, "default", bank, told)
    assert done["mental_models_updated"] == done["directives_updated"] == []
    told["directives"][0]["content"] = "Answer in two lines."
    told["mental_models"][0]["source_query"] = "Which ships?"
    done = await templates.apply(pool, "default", bank, told, writes=False)
    assert (done["mental_models_updated"], done["directives_updated"]) == (["boats"], ["Short"])
    assert done["operation_ids"] == []
    again = await templates.export(pool, "default", bank)
    assert again["directives"][0]["content"] == "Answer in two lines."

    other = f"o{uuid4().hex}"
    await templates.apply(pool, "default", other, again, writes=False)
    assert await templates.export(pool, "default", other) == again


@pytest.mark.integration
async def test_a_bank_with_everything(pool: Pool) -> None:
    source = f"s{uuid4().hex}"
    async with world.context(pool) as context:
        await world.fill(context, source, 60)
    told = await templates.export(pool, "default", source)
    assert told["bank"]["disposition_skepticism"] == 5
    assert [each["id"] for each in told["mental_models"]] == ["harbour"]  # pages are no set-up
    assert "harbour" not in str(told["bank"])


@pytest.mark.unit
@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"version": "2"}, ["version: 2 is newer"]),
        ({"version": 1}, ["version"]),
        ({"version": "x"}, ["version"]),
        ({"bank": []}, ["bank"]),
        ({"bank": {"nothing": 1, "recall_budget_fixed_low": "x"}}, ["nothing", "recall_budget"]),
        ({"mental_models": {}}, ["mental_models"]),
        ({"mental_models": [{"id": "A b"}]}, ["mental_models.0.id", "mental_models.0.name",
                                              "mental_models.0.source_query"]),
        ({"mental_models": [{"id": "a", "name": "n", "source_query": "q",
                             "trigger": {"refresh_cron": "x"}}]}, ["trigger"]),
        ({"mental_models": [{"id": "a", "name": "n", "source_query": "q"}] * 2}, ["'a' is there"]),
        ({"directives": [{"name": " ", "content": "x"}, {"name": "a"}]},
         ["directives.0.name", "directives.1.content"]),
        ({"directives": [{"name": "a", "content": "x", "priority": 2**40}]}, ["priority"]),
    ],
)  # fmt: skip
def test_every_fault_is_named(change: dict[str, Any], named: list[str]) -> None:
    with pytest.raises(InvalidInput) as refused:
        templates.checked({**MANIFEST, **change})
    for name in named:
        assert name in str(refused.value)


@pytest.mark.unit
def test_the_schema_describes_manifests() -> None:
    import jsonschema

    manifest = {k: v for k, v in MANIFEST.items() if k != "bank"}
    jsonschema.validate(manifest, templates.schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"mental_models": [{"id": "A b"}]}, templates.schema())
