"""Names of the Hindsight API server's environment that differ from ours, or do nothing here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

ALIASES: Mapping[str, str] = {
    "RETAIN_WALL_TIMEOUT": "RETAIN_WALL_TIMEOUT_S",
    "LINK_EXPANSION_TIMEOUT": "LINK_EXPANSION_TIMEOUT_S",
    "DB_COMMAND_TIMEOUT": "DB_COMMAND_TIMEOUT_S",
    "DB_ACQUIRE_TIMEOUT": "DB_ACQUIRE_TIMEOUT_S",
    "DB_STATEMENT_TIMEOUT": "DB_STATEMENT_TIMEOUT_S",
    "MODEL_INIT_TIMEOUT": "MODEL_INIT_TIMEOUT_S",
    "REFLECT_WALL_TIMEOUT": "REFLECT_WALL_TIMEOUT_S",
    "TEXT_SEARCH_EXTENSION_NATIVE_LANGUAGE": "TEXT_SEARCH_LANGUAGE",
    "RERANKER_TEI_HTTP_TIMEOUT": "RERANKER_TEI_HTTP_TIMEOUT_S",
    **{
        f"RERANKER_{name}_TIMEOUT": f"RERANKER_{name}_TIMEOUT_S"
        for name in (
            "COHERE",
            "JINA",
            "VLLM",
            "OPENROUTER",
            "ZEROENTROPY",
            "SILICONFLOW",
            "ALIBABA",
        )
    },
}
"""Their name -> ours, which carries the unit."""

UNPREFIXED: Mapping[str, str] = {"HINDSIGHT_MCP_BANK_ID": "MCP_BANK_ID"}
"""Variables of theirs without the common prefix -> our name."""


def _one_of(*words: str) -> Callable[[Any], bool]:
    return lambda value: value in words


def _positive(value: Any) -> bool:
    try:
        return float(value) > 0
    except (TypeError, ValueError):
        return True  # not a number: validation says so


REPLACED: Mapping[str, tuple[Callable[[Any], bool], Any]] = {
    "recall_budget_function": (_one_of("fixed", "adaptive"), "fixed"),
    "recency_decay_function": (_one_of("linear", "exponential", "none"), "linear"),
    "recency_decay_linear_window_days": (_positive, 365.0),
    "retain_extraction_mode": (
        _one_of("concise", "verbose", "custom", "verbatim", "chunks"),
        "concise",
    ),
}
"""Field -> (is the value known, what replaces it): a warning, no error."""

WITHOUT_EFFECT: Mapping[str, type] = {
    **dict.fromkeys(
        (
            "RECALL_CONNECTION_BUDGET",
            "BM25_MAX_QUERY_TERMS", "ANN_MAX_SCAN_TUPLES", "VECTOR_INDEX_MIN_ROWS",
            "RETAIN_MAX_COMPLETION_TOKENS", "RETAIN_CHUNK_BATCH_SIZE", "RETAIN_BATCH_TOKENS",
            "RETAIN_MAX_CONCURRENT", "EMBEDDINGS_ONNX_DIMENSIONS",
            "EMBEDDINGS_ONNX_MAX_TOKENS", "EMBEDDINGS_GEMINI_OUTPUT_DIMENSIONALITY",
            "RERANKER_FLASHRANK_BATCH_SIZE",
        ),
        int,
    ),
    **dict.fromkeys(
        (
            "BM25_SELECTIVE_TERMS", "ANN_ITERATIVE_SCAN",
            "EMBEDDINGS_ONNX_NORMALIZE",
            "RERANKER_FLASHRANK_CPU_MEM_ARENA",
        ),
        str,  # their parser takes any text: what is not true is false
    ),
    **dict.fromkeys(
        (
            "GRAPH_RETRIEVER", "EMBEDDINGS_ONNX_MODEL_ID",
            "EMBEDDINGS_ONNX_MODEL_PATH", "EMBEDDINGS_ONNX_TOKENIZER_NAME_OR_PATH",
            "EMBEDDINGS_ONNX_FILE", "EMBEDDINGS_ONNX_OUTPUT_NAME", "EMBEDDINGS_ONNX_POOLING",
            "EMBEDDINGS_ONNX_QUERY_PREFIX", "EMBEDDINGS_ONNX_PASSAGE_PREFIX",
            "EMBEDDINGS_GEMINI_MODEL",
            "EMBEDDINGS_LITELLM_SDK_MODEL",
            "RERANKER_GOOGLE_MODEL", "RERANKER_FLASHRANK_MODEL", "RERANKER_FLASHRANK_CACHE_DIR",
            "RERANKER_LITELLM_SDK_MODEL", "READ_DATABASE_URL",
        ),
        str,
    ),
}  # fmt: skip
"""Settings of parts that are not built here, with the type that their values must have."""

REASONS: Mapping[str, str] = {
    "READ_DATABASE_URL": (
        "recalls search in memory, and ask the primary for the bank's version alone, so that they"
        " see every acknowledged write; a replica could be behind"
    ),
}
"""Why, where somebody may count on the setting."""
