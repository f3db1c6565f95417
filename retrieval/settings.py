"""What can be tuned in a recall and a retain.

Field names are the public setting names in lower case without their prefix; a bank overrides the
fields in `BANK_FIELDS` through its config. Units stand in the names. Defaults follow the public
configuration of the Hindsight API where it has the setting.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class RecallSettings:
    """Everything a recall reads. Immutable; `with_overrides` gives a bank's own copy."""

    # Budgets and packing
    recall_budget_function: Literal["fixed", "adaptive"] = "fixed"
    recall_budget_fixed_low: int = 100
    recall_budget_fixed_mid: int = 300
    recall_budget_fixed_high: int = 1000
    recall_budget_adaptive_low: float = 0.025
    recall_budget_adaptive_mid: float = 0.075
    recall_budget_adaptive_high: float = 0.25
    recall_budget_min: int = 20
    recall_budget_max: int = 2000
    recall_max_query_tokens: int = 500
    recall_max_concurrent: int = 32
    recall_prefer_observations: bool = False
    recall_timeout_s: float = 60.0

    # Stages
    enable_text_search: bool = True
    enable_temporal_retrieval: bool = True
    enable_graph_retrieval: bool = True
    enable_reranking: bool = True

    # Thresholds and arm limits
    # None: what the embedding model calls for (retrieval/arms/semantic.py).
    semantic_min_similarity: float | None = None
    graph_seed_min_similarity: float = 0.3
    temporal_semantic_min_similarity: float = 0.1
    bm25_min_score: float = 0.0
    bm25_k1: float = 1.2
    bm25_b: float = 0.75
    recall_max_candidates_per_source: int = 0
    link_expansion_per_entity_limit: int = 200
    link_expansion_timeout_s: float = 10.0
    graph_hub_damping: bool = True
    graph_hops_low: int = 1
    graph_hops_mid: int = 2
    graph_hops_high: int = 3

    # Time
    hemisphere: Literal["north", "south"] = "north"
    fiscal_year_start_month: int = 1
    temporal_day_first: bool | None = None
    event_windows: bool = True

    # Ranking
    # What puts the candidates in order before the cut: reciprocal ranks, calibrated scores
    # (retrieval/ranking/score_fusion.py), or turns; with `interleave` that order is served. With
    # a cap of 20 / 100 / 300, what is read holds 0.88 / 0.967 / 0.995 of the answers on two
    # conversations of LoCoMo with convex, 0.77 / 0.932 / 0.994 with rrf.
    fusion: Literal["rrf", "convex", "interleave"] = "rrf"
    recall_strategy_boosts: str = ""
    recency_decay_function: Literal["linear", "exponential", "none"] = "linear"
    recency_decay_linear_window_days: float = 365.0
    recency_decay_halflife_days: float = 90.0
    reranker_max_candidates: int = 300
    reranker_max_candidates_low: int = 0
    reranker_max_candidates_mid: int = 0
    reranker_max_candidates_high: int = 0
    # What only links found: read by a reranker with its path in front, and how many of them keep
    # a place whatever it reads (retrieval/ranking/survival.py). Read alone by a bi-encoder in the
    # place of a cross-encoder, all paragraphs are among the first five for 0.25 of MuSiQue's
    # questions (0.58 of HotpotQA's); 0.43 (0.72) with two places kept; 0.20 (0.62) with paths.
    rerank_graph_paths: bool = False
    graph_quota: int = 2
    default_tags_match: Literal["any", "any_strict"] = "any"

    def with_overrides(self, overrides: Mapping[str, Any]) -> RecallSettings:
        """These settings with a bank's overrides; keys that are no recall fields are left alone."""
        known = {k: v for k, v in overrides.items() if k in _RECALL_FIELDS and v is not None}
        return dataclasses.replace(self, **known) if known else self


_RECALL_FIELDS = frozenset(f.name for f in dataclasses.fields(RecallSettings))


@dataclass(frozen=True, slots=True)
class RetainSettings:
    """Everything a retain reads."""

    retain_extraction_mode: Literal["concise", "verbose", "custom", "verbatim", "chunks"] = (
        "concise"
    )
    retain_chunk_size: int = 3000
    retain_structured_chunk_size: int | None = None
    retain_mission: str | None = None
    retain_custom_instructions: str | None = None
    retain_default_strategy: str | None = None
    retain_strategies: Mapping[str, Mapping[str, Any]] | None = None
    retain_entity_lookup: Literal["trigram", "full"] = "trigram"
    retain_entity_resolution_batch_size: int = 100
    retain_entity_resolution_max_candidates: int = 200
    entity_trgm_similarity_threshold: float = 0.15
    entity_intrabatch_merge_similarity: float = 0.5
    retain_recognise_names: bool = True
    retain_date_text: bool = False
    retain_extract_causal_links: bool = True
    entity_labels: Sequence[Mapping[str, Any]] | None = None
    entities_allow_free_form: bool = True
    llm_output_language: str | None = None
    on_chunk_failure: Literal["fail", "chunk"] = "fail"
    semantic_link_min_similarity: float = 0.7
    semantic_link_top_k: int = 50
    store_document_text: bool = True
    text_search_language: str = "english"
    text_search_segmenter: Literal["bigram", "jieba"] = "bigram"
    retain_max_items: int = 10_000
    import_max_items: int = 10_000

    def with_overrides(self, overrides: Mapping[str, Any]) -> RetainSettings:
        """These settings with a bank's overrides; keys that are no retain fields are left alone."""
        known = {k: v for k, v in overrides.items() if k in _RETAIN_FIELDS and v is not None}
        return dataclasses.replace(self, **known) if known else self


_RETAIN_FIELDS = frozenset(f.name for f in dataclasses.fields(RetainSettings))
