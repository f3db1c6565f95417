"""Budgets: low, mid and high as numbers."""

from __future__ import annotations

from retrieval.settings import RecallSettings
from retrieval.types import Budget


def recall_budget(settings: RecallSettings, budget: Budget, max_tokens: int) -> int:
    """B: the limit of every arm and fact type. Fixed by default, or a share of max_tokens."""
    if settings.recall_budget_function == "adaptive":
        ratio = {
            Budget.LOW: settings.recall_budget_adaptive_low,
            Budget.MID: settings.recall_budget_adaptive_mid,
            Budget.HIGH: settings.recall_budget_adaptive_high,
        }[budget]
        wanted = round(max_tokens * ratio)
        return max(settings.recall_budget_min, min(wanted, settings.recall_budget_max))
    return {
        Budget.LOW: settings.recall_budget_fixed_low,
        Budget.MID: settings.recall_budget_fixed_mid,
        Budget.HIGH: settings.recall_budget_fixed_high,
    }[budget]


def reranker_cap(settings: RecallSettings, budget: Budget) -> int:
    """How many candidates a reranker reads at most; a budget's own cap wins where it is set."""
    own = {
        Budget.LOW: settings.reranker_max_candidates_low,
        Budget.MID: settings.reranker_max_candidates_mid,
        Budget.HIGH: settings.reranker_max_candidates_high,
    }[budget]
    return own if own > 0 else settings.reranker_max_candidates


def graph_hops(settings: RecallSettings, budget: Budget) -> int:
    return {
        Budget.LOW: settings.graph_hops_low,
        Budget.MID: settings.graph_hops_mid,
        Budget.HIGH: settings.graph_hops_high,
    }[budget]
