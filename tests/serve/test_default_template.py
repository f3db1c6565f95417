"""What banks begin with that nobody gave a template."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson
import pytest

from retrieval.errors import InvalidInput
from retrieval.store.database.pool import read
from serve.opening.templates import keep_default_template
from serve.settings import Settings, parse
from tests.serve.conftest import B, Live

pytestmark = pytest.mark.integration

TEMPLATE: dict[str, Any] = {
    "version": "1",
    "bank": {"recall_budget_fixed_low": 77, "reflect_mission": "To help.",
             "disposition_empathy": 5},
    "directives": [{"name": "Short", "content": "One line.", "priority": 3}],
    "mental_models": [{"id": "home", "name": "Home", "source_query": "Where do they live?",
                       "trigger": {"refresh_cron": "0 3 * * *"}}],
}  # fmt: skip


def settings(given: str | None) -> Settings:
    return parse({"transfer": {"default_bank_template": given}}, {})


async def test_new_banks_have_it_and_others_do_not(live: Live, tmp_path: Path) -> None:
    file = tmp_path / "template.json"
    file.write_bytes(orjson.dumps(TEMPLATE))
    pool, old = live.services.pool, uuid4().hex
    assert (await live.http.put(f"{B}/{old}", json={})).status_code == 200
    try:
        for given in (orjson.dumps(TEMPLATE).decode(), str(file)):
            await keep_default_template(settings(given), pool)
            await new_ones(live)
        plain = uuid4().hex
        done = await live.http.post(f"{B}/{plain}/import", json={"version": "1"})
        assert done.status_code == 200
        for bank in (old, plain):
            assert (await live.http.get(f"{B}/{bank}/export")).json()["directives"] == []
    finally:
        await keep_default_template(settings(None), pool)
    late = uuid4().hex
    await live.import_memories(late, {"text": "Ann rows."})
    assert (await live.http.get(f"{B}/{late}/export")).json()["directives"] == []


async def new_ones(live: Live) -> None:
    by_put, by_write = uuid4().hex, uuid4().hex
    made = await live.http.put(f"{B}/{by_put}", json={"mission": "Another."})
    assert made.json()["mission"] == "Another."
    await live.import_memories(by_write, {"text": "Ann rows."})
    for bank, mission in ((by_put, "Another."), (by_write, "To help.")):
        found = (await live.http.get(f"{B}/{bank}/export")).json()
        assert found["bank"] == {
            "recall_budget_fixed_low": 77, "reflect_mission": mission, "disposition_empathy": 5,
        }  # fmt: skip
        (rule,) = found["directives"]
        assert (rule["name"], rule["priority"], rule["is_active"]) == ("Short", 3, True)
        (model,) = found["mental_models"]
        assert (model["id"], model["trigger"]["refresh_cron"]) == ("home", "0 3 * * *")
        row = await read(
            live.services.pool,
            lambda c, bank=bank: c.fetchrow(  # type: ignore[misc]
                "select pending_refresh or exists (select from operations o where o.bank = m.bank"
                "   and o.payload->>'mental_model_id' = m.id) as wanted,"
                " next_refresh_at <= now() as due, next_full_refresh_at"
                " from mental_models m join banks b using (bank) where bank_id = $1",
                bank,
            ),
        )
        assert tuple(row) == (True, True, None)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("/nowhere/template.json", "cannot be read"),
        ("{", "no JSON"),
        ('{"version": "9"}', "newer than"),
        (
            '{"version": "1", "bank": {"recall_budget_fixed_low": "many"}}',
            "recall_budget_fixed_low",
        ),
        ('{"version": "1", "directives": [{"name": "x"}]}', "directives"),
    ],
)
async def test_what_is_no_template(live: Live, given: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said) as refused:
        await keep_default_template(settings(given), live.services.pool)
    assert str(refused.value).startswith("default_bank_template: ")
