"""The shape of the settings: sections of frozen pydantic models.

A field's public name is its name in upper case behind `HINDSIGHT_API_` or `FOURFOLD_`; in a file
it stands under its section in lower case. Names carry the units. Defaults of settings that the
Hindsight API server has are that server's.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from retrieval.lifecycle.webhooks.guard import AddressGuard
from retrieval.settings import RecallSettings, ReflectSettings, RetainSettings
from retrieval.settings.consolidation import ConsolidationSettings
from retrieval.settings.mental import MentalSettings
from retrieval.settings.transfer import TransferSettings
from retrieval.store.outbox import EVENTS
from serve.settings.fields import (
    Count,
    Count64,
    Flag,
    Listed,
    Positive,
    Seconds,
    Secret,
    SettingsSection,
    Text,
    blank_is_unset,
    listed,
)
from serve.settings.inference import Embeddings, Rerankers
from serve.settings.llm import LLMSection


def _hosts(value: tuple[str, ...]) -> tuple[str, ...]:
    AddressGuard.of(value)
    return value


class Server(SettingsSection):
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
    log_max_bytes: Annotated[int, Field(ge=4096, le=2**40)] = 32 * 2**20
    """Size at which server.log is rotated to server.log.1."""
    log_files_kept: Annotated[int, Field(ge=0, le=1000)] = 4
    """How many such older files are kept."""
    access_log: Flag = False
    """Log every request."""
    slow_recall_s: Seconds = 1.0
    """Recalls that take longer are logged with what they spent their time on."""
    traces_endpoint: Text = None
    """Where spans go, such as http://collector:4318/v1/traces (OTLP over HTTP); unset: nowhere.
    Needs the extra `traces`."""
    traces_sampled: Annotated[float, Field(ge=0, le=1)] = 0.01
    """Share of requests that begin a trace, where they bring none."""
    max_body_bytes: Positive = 16 * 2**20
    """Largest body of a retain or an import, decoded; above it the answer is 413."""
    max_small_body_bytes: Positive = 2**20
    """Largest body of every other request, recalls among them."""
    body_memory_bytes: Positive = 64 * 2**20
    """Bodies above 64 KiB that a process holds at once; a tenant may hold as many bytes as are
    left free, and is asked to come again (503) beyond. At least twice max_body_bytes is used."""
    answer_memory_bytes: Positive = 128 * 2**20
    """Answers to reads above 64 KiB that a process holds until their clients have read them; a
    tenant may hold as many bytes as are left free, and is asked to come again (503) beyond."""
    allowed_hosts: Listed = ()
    """Without required keys, names under which the server may be asked beside its addresses and
    localhost: `host`, `.domain` for all of a domain, `*` for any; with commas. Others get 403."""
    cors_origins: Listed = ()
    """Origins such as https://app.example.org whose pages may use the API, `*` for all; with
    commas. Empty: none."""
    enable_docs: Flag = True
    """Serve /docs, /redoc and /openapi.json."""
    enable_metrics: Flag = True
    """Serve /metrics."""
    metrics_api_key: Secret = None
    """Key that a scrape of /metrics has to bring as its bearer token; unset: none."""
    operator_api_key: Secret = None
    """Key of whoever runs the server: with it as bearer token, /v1/admin manages tenants and keys.
    Unset: only a server without keys that listens to this machine alone has these routes."""
    inspector: Flag = True
    """Serve the pages of the recall inspector at /inspector/."""
    max_connections_per_address: Count = 512
    """TCP connections of one client address at once, loopback excepted (HAProxy only); 0 = no
    limit, where every client comes through one proxy."""
    haproxy: Flag = True
    """HAProxy and throughput mode in front (Linux): about a tenth of the CPU time per request."""
    sample_bank: Flag = True
    """Load the sample bank into an empty data folder on the first start."""
    enable_bank_config_api: Flag = True
    """false answers 404 on the config routes."""
    drain_s: Seconds = 2.0
    """How long running requests may finish after a stop."""


_IDENTIFIER = r"^[A-Za-z_][A-Za-z0-9_$-]{0,62}$"


class Database(SettingsSection):
    """PostgreSQL. Without a URL the server starts its own."""

    database_url: Secret = None
    """DSN of PostgreSQL 15 to 18; unset starts the embedded one. With several hosts, end it in
    `target_session_attrs=read-write`: after a failover the new primary is found by itself."""
    database_schema: Annotated[str, Field(pattern=_IDENTIFIER)] = "public"
    """Schema of our tables; made if it is not there."""
    database_app_role: Annotated[str, Field(pattern=_IDENTIFIER)] | None = None
    """Role that servers connect as: `fourfold migrate`, run as the owner of the tables, gives it
    rows to read and write and nothing else. Then servers need RUN_MIGRATIONS_ON_STARTUP=false."""
    database_keys_role: Annotated[str, Field(pattern=_IDENTIFIER)] | None = None
    """Role that `fourfold keys` connects as: then the servers' role makes and deletes no keys."""
    run_migrations_on_startup: Flag = True
    """`fourfold serve` brings the schema up to date when it starts. On a cluster, and where this is
    false, only `fourfold migrate` does."""
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


class Banks(SettingsSection):
    """What a replica keeps of banks in memory."""

    bank_memory_bytes: Annotated[int, Field(ge=1)] = 2 * 2**30
    """Budget of resident banks; the least recently used leave first."""
    ingest_bank_memory_bytes: Annotated[int, Field(ge=1)] = 512 * 2**20
    """Budget of the banks that a replica of the stage ingest holds to link new memories, where
    that is a deployment; at most bank_memory_bytes."""
    gpu_bank_memory_bytes: Annotated[int, Field(ge=1)] = 8 * 2**30
    """GPU memory of the vectors of resident banks."""
    bank_warm: Listed = ()
    """Banks that a retriever loads at its start, most important first, as long as there is room:
    `bank`, or `tenant/bank`; separated by commas in the environment."""
    vector_backend: Literal["auto", "cpu", "gpu"] = "auto"
    """Where vectors are scanned; auto takes the GPU that the stage was given."""
    bank_shard_rows: Count = 500_000
    """Vectors of a larger bank are held and searched in ranges of this many memories, by the
    replicas of the stage `ranges` where that is a deployment; 0 = in one."""
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


class ServerLimits(SettingsSection):
    """What keeps one tenant from the others, and the process from drowning."""

    recall_queue_max: Count = 256
    """Recalls of one tenant that may wait in one process; above it 503."""
    tenant_max_concurrent: Count = 0
    """Recalls of one tenant at once, running and waiting, in all processes; 0 = no limit."""
    tenant_requests_per_s: Annotated[float, Field(ge=0)] = 0.0
    """Sustained requests of one tenant per second, in all processes; 0 = no limit."""
    tenant_burst: Positive = 20
    """Requests that a tenant may send at once on top of the sustained rate."""
    write_max_concurrent: Positive = 8
    """Writes at once per process; the rest wait."""
    write_queue_max: Count = 64
    """Writes of one tenant that may wait in one process; above it 503."""
    read_max_concurrent: Positive = 4
    """Lists, statistics and single reads at once per process; the rest wait."""
    read_queue_max: Count = 64
    """Reads of one tenant that may wait in one process; above it 503."""
    embed_wait_s: Seconds = 1.0
    """Most seconds that a recall waits for the stage embedder where that is a deployment; then it
    answers without the semantic arm."""
    rerank_wait_s: Seconds = 2.0
    """Most seconds that a recall waits for the stage reranker where that is a deployment; then its
    results keep the fused order."""
    wrong_keys_per_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 10.0
    """Wrong keys that one address may try, a hundred at once; above it 429, whatever the key, for
    keys that did not work here before. 0 = any number."""
    refusals_per_s: Count = 50
    """Refusals (4xx, 503) that one tenant, or all without a key, get in a second; those beyond wait
    for their time, at most until 5 seconds after the request came. 0 = none does."""
    require_api_key: Flag = False
    """true: a request needs a key made with `fourfold keys`; its tenant is the key's."""


class Files(SettingsSection):
    """Uploaded files."""

    enable_file_upload_api: Flag = True
    """false answers 404 on files/retain."""
    file_conversion_max_batch_size: Annotated[int, Field(ge=1, le=1000)] = 10
    """Most files of one upload."""
    file_conversion_max_batch_size_mb: Annotated[int, Field(ge=1, le=2000)] = 100
    """Most MiB of one upload; they lie on disk while it comes, and in the database until they are
    read."""
    file_delete_after_retain: Flag = True
    """false keeps a file, up to 20 MB, as an attachment of its document."""
    file_waiting_mb: Annotated[int, Field(ge=1, le=1_000_000)] = 1024
    """MiB of one tenant's files that may wait to be read; above it 429."""


class BackgroundWork(SettingsSection):
    """Background operations."""

    worker_enabled: Flag = True
    """Run queued operations in this process."""
    worker_poll_interval_ms: Positive = 500
    """How often to look for work."""
    worker_max_slots: Annotated[
        Annotated[int, Field(ge=1, le=1000)] | None, BeforeValidator(blank_is_unset)
    ] = None
    """Operations at once in this process; unset: 4, or as many as the language model of retains may
    be asked at once."""
    worker_http_port: Annotated[int, Field(ge=1, le=65535)] = 8889
    """Accepted for compatibility: the worker has no port of its own."""


class MCP(SettingsSection):
    """The Model Context Protocol, at /mcp and /mcp/{bank}."""

    mcp_enabled: Flag = True
    """Answer there."""
    mcp_enabled_tools: Listed = ()
    """Names of the tools that there are, with commas; empty: all. A bank's own
    mcp_enabled_tools leaves out more."""
    mcp_toolset: Literal["all", "memory"] = "all"
    """memory: six tools alone, which take little of a model's context."""
    mcp_instructions: Text = None
    """What models are told beside our own words, when they connect and with retain and recall."""
    mcp_auth_token: Secret = None
    """A token that opens MCP to the default tenant, beside the keys where these are required."""
    mcp_bank_id: Annotated[str, Field(min_length=1, max_length=512)] = "default"
    """The bank of a request to /mcp that names none. HINDSIGHT_MCP_BANK_ID is read, too."""


class Webhooks(SettingsSection):
    """What others are told of banks, and to where."""

    webhook_secret_key: Secret = None
    """Seals the secrets of webhooks in the database; several with commas while it is changed, the
    new one first. Unset: a key that lies in the database itself."""
    webhook_allowed_hosts: Annotated[Listed, AfterValidator(_hosts)] = ()
    """Names (`host`, `.domain`), addresses and networks (10.1.0.0/16) that webhooks may lead to
    although they are not of the public network; with commas."""
    webhook_expose_response_body: Flag = False
    """Keep the first 4 KiB of what receivers answer."""
    webhook_url: Text = None
    """A receiver that is told of all banks."""
    webhook_secret: Secret = None
    """What it is signed with."""
    webhook_event_types: Annotated[
        tuple[Literal[EVENTS], ...], BeforeValidator(listed)  # type: ignore[valid-type]
    ] = ("consolidation.completed",)
    """What it is told; with commas."""
    webhook_retention_days: Annotated[float, Field(gt=0, le=3650)] = 30.0
    """How long deliveries that have ended are kept."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that open, the one that seals first."""
        key = self.webhook_secret_key
        return () if key is None else listed(key.get_secret_value())


class Erasure(SettingsSection):
    """How what is deleted goes for good."""

    erase_after_s: Annotated[float, Field(ge=0, le=31_536_000)] = 86_400.0
    """What was deleted is gone from segments, caches and logs after this many seconds; 0 = at once.
    What is asked for by `/erase` never waits."""
    erasure_ledger: Text = None
    """A file outside of the database that notes deletions by id, so that a restore does not bring
    back what was erased. Its folder must be there."""
    erase_signing_key: Secret = None
    """Signs the reports of erasures (HMAC-SHA256)."""
    operation_retention_days: Annotated[float, Field(ge=0, le=3650)] = 30.0
    """How long operations that have ended are kept; 0 = for ever."""


class Audit(SettingsSection):
    """The log of who read or changed what."""

    audit_log_enabled: Flag = False
    """Note requests about banks; a bank may say otherwise."""
    audit_log_actions: Listed = ()
    """Only these actions, with commas; empty: all."""
    audit_log_bodies: Literal["none", "redacted", "full"] = "redacted"
    """What is kept of requests and answers. redacted: lengths and keyed hashes in the place of
    texts; in none are secrets."""
    audit_log_addresses: Flag = False
    """Note the caller's address."""
    audit_log_retention_days: Annotated[float, Field(ge=0, le=36_500)] = 90.0
    """How long entries are kept; 0 = for ever."""


class Autoscale(SettingsSection):
    """Replicas follow what the stage reports: tokens of a model, busy loops, bytes of banks, age of
    operations."""

    min_replicas: Positive = 1
    """Never fewer."""
    max_replicas: Positive = 4
    """Never more."""
    drain_s: Seconds = 1.0
    """A model's queue should be empty after this many seconds."""
    upscale_delay_s: Annotated[float, Field(ge=0)] = 4.0
    """How long more has to be wanted before replicas are added."""
    downscale_delay_s: Annotated[float, Field(ge=0)] = 300.0
    """How long fewer have to suffice before replicas are stopped."""


class Stage(SettingsSection):
    """Where a stage runs: inside its caller's process, or as a Serve deployment of its own."""

    placement: Literal["inline", "deployment"] = "inline"
    """inline: in the process of its caller."""
    replicas: Positive = 1
    """Replicas where nothing scales them."""
    cpus: Annotated[float, Field(ge=0)] = 0.0
    """CPUs of a replica to schedule by; a local model takes as many threads."""
    gpus: Annotated[float, Field(ge=0)] = 0.0
    """Share of a GPU to schedule by; memory is bounded by the byte budgets."""
    memory_bytes: Count64 = 0
    """Memory of a replica to schedule by: 1.3 times its bank budget and its model; 0 = none."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels that a node must have, such as `fourfold-role: bank`."""
    accelerator: Text = None
    """Kind of accelerator that a node must have, such as L4."""
    resources: dict[str, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    """Custom resources of a node that a replica takes."""
    max_per_node: Annotated[int, Field(ge=0, le=100)] = 0
    """Replicas on one node at most, so that no node's end takes all of them; 0 = any number."""
    max_ongoing: Positive = 64
    """Calls at once per replica."""
    max_queued: Positive = 256
    """Calls that may wait per caller; above it 503."""
    autoscale: Autoscale | None = None
    """Bounds between which the number of replicas follows the load; unset: it does not."""
    surge_percent: Annotated[int, Field(ge=0, le=100)] = 25
    """Replicas that a roll starts beyond the wanted number before it stops any, of a stage with
    several. The nodes need room for them: a roll waits for it. 0: a fifth is stopped first, and the
    banks of those are loaded twice."""


class StagePlacement(SettingsSection):
    """One entry per stage. Everything inline is one process: the cheapest on a small machine."""

    recall: Stage = Stage(max_ongoing=8192, max_queued=8192)
    """What answers HTTP; its placement means nothing."""
    retriever: Stage = Stage()
    """Resident banks, and the search of them."""
    embedder: Stage = Stage()
    """The model of embeddings."""
    reranker: Stage = Stage()
    """The chain of rerankers."""
    ingest: Stage = Stage()
    """Writes and background operations."""
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
    consolidation: ConsolidationSettings = ConsolidationSettings()
    reflect: ReflectSettings = ReflectSettings()
    mental_models: MentalSettings = MentalSettings()
    transfer: TransferSettings = TransferSettings()
    llm: LLMSection = LLMSection()
    limits: ServerLimits = ServerLimits()
    files: Files = Files()
    worker: BackgroundWork = BackgroundWork()
    mcp: MCP = MCP()
    webhooks: Webhooks = Webhooks()
    erasure: Erasure = Erasure()
    audit: Audit = Audit()
    stages: StagePlacement = StagePlacement()
    warnings: tuple[str, ...] = ()
    """What was accepted but has no effect, or was replaced by a default; said at start."""

    @property
    def of_banks(
        self,
    ) -> tuple[RecallSettings, RetainSettings, ConsolidationSettings, ReflectSettings]:
        """The sections of which a bank may set fields for itself."""
        return self.recall, self.retain, self.consolidation, self.reflect

    @model_validator(mode="before")
    @classmethod
    def _one_timezone(cls, data: Any) -> Any:
        """A setting of recalls that retains read too."""
        recall = data.get("recall") if isinstance(data, dict) else None
        if not isinstance(recall, dict) or "timezone" not in recall:
            return data
        return {**data, "retain": {**(data.get("retain") or {}), "timezone": recall["timezone"]}}

    @model_validator(mode="after")
    def _agree(self) -> Settings:
        _need(
            "bank_shard_rows",
            self.banks.bank_shard_rows > 0 or self.stages.ranges.placement == "inline",
            "above 0 where stages.ranges is a deployment",
        )
        for name in StagePlacement.model_fields:
            stage: Stage = getattr(self.stages, name)
            scales = name == "recall" or stage.placement == "deployment"
            _need(
                f"stages.{name}.autoscale",
                stage.autoscale is None or scales,
                "left out where the stage is inline: it has no replicas of its own, and reports"
                " nothing to scale by",
            )
        _need(
            "recall_budget_max",
            self.recall.recall_budget_min <= self.recall.recall_budget_max,
            "at least recall_budget_min",
        )
        return self


def _need(name: str, holds: bool, rule: str = "above 0") -> None:
    if not holds:
        raise ValueError(f"{name} must be {rule}")
