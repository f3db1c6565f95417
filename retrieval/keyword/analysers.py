"""The analysers that this process shares: warm ones are worth keeping."""

from __future__ import annotations

from functools import lru_cache

from retrieval.keyword.analyser import Analyser
from retrieval.settings import RetainSettings
from retrieval.store.heads import BankHead


@lru_cache(maxsize=64)
def analyser(language: str, segmenter: str) -> Analyser:
    """That of a language, with what cuts scripts without spaces."""
    return Analyser(language, segmenter)


def analyser_for(settings: RetainSettings) -> Analyser:
    return analyser(settings.text_search_language, settings.text_search_segmenter)


def analyser_of(settings: RetainSettings, head: BankHead) -> Analyser:
    """That of a bank, by what it sets for itself over these settings."""
    return analyser_for(settings.with_overrides(head.config))
