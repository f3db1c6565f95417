"""Settings to models: every provider that can be set is served, or refused at the start."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from models.breaker import FAILURES_TO_OPEN
from models.catalog import build_embedder, build_reranker
from models.settings import EMBEDDER_PROVIDERS, RERANKER_PROVIDERS
from retrieval.protocols import RerankRequest
from serve import metrics
from serve.cli import doctor
from serve.opening.inference import embedder_settings, open_reranker, reranker_settings
from serve.settings import Settings, SettingsError, parse
from tests.cases.stubs import refusing_url
from tests.models.embed_server import KEY, EmbedServer
from tests.models.families import arrange, make

URLS = {"tei": "TEI_URL", "litellm": "LITELLM_API_BASE", "vllm": "VLLM_BASE_URL"}


@pytest.mark.unit
@pytest.mark.parametrize("provider", EMBEDDER_PROVIDERS)
def test_embedders(provider: str) -> None:
    environment = {"HINDSIGHT_API_EMBEDDINGS_PROVIDER": provider}
    if provider in URLS:
        environment[f"HINDSIGHT_API_EMBEDDINGS_{URLS[provider]}"] = "http://127.0.0.1:9"
    own = embedder_settings(parse({}, environment))
    assert own.provider == provider
    build_embedder(own)


@pytest.mark.unit
@pytest.mark.parametrize("provider", RERANKER_PROVIDERS)
def test_rerankers(provider: str) -> None:
    environment = {"HINDSIGHT_API_RERANKER_PROVIDER": provider}
    if provider in URLS:
        environment[f"HINDSIGHT_API_RERANKER_{URLS[provider]}"] = "http://127.0.0.1:9"
    settings = parse({}, environment)
    build_reranker([reranker_settings(settings, member) for member in settings.rerankers.members])


@pytest.mark.unit
@pytest.mark.parametrize("provider", ["google", "onnx", "litellm-sdk", "openai-codex", "nonsense"])
def test_others_are_refused_with_those_that_there_are(provider: str) -> None:
    with pytest.raises(SettingsError, match=r"EMBEDDINGS_PROVIDER.*'cohere'"):
        parse({}, {"HINDSIGHT_API_EMBEDDINGS_PROVIDER": provider})
    with pytest.raises(SettingsError, match=r"RERANKER_PROVIDER.*'cohere'"):
        parse({}, {"HINDSIGHT_API_RERANKER_PROVIDER": provider})


@pytest.mark.unit
@pytest.mark.parametrize(
    "variable", ["EMBEDDINGS_LOCAL_TRUST_REMOTE_CODE", "RERANKER_LOCAL_TRUST_REMOTE_CODE"]
)
def test_a_models_own_code_is_never_run(variable: str) -> None:
    parse({}, {f"HINDSIGHT_API_{variable}": "false"})
    with pytest.raises(SettingsError, match="never run"):
        parse({}, {f"HINDSIGHT_API_{variable}": "true"})


@pytest.mark.unit
def test_what_is_set_arrives() -> None:
    environment = {
        "HINDSIGHT_API_EMBEDDINGS_PROVIDER": "cohere",
        "FOURFOLD_EMBEDDINGS_COHERE_API_KEY": "k",
        "HINDSIGHT_API_EMBEDDINGS_COHERE_MODEL": "embed-v4.0",
        "HINDSIGHT_API_EMBEDDINGS_COHERE_DIMENSIONS": "256",
        "FOURFOLD_EMBEDDINGS_COHERE_BASE_URL": "http://127.0.0.1:9/v2",
    }
    own = embedder_settings(parse({}, environment))
    assert (own.api_key, own.model, own.dimensions) == ("k", "embed-v4.0", 256)
    assert (own.url, own.batch_size) == ("http://127.0.0.1:9/v2", 96)
    own = embedder_settings(parse({}, {"FOURFOLD_EMBEDDINGS_LOCAL_REVISION": "abc"}))
    assert (own.model, own.revision) == ("packaged", "abc")


async def test_who_is_left_out_is_counted() -> None:
    async def left_out(count: int) -> None:
        name, labels = "fourfold_reranker_left_out", {"member": "tei"}
        async with asyncio.timeout(20):
            while metrics.registry.get_sample_value(name, labels) != count:  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    environment = {
        "HINDSIGHT_API_RERANKER_PROVIDER": "tei",
        "HINDSIGHT_API_RERANKER_TEI_URL": refusing_url(),
    }
    async with AsyncExitStack() as stack:
        reranker = await open_reranker(parse({}, environment), stack)
        await left_out(0)
        for _ in range(FAILURES_TO_OPEN):
            assert (await reranker.rerank(RerankRequest("q", ["a"]))).degraded
        await left_out(1)


def told(settings: Settings, what: str) -> list[tuple[str, str]]:
    check = {"embedder": doctor.embedder, "reranker": doctor.reranker}[what]
    return [(state, text) for state, _, text in doctor.guarded(check, settings, Path())]


@pytest.mark.integration
def test_the_doctor_loads_what_would_be_served(tmp_path: Path) -> None:
    ((state, sentence),) = told(parse({}, {}), "embedder")
    assert state == "ok"
    assert "384 dimensions" in sentence
    refused = arrange(make(tmp_path / "m", "bert"), ("CNN", {}))
    variable = "FOURFOLD_EMBEDDINGS_LOCAL_MODEL"
    ((state, sentence),) = told(parse({}, {variable: str(refused)}), "embedder")
    assert state == "wrong"
    assert "CNN module" in sentence
    two = make(tmp_path / "two", "distilbert", labels=2)
    variable = "FOURFOLD_RERANKER_LOCAL_MODEL"
    ((state, sentence),) = told(parse({}, {variable: str(two)}), "reranker")
    assert state == "wrong"
    assert "2 labels" in sentence


@pytest.mark.integration
def test_the_doctor_asks_hosted_embedders() -> None:
    with EmbedServer("cohere") as server:
        environment = {
            "FOURFOLD_EMBEDDINGS_PROVIDER": "cohere",
            "FOURFOLD_EMBEDDINGS_COHERE_BASE_URL": server.url,
        }
        ((state, sentence),) = told(parse({}, environment), "embedder")
        assert state == "wrong"
        assert "401" in sentence
        environment["FOURFOLD_EMBEDDINGS_COHERE_API_KEY"] = KEY
        ((state, sentence),) = told(parse({}, environment), "embedder")
        assert (state, "8 dimensions" in sentence) == ("ok", True)
