"""The shape of the settings: sections of frozen pydantic models.

A field's public name is its name in upper case behind `HINDSIGHT_API_` or `FOURFOLD_`; in a file
it stands under its section in lower case. Units stand in the names. Defaults of settings that the
Hindsight API server has are that server's.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    model_validator,
)

from retrieval.settings import RecallSettings, RetainSettings
from serve.settings.llm import LLMSection


def _boolean(value: Any) -> Any:
    if isinstance(value, str):
        word = value.strip().lower()
        if word in ("true", "1", "yes", "on"):
            return True
        if word in ("false", "0", "no", "off", ""):
            return False
    return value


def _blank_is_unset(value: Any) -> Any:
    return None if isinstance(value, str) and not value.strip() else value


Flag = Annotated[bool, BeforeValidator(_boolean)]
Text = Annotated[str | None, BeforeValidator(_blank_is_unset)]
Secret = Annotated[SecretStr | None, BeforeValidator(_blank_is_unset)]
Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
Positive = Annotated[int, Field(ge=1, le=2**31 - 1)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Ratio = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Maybe = Annotated[int | None, BeforeValidator(_blank_is_unset)]


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Server(Section):
    """Where and how HTTP is served."""

    host: str = "127.0.0.1"
    """Address to listen on. Loopback by default: set 0.0.0.0 to serve a network."""
    port: Annotated[int, Field(ge=1, le=65535)] = 8888
    """TCP port of the HTTP API."""
    workers: Positive = 1
    """Replicas of the ingress."""
    base_path: str = ""
    """Prefix of every route, such as /memory."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe level that is logged."""
    log_format: Literal["text", "json"] = "text"
    """How a log line is written."""
    access_log: Flag = False
    """Log every request."""
    max_body_bytes: Positive = 64 * 2**20
    """Largest request body; above it the answer is 413."""
    haproxy: Flag = True
    """HAProxy and throughput mode in front (Linux): about a tenth of the CPU time at the door."""
    sample_bank: Flag = True
    """Load the sample bank into an empty data folder on the first start."""
    enable_bank_config_api: Flag = True
    """false answers 404 on the config routes."""
    drain_s: Seconds = 2.0
    """How long running requests may finish after a stop."""


class Database(Section):
    """PostgreSQL. Without a URL the server starts its own."""

    database_url: Secret = None
    """DSN of PostgreSQL >= 15; unset starts the embedded one."""
    database_schema: str = "public"
    """Schema of our tables."""
    db_pool_min_size: Count = 5
    """Connections kept open per process."""
    db_pool_max_size: Positive = 100
    """Most connections per process."""
    db_command_timeout_s: Seconds = 60.0
    """Most seconds of one statement; above it the answer is 504."""
    db_acquire_timeout_s: Seconds = 30.0
    """Most seconds to wait for a connection."""
    db_statement_timeout_s: Annotated[float, Field(ge=0)] = 600.0
    """Server-side guard on every connection; 0 = off."""
    db_statement_cache_size: Count = 1024
    """Prepared statements per connection; 0 behind a transaction pooler."""


RESIDENT: Final = "bm25"
"""The keyword back-end that needs nothing of the database."""


def _listed(value: Any) -> Any:
    """A list that the environment writes with commas."""
    if not isinstance(value, str):
        return value
    return tuple(part.strip() for part in value.split(",") if part.strip())


class Banks(Section):
    """What a replica keeps of banks in memory."""

    bank_memory_bytes: Annotated[int, Field(ge=1)] = 2 * 2**30
    """Budget of resident banks; the least recently used leave first."""
    gpu_bank_memory_bytes: Annotated[int, Field(ge=1)] = 8 * 2**30
    """GPU memory of the vectors of resident banks."""
    bank_warm: Annotated[tuple[str, ...], BeforeValidator(_listed)] = ()
    """Banks that a retriever loads at its start, most important first, as long as there is room:
    `bank`, or `tenant/bank`; separated by commas in the environment."""
    vector_backend: Literal["auto", "cpu", "gpu"] = "auto"
    """Where vectors are scanned; auto takes the GPU that the stage was given."""
    bank_shard_rows: Count = 500_000
    """Vectors of a larger bank are held and searched in ranges of so many memories, by the replicas
    of the stage `ranges` where that is a deployment; 0 = in one."""
    bank_ivf_rows: Count = 0
    """On the CPU, banks (or ranges of one) from this size on are searched approximately, through
    inverted lists: from 400,000 memories on in less than half of the time, for a fifth more of
    their memory; 0 = always exactly."""
    bank_ivf_recall: Annotated[float, Field(gt=0, le=1)] = 0.95
    """Share of the true hits for which inverted lists are read, as measured on the bank."""
    vector_extension: Literal["pgvector", "vchord", "pgvectorscale", "scann"] = "pgvector"
    """Accepted for compatibility: vectors are served from memory."""
    text_search_extension: Literal[
        "bm25", "native", "vchord", "pg_textsearch", "pgroonga", "pg_search"
    ] = RESIDENT
    """Keyword back-end: BM25 from memory, or one of five that rank inside PostgreSQL. Where that
    server defaults to native, this one does not: native knows no idf."""
    text_search_extension_pg_search_tokenizer: str = ""
    """Tokenizer of the pg_search index; empty takes its default."""


class Embeddings(Section):
    """The model that turns text into vectors."""

    embeddings_provider: Literal[
        "local", "tei", "openai", "openrouter", "requesty", "litellm", "cohere"
    ] = "local"
    """Which kind of back-end."""
    embeddings_local_model: str = "packaged"
    """Folder, hub id, or `packaged`: all-MiniLM-L6-v2 from its wheel, no network."""
    embeddings_local_force_cpu: Flag = False
    """Never use an accelerator."""
    embeddings_local_allow_mps: Flag = False
    """Allow Apple's GPU."""
    embeddings_local_trust_remote_code: Flag = False
    """Run code that comes with a model."""
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
    embeddings_max_input_tokens: Maybe = None
    """Cut inputs to so many cl100k tokens."""
    embeddings_cached_queries: Count = 1024
    """Recent query vectors kept."""
    model_init_timeout_s: Seconds = 300.0
    """Most seconds for a model to start."""


RERANKERS = (
    "local", "tei", "cohere", "jina", "vllm", "openrouter", "siliconflow", "alibaba",
    "zeroentropy", "litellm", "rrf",
)  # fmt: skip


class RerankerMember(Section):
    """One member of the reranker chain; the fields are the settings without `RERANKER_`."""

    provider: Literal[RERANKERS] = "local"  # type: ignore[valid-type]
    local_model: str = "cross-encoder/ms-marco-MiniLM-L-6-v2"
    local_batch_size: Positive = 32
    local_max_concurrent: Positive = 4
    local_fp16: Flag = False
    local_bucket_batching: Flag = False
    local_force_cpu: Flag = False
    local_allow_mps: Flag = False
    local_trust_remote_code: Flag = False
    local_precision: Literal["auto", "fp32", "bf16", "fp16", "int8"] = "auto"
    """int8: on a CPU, models of the BERT family; about half as fast again as bf16."""
    local_threads: Count = 0
    tei_url: Text = None
    tei_api_key: Secret = None
    tei_batch_size: Positive = 128
    tei_max_concurrent: Positive = 8
    tei_http_timeout_s: Seconds = 30.0
    cohere_model: str = "rerank-english-v3.0"
    cohere_api_key: Secret = None
    cohere_base_url: Text = None
    cohere_timeout_s: Seconds = 60.0
    jina_model: str = "jina-reranker-v2-base-multilingual"
    jina_api_key: Secret = None
    jina_base_url: Text = None
    jina_timeout_s: Seconds = 60.0
    vllm_model: Text = None
    vllm_api_key: Secret = None
    vllm_base_url: Text = None
    vllm_timeout_s: Seconds = 60.0
    openrouter_model: str = "cohere/rerank-v3.5"
    openrouter_api_key: Secret = None
    openrouter_timeout_s: Seconds = 60.0
    zeroentropy_model: str = "zerank-2"
    zeroentropy_api_key: Secret = None
    zeroentropy_timeout_s: Seconds = 60.0
    siliconflow_model: str = "BAAI/bge-reranker-v2-m3"
    siliconflow_api_key: Secret = None
    siliconflow_timeout_s: Seconds = 60.0
    alibaba_model: str = "qwen3-rerank"
    alibaba_api_key: Secret = None
    alibaba_timeout_s: Seconds = 60.0
    litellm_model: str = "cohere/rerank-english-v3.0"
    litellm_api_base: Text = None
    litellm_api_key: Secret = None
    litellm_max_tokens_per_doc: Maybe = None
    send_bank_as_header: Flag = False


class Rerankers(Section):
    """The chain of rerankers: the first that answers serves; behind the last, the fused order."""

    members: tuple[RerankerMember, ...] = (RerankerMember(),)


class Limits(Section):
    """What keeps one tenant from the others, and the process from drowning."""

    recall_queue_max: Count = 256
    """Recalls that may wait at the door of one process; above it 503."""
    tenant_max_concurrent: Count = 0
    """Recalls of one tenant at once, running and waiting, in all processes; 0 = no limit."""
    tenant_requests_per_s: Annotated[float, Field(ge=0)] = 0.0
    """Sustained requests of one tenant per second, in all processes; 0 = no limit."""
    tenant_burst: Positive = 20
    """Requests that a tenant may send at once on top of the sustained rate."""
    write_max_concurrent: Positive = 8
    """Writes at once per process; the rest wait."""
    write_queue_max: Count = 64
    """Writes that may wait; above it 503."""
    require_api_key: Flag = False
    """true: a request needs a key made with `fourfold keys`; its tenant is the key's."""


class Worker(Section):
    """Background operations."""

    worker_enabled: Flag = True
    """Run queued operations in this process."""
    worker_poll_interval_ms: Positive = 500
    """How often to look for work."""
    worker_http_port: Annotated[int, Field(ge=1, le=65535)] = 8889
    """Accepted for compatibility: the worker has no port of its own."""


class Autoscale(Section):
    """Replicas follow the queue: enough to work off what waits within `drain_s`."""

    min_replicas: Positive = 1
    max_replicas: Positive = 4
    drain_s: Seconds = 1.0
    """The queue should be empty after so many seconds."""
    upscale_delay_s: Annotated[float, Field(ge=0)] = 4.0
    downscale_delay_s: Annotated[float, Field(ge=0)] = 300.0


class Stage(Section):
    """Where a stage runs: inside its caller's process, or as a Serve deployment of its own."""

    placement: Literal["inline", "deployment"] = "inline"
    replicas: Positive = 1
    cpus: Annotated[float, Field(ge=0)] = 0.0
    gpus: Annotated[float, Field(ge=0)] = 0.0
    """Share of a GPU to schedule by; memory is bounded by the byte budgets."""
    max_ongoing: Positive = 64
    """Calls at once per replica."""
    max_queued: Positive = 256
    """Calls that may wait per caller; above it 503."""
    autoscale: Autoscale | None = None


class Stages(Section):
    """One entry per stage. Everything inline is one process: the cheapest on a small machine."""

    recall: Stage = Stage(max_ongoing=512, max_queued=1024)
    retriever: Stage = Stage()
    embedder: Stage = Stage()
    reranker: Stage = Stage()
    ingest: Stage = Stage()
    ranges: Stage = Stage()
    """Vectors and postings of banks above bank_shard_rows: with a deployment of its own such a bank
    is split over its replicas; inline it lies in the process that holds the bank."""


class Settings(BaseModel):
    """Everything that can be set."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    server: Server = Server()
    database: Database = Database()
    banks: Banks = Banks()
    embeddings: Embeddings = Embeddings()
    rerankers: Rerankers = Rerankers()
    recall: RecallSettings = RecallSettings()
    retain: RetainSettings = RetainSettings()
    llm: LLMSection = LLMSection()
    limits: Limits = Limits()
    worker: Worker = Worker()
    stages: Stages = Stages()
    warnings: tuple[str, ...] = ()
    """What was accepted but has no effect, or was replaced by a default; said at start."""

    @model_validator(mode="after")
    def _ranges(self) -> Settings:
        recall, retain = self.recall, self.retain
        _need(
            "bank_shard_rows",
            self.banks.bank_shard_rows > 0 or self.stages.ranges.placement == "inline",
            "above 0 where stages.ranges is a deployment",
        )
        for name in ("low", "mid", "high"):
            _need(f"recall_budget_fixed_{name}", getattr(recall, f"recall_budget_fixed_{name}") > 0)
            ratio = getattr(recall, f"recall_budget_adaptive_{name}")
            _need(f"recall_budget_adaptive_{name}", ratio > 0)
        for name in ("semantic", "graph_seed", "temporal_semantic"):
            floor = getattr(recall, f"{name}_min_similarity")
            _need(f"{name}_min_similarity", floor is None or 0 <= floor <= 1, "from 0 to 1")
        _need("recall_budget_min", recall.recall_budget_min > 0)
        _need(
            "recall_budget_max",
            recall.recall_budget_min <= recall.recall_budget_max,
            "at least recall_budget_min",
        )
        _need("graph_quota", 0 <= recall.graph_quota <= 10, "from 0 to 10")
        _need("recall_max_query_tokens", recall.recall_max_query_tokens >= 0, "0 or more")
        for name in ("recall_max_concurrent", "recall_timeout_s", "link_expansion_timeout_s"):
            _need(name, getattr(recall, name) > 0)
        _need("fiscal_year_start_month", 1 <= recall.fiscal_year_start_month <= 12, "from 1 to 12")
        for name in (
            "retain_chunk_size",
            "retain_entity_resolution_batch_size",
            "retain_entity_resolution_max_candidates",
        ):
            _need(name, getattr(retain, name) > 0)
        for name in ("entity_trgm_similarity_threshold", "entity_intrabatch_merge_similarity"):
            _need(name, 0 < getattr(retain, name) <= 1, "above 0, at most 1")
        _need(
            "text_search_language",
            re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", retain.text_search_language) is not None,
            "letters, digits and underscores, no leading digit",
        )
        return self


def _need(name: str, holds: bool, rule: str = "above 0") -> None:
    if not holds:
        raise ValueError(f"{name} must be {rule}")
