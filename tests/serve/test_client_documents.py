"""The public client and mental models, the knowledge base, directives: its methods, one by one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import hindsight_client_api
import pytest
import pytest_asyncio
from hindsight_client_api.exceptions import ApiException

from tests.serve.conftest import Live
from tests.serve.test_client import (
    CONVENIENT,
    DOCUMENTS,
    GENERATED,
    Calls,
    Generated,
    methods,
    on_a_port,
    refused,
)
from tests.serve.test_mental_models import ended, rules

__all__ = ["rules"]
pytestmark = [
    pytest.mark.integration,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.filterwarnings("ignore:Pydantic serializer warnings"),
]
make: Any = hindsight_client_api


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def documents(rules: Live) -> AsyncIterator[str]:
    async with on_a_port(rules.api) as found:
        yield found


@pytest.mark.parametrize("twins", ["async", "sync"])
async def test_the_convenience_methods(rules: Live, documents: str, twins: str) -> None:
    bank = f"documents {twins}"
    await rules.import_memories(bank, {"key": "1", "text": "Ann likes green tea."})
    async with Calls(documents, twins) as call:
        await _directives(call, bank)
        made = await call(
            "create_mental_model",
            bank,
            "Tea",
            "What tea does Ann like?",
            tags=["t"],
            max_tokens=512,
            trigger={"mode": "delta", "tags_match": "any", "fact_types": ["world"]},
            id="tea",
        )
        assert made.mental_model_id == "tea"
        await ended(rules, bank, made.operation_id)
        listed = await call(
            "list_mental_models", bank, tags=["t"], tags_match="all", detail="content", limit=5,
            offset=0, exclude_knowledge_pages=True,
        )  # fmt: skip
        assert (listed.total, listed.items[0].max_tokens) == (1, 512)
        found = await call("get_mental_model", bank, "tea", detail="full")
        assert found.content == "[extractive]\n\nAnn likes green tea."
        assert found.trigger.mode == "delta"
        assert found.reflect_response["based_on"]["world"]
        shown = await call("dry_run_refresh_mental_model", bank, "tea")
        assert (shown.outcome, shown.would_persist) == ("content_preserved_no_new_facts", False)
        queued = await call("refresh_mental_model", bank, "tea", mode="full")
        assert queued.status == "queued"
        await ended(rules, bank, queued.operation_id)
        changed = await call(
            "update_mental_model", bank, "tea", name="Drinks", tags=[],
            trigger={"refresh_cron": "0 3 * * *"},
        )  # fmt: skip
        assert (changed.name, changed.trigger.mode) == ("Drinks", "delta")
        assert (await call("clear_mental_model", bank, "tea")).content == ""
        (old,) = await call("get_mental_model_history", bank, "tea")
        assert "green tea" in old["previous_content"]
        assert (await call("delete_mental_model", bank, "tea")) == {"status": "deleted"}

        folder = await call("create_knowledge_folder", bank, "Food")
        page = await call(
            "create_knowledge_page", bank, "Tea", "What tea does Ann like?", parent_id=folder.id,
            tags=["t"], max_tokens=512, trigger={"fact_types": ["world"], "tags_match": "any"},
        )  # fmt: skip
        await ended(rules, bank, page.operation_id)
        tree = await call("get_knowledge_base_tree", bank, tags=["t"], tags_match="any")
        assert tree.roots[0].children[0].id == page.page_id
        groups = [{"not": {"tags": ["t"]}}]
        assert (await call("get_knowledge_base_tree", bank, tag_groups=groups)).roots == []
        read = await call("get_knowledge_page", bank, page.page_id)
        assert read.markdown.startswith("---\n")
        hits = await call("search_knowledge_base", bank, "green tea", limit=3)
        assert hits.results[0].id == page.page_id
        moved = await call(
            "update_knowledge_node", bank, page.page_id, name="Drinks", parent_id=None
        )
        assert (moved.name, moved.parent_id) == ("Drinks", None)
        exported = await call("export_knowledge_base", bank)
        assert exported.files[0].path == "index.md"
        assert await call("delete_knowledge_node", bank, folder.id) == {"status": "deleted"}
        with pytest.raises(ApiException) as error:
            await call("get_knowledge_page", bank, "kp-none")
        assert refused(error.value) == 404
        assert {name for name in CONVENIENT if DOCUMENTS.search(name)} <= call.called


async def _directives(call: Any, bank: str) -> None:
    one = await call("create_directive", bank, "Brief", "Be brief.", priority=2, tags=["a"])
    listed = await call("list_directives", bank, tags=["a"], limit=5, offset=0)
    assert [each.id for each in listed.items] == [one.id]
    changed = await call("update_directive", bank, one.id, content="Be short.", is_active=True)
    assert (await call("get_directive", bank, one.id)) == changed
    await call("delete_directive", bank, one.id)


async def test_the_generated_methods(rules: Live, documents: str) -> None:
    call, bank = Generated(documents), "generated documents"
    await rules.import_memories(bank, {"key": "1", "text": "Ann likes green tea."})
    request = make.CreateDirectiveRequest(name="Brief", content="Be brief.")
    one = await call("DirectivesApi.create_directive", bank, request)
    assert (one.priority, one.is_active, one.tags) == (0, True, [])
    listed = await call(
        "DirectivesApi.list_directives", bank, tags=["a"], tags_match="exact", active_only=False,
        limit=1, offset=0,
    )  # fmt: skip
    assert listed.total == 1
    request = make.UpdateDirectiveRequest(priority=4)
    assert (await call("DirectivesApi.update_directive", bank, one.id, request)).priority == 4
    assert (await call("DirectivesApi.get_directive", bank, one.id)).priority == 4
    await call("DirectivesApi.delete_directive", bank, one.id)

    trigger = make.MentalModelTriggerInput(mode="delta", refresh_after_consolidation=True)
    request = make.CreateMentalModelRequest(
        id="tea", name="Tea", source_query="What tea does Ann like?", trigger=trigger
    )
    made = await call("MentalModelsApi.create_mental_model", bank, request)
    await ended(rules, bank, made.operation_id)
    status = await call("OperationsApi.get_operation_status", bank, made.operation_id)
    assert (status.details.outcome, status.mental_model_id) == ("content_written", "tea")
    assert (await call("MentalModelsApi.list_mental_models", bank)).items[0].content is None
    found = await call("MentalModelsApi.get_mental_model", bank, "tea", detail="metadata")
    assert (found.is_stale, found.content) == (False, None)
    request = make.UpdateMentalModelRequest(name="Drinks")
    assert (await call("MentalModelsApi.update_mental_model", bank, "tea", request)).name
    await rules.import_memories(bank, {"key": "2", "text": "Ann likes black tea."})
    shown = await call("MentalModelsApi.dry_run_refresh_mental_model", bank, "tea")
    assert (shown.effective_mode, shown.would_persist) == ("delta", True)
    queued = await call("MentalModelsApi.refresh_mental_model", bank, "tea")
    await ended(rules, bank, queued.operation_id)
    assert await call("MentalModelsApi.get_mental_model_history", bank, "tea")
    assert (await call("MentalModelsApi.clear_mental_model", bank, "tea")).id == "tea"
    await call("MentalModelsApi.delete_mental_model", bank, "tea")

    request = make.CreateFolderRequest(name="Food")
    folder = await call("KnowledgeBaseApi.create_knowledge_folder", bank, request)
    request = make.CreatePageRequest(
        name="Tea", source_query="What tea does Ann like?", parent_id=folder.id
    )
    page = await call("KnowledgeBaseApi.create_knowledge_page", bank, request)
    await ended(rules, bank, page.operation_id)
    assert (await call("KnowledgeBaseApi.get_knowledge_base_tree", bank)).roots[0].children
    assert (await call("KnowledgeBaseApi.get_knowledge_page", bank, page.page_id)).name == "Tea"
    await call("KnowledgeBaseApi.search_knowledge_base", bank, q="tea", limit=5)
    request = make.UpdateNodeRequest(name="Drinks")
    changed = await call("KnowledgeBaseApi.update_knowledge_node", bank, page.page_id, request)
    assert (changed.name, changed.parent_id) == ("Drinks", folder.id)
    assert (await call("KnowledgeBaseApi.export_knowledge_base", bank)).files
    await call("KnowledgeBaseApi.delete_knowledge_node", bank, folder.id)
    every = {f"{kind}.{name}" for kind, one in GENERATED.items() for name in methods(one)}
    kinds = ("DirectivesApi.", "MentalModelsApi.", "KnowledgeBaseApi.")
    assert {name for name in every if name.startswith(kinds)} <= call.called
    await call.close()
