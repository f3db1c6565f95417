"""What can be set about an embedder and a reranker. Frozen, validated when made.

Reading the environment is not done here. Sizes carry their unit in the name. `None` means "the
provider's or the model's own". Defaults are those of the settings of the same meaning in the
Hindsight API server, so that an existing deployment's environment keeps its sense.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

PRECISIONS = ("auto", "fp32", "bf16", "fp16", "int8")

EMBEDDER_PROVIDERS = (
    "local",
    "tei",
    "openai",
    "openrouter",
    "requesty",
    "litellm",
    "cohere",
    "zeroentropy",
)
RERANKER_PROVIDERS = (
    "local",
    "tei",
    "cohere",
    "jina",
    "vllm",
    "openrouter",
    "siliconflow",
    "alibaba",
    "zeroentropy",
    "litellm",
    "rrf",
)


REMOTE_LIMIT_S = 60.0
RERANKER_LIMITS_S: Mapping[str, float | None] = {"local": None, "rrf": None, "tei": 30.0}
"""The most seconds that one call may take, where it is not `REMOTE_LIMIT_S`; None: no limit."""


class ModelSettingsError(ValueError):
    """A setting that cannot be right; names the field and what would be."""


def _at_least(low: float, **fields: float | None) -> None:
    for name, value in fields.items():
        if value is not None and value < low:
            raise ModelSettingsError(f"{name} is {value}: it must be at least {low:g}")


def _known(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ModelSettingsError(f"{name} is {value!r}: choose one of {', '.join(choices)}")


def _needs_url(provider: str, url: str) -> None:
    if not url.startswith(("http://", "https://")):
        raise ModelSettingsError(f"provider {provider} needs a url that starts with http(s)://")


@dataclass(frozen=True, slots=True)
class Compute:
    """How a local model uses its machine.

    device: "auto" (CUDA, else MPS where allowed, else CPU), "cpu", "cuda", "cuda:1", "mps".
    precision: "auto" is fp16 on a GPU (bf16 for models that are not of the BERT family), on a CPU
    bf16 where it has the instructions, else fp32. "int8" is for cross-encoders of the BERT family
    on a CPU: its instructions multiply twice as fast, scores move a little
    (models/local/kernels/int8.py).
    threads: 0 = what the control group and the CPU affinity allow.
    batch_tokens / bulk_batch_tokens: bounds of one batch; 0 = by device (CPU 2,048 and 512: at
    most about 0.1 s for a MiniLM; GPU 16,384, the default of TEI).
    queued_tokens: bound of each waiting line; 0 = about a million.
    """

    device: str = "auto"
    allow_mps: bool = False
    precision: str = "auto"
    threads: int = 0
    batch_tokens: int = 0
    bulk_batch_tokens: int = 0
    queued_tokens: int = 0
    init_timeout_s: float = 300.0

    def __post_init__(self) -> None:
        _known("precision", self.precision, PRECISIONS)
        _at_least(
            0,
            threads=self.threads,
            batch_tokens=self.batch_tokens,
            bulk_batch_tokens=self.bulk_batch_tokens,
            queued_tokens=self.queued_tokens,
        )
        if self.init_timeout_s <= 0:
            raise ModelSettingsError("init_timeout_s must be positive")


@dataclass(frozen=True, slots=True)
class EmbedderSettings:
    """One embedder.

    model: a folder, a hub id, or "packaged" (all-MiniLM-L6-v2 from its wheel, no network).
    revision: the commit of a hub id; None: the pinned one of a default model, else the newest.
    max_input_tokens: cut texts to this many cl100k tokens before anything else sees them.
    query_prefix / passage_prefix: for servers that take plain text; a local model uses its own
    prompts. batch_size: texts per HTTP call (default: tei 32, cohere 96, others 100).
    dimensions: asked of servers that can shorten vectors. max_concurrent: HTTP calls at once.
    cached_queries: how many recent query vectors are kept.
    """

    provider: str = "local"
    model: str | None = None
    revision: str | None = None
    url: str = ""
    api_key: str = ""
    batch_size: int | None = None
    max_concurrent: int = 8
    timeout_s: float = 30.0
    dimensions: int | None = None
    query_prefix: str = ""
    passage_prefix: str = ""
    max_input_tokens: int | None = None
    cached_queries: int = 1024
    compute: Compute = Compute()

    def __post_init__(self) -> None:
        _known("embedder provider", self.provider, EMBEDDER_PROVIDERS)
        if self.provider in ("tei", "litellm") or self.url:
            _needs_url(self.provider, self.url)
        _at_least(
            1,
            batch_size=self.batch_size,
            dimensions=self.dimensions,
            max_input_tokens=self.max_input_tokens,
            max_concurrent=self.max_concurrent,
        )
        _at_least(0, cached_queries=self.cached_queries)
        if self.timeout_s <= 0:
            raise ModelSettingsError("timeout_s must be positive")
        if self.compute.precision == "int8":
            raise ModelSettingsError(
                "precision is 'int8', which is for rerankers: vectors are stored, choose bf16"
            )


@dataclass(frozen=True, slots=True)
class RerankerSettings:
    """One member of the reranker chain.

    model, revision: as for the embedder; for servers the name they know. batch_size: pairs per
    batch (default: local 32, on a CPU; on a GPU tokens alone decide; tei 128, other servers all
    pairs of a recall). max_concurrent: HTTP calls at once, over all recalls (default 8); a local
    model is bounded in tokens instead. timeout_s: the most one call may take (default: tei 30,
    other servers 60, local none).
    raw_scores: ask TEI for logits. send_bank_as_header: tell the server which bank asks.
    """

    provider: str = "local"
    model: str | None = None
    revision: str | None = None
    url: str = ""
    api_key: str = ""
    batch_size: int | None = None
    max_concurrent: int | None = None
    timeout_s: float | None = None
    max_tokens_per_doc: int | None = None
    raw_scores: bool = False
    send_bank_as_header: bool = False
    compute: Compute = Compute()

    @property
    def limit_s(self) -> float | None:
        """The most seconds that one call may take, the provider's default in place of None."""
        return self.timeout_s or RERANKER_LIMITS_S.get(self.provider, REMOTE_LIMIT_S)

    def __post_init__(self) -> None:
        _known("reranker provider", self.provider, RERANKER_PROVIDERS)
        if self.provider in ("tei", "vllm", "litellm") or self.url:
            _needs_url(self.provider, self.url)
        _at_least(
            1,
            batch_size=self.batch_size,
            max_concurrent=self.max_concurrent,
            max_tokens_per_doc=self.max_tokens_per_doc,
        )
        if self.timeout_s is not None and self.timeout_s <= 0:
            raise ModelSettingsError("timeout_s must be positive")
