"""What can be tuned in a recall and a retain: the one place where name, type, bounds, default and
meaning of each setting stand.

Field names are the public setting names in lower case without their prefix. A bank overrides the
fields that are marked PER_BANK through its config (retrieval/store/bankconfig.py). Units stand in
the names. Defaults follow the public configuration of the Hindsight API where it has the setting.
The classes do not check what they are made of: `check` does, for the server's settings by pydantic.
"""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, get_type_hints

import orjson
from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from retrieval import zones

_log = logging.getLogger(__name__)

PER_BANK = "per bank"
"""Marks, inside Annotated, what a bank may set for itself."""

MISSION_LIMIT = 20_000

ChunkSize = Annotated[int, Field(ge=1, le=200_000)]
"""Characters."""
SearchTokens = Annotated[int, Field(ge=1, le=1_000_000)]
"""Tokens of one search."""
LABEL_GROUPS = 50
"""Most groups of labels."""

_Count = Annotated[int, Field(ge=0, le=1_000_000)]
_Positive = Annotated[int, Field(ge=1, le=1_000_000)]
_Hops = Annotated[int, Field(ge=0, le=10)]
_Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
_Similarity = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
_PerToken = Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)]
_Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]
_Days = Annotated[float, Field(gt=0, le=1_000_000, allow_inf_nan=False)]
_Text = Annotated[str, Field(max_length=MISSION_LIMIT)]


def _language(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value):
        raise ValueError(
            "text_search_language must be letters, digits and underscores, no leading digit"
        )
    return value


def _bundles(value: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Mapping[str, Any]]:
    """Every key of a strategy is a retain setting that a bank may set, with a value it may have."""
    for name, bundle in value.items():
        for key, given in bundle.items():
            if key not in _in_strategies():
                raise ValueError(f"retain_strategies.{name}: {key!r} cannot be set in a strategy")
            if wanted := check(RetainSettings, key, given):
                raise ValueError(f"retain_strategies.{name}.{key} {wanted}")
    return value


Zone: TypeAlias = Annotated[str, Field(max_length=100), AfterValidator(zones.canonical)]
Strategies: TypeAlias = Annotated[
    Mapping[str, Mapping[str, Any]], Field(max_length=100), AfterValidator(_bundles)
]


class Described:
    """pydantic reads the sentences below the fields."""

    __slots__ = ()
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(use_attribute_docstrings=True)


@dataclass(frozen=True, slots=True)
class RecallSettings(Described):
    """Everything a recall reads. Immutable; `with_overrides` gives a bank's own copy."""

    # Budgets and packing
    recall_budget_function: Annotated[Literal["fixed", "adaptive"], PER_BANK] = "fixed"
    """How a budget becomes a number: fixed, or a share of max_tokens."""
    recall_budget_fixed_low: Annotated[_Positive, PER_BANK] = 100
    """Hits of every arm and fact type at budget low, where the function is fixed."""
    recall_budget_fixed_mid: Annotated[_Positive, PER_BANK] = 300
    """The same at budget mid."""
    recall_budget_fixed_high: Annotated[_Positive, PER_BANK] = 1000
    """The same at budget high."""
    recall_budget_adaptive_low: Annotated[_PerToken, PER_BANK] = 0.025
    """Hits per token of max_tokens at budget low, where the function is adaptive."""
    recall_budget_adaptive_mid: Annotated[_PerToken, PER_BANK] = 0.075
    """The same at budget mid."""
    recall_budget_adaptive_high: Annotated[_PerToken, PER_BANK] = 0.25
    """The same at budget high."""
    recall_budget_min: Annotated[_Positive, PER_BANK] = 20
    """Least hits that an adaptive budget comes to."""
    recall_budget_max: Annotated[_Positive, PER_BANK] = 2000
    """Most hits that an adaptive budget comes to; at least recall_budget_min."""
    recall_max_query_tokens: _Count = 500
    """Longest question in cl100k tokens; above it 400; 0 = no limit."""
    recall_max_concurrent: _Positive = 32
    """Recalls at once per process; the rest wait."""
    recall_prefer_observations: Annotated[bool, PER_BANK] = False
    """Leave out memories that a served observation was made from."""
    recall_timeout_s: _Seconds = 60.0
    """Most seconds of a recall; above it 504."""

    # Stages
    enable_text_search: Annotated[bool, PER_BANK] = True
    """Search by keywords."""
    enable_temporal_retrieval: Annotated[bool, PER_BANK] = True
    """Read times in questions, and search by them."""
    enable_graph_retrieval: Annotated[bool, PER_BANK] = True
    """Follow links between memories."""
    enable_reranking: Annotated[bool, PER_BANK] = True
    """Let a cross-encoder order the candidates."""

    # Thresholds and arm limits
    semantic_min_similarity: _Share | None = None
    """Least cosine similarity of the semantic arm; unset: what the embedding model calls for."""
    graph_seed_min_similarity: _Share = 0.3
    """Least similarity of the memories that plain link expansion starts from."""
    temporal_semantic_min_similarity: _Share = 0.1
    """Least similarity of what lies in a question's window."""
    bm25_min_score: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = 0.0
    """Least score of the keyword arm."""
    bm25_k1: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] = 1.2
    """How soon a word that is repeated stops counting."""
    bm25_b: _Share = 0.75
    """How much the length of a memory counts against it."""
    recall_max_candidates_per_source: _Count = 0
    """Most candidates of each arm; 0 = no limit of its own."""
    link_expansion_per_entity_limit: _Positive = 200
    """Most memories that one entity leads to."""
    link_expansion_timeout_s: _Seconds = 10.0
    """Most seconds of the graph arm; what it has by then counts."""
    graph_hub_damping: Annotated[bool, PER_BANK] = True
    """Walk the graph so that entities of many memories count less; false: plain link expansion."""
    graph_hops_low: _Hops = 1
    """Steps of the walk at budget low."""
    graph_hops_mid: _Hops = 2
    """Steps of the walk at budget mid."""
    graph_hops_high: _Hops = 3
    """Steps of the walk at budget high."""

    # Time
    timezone: Annotated[Zone | None, PER_BANK] = None
    """IANA name such as Europe/Berlin: where times without an offset are read, those of questions
    and of retained contents; a recall's own wins; unset: UTC."""
    hemisphere: Annotated[Literal["north", "south"], PER_BANK] = "north"
    """Where seasons are meant."""
    fiscal_year_start_month: Annotated[int, Field(ge=1, le=12), PER_BANK] = 1
    """Month in which fiscal years begin; each bears the number of the year it ends in."""
    temporal_day_first: Annotated[bool | None, PER_BANK] = None
    """Whether 3/7/2017 is in July; unset: by the language."""
    event_windows: Annotated[bool, PER_BANK] = True
    """Look up events that questions date by ("before the wedding")."""

    # Ranking
    # With a cap of 20 / 100 / 300, what is read holds 0.88 / 0.967 / 0.995 of the answers on two
    # conversations of LoCoMo with convex, 0.77 / 0.932 / 0.994 with rrf.
    fusion: Annotated[Literal["rrf", "convex", "interleave"], PER_BANK] = "rrf"
    """What puts the candidates in order before the cut: reciprocal ranks, calibrated scores, or
    turns; with interleave that order is served."""
    recall_strategy_boosts: Annotated[str, Field(max_length=1000)] = ""
    """Arms to prefer, such as `graph:high, bm25:low`."""
    recency_decay_function: Literal["linear", "exponential", "none"] = "linear"
    """How the age of a memory counts."""
    recency_decay_linear_window_days: _Days = 365.0
    """Age at which a linear decay has come to its end."""
    recency_decay_halflife_days: Annotated[
        float, Field(ge=0, le=1_000_000, allow_inf_nan=False)
    ] = 90.0
    """Age at which an exponential decay has come to its half; 0 = none."""
    reranker_max_candidates: _Positive = 300
    """Most candidates that a cross-encoder reads."""
    reranker_max_candidates_low: _Count = 0
    """The same at budget low; 0 = as reranker_max_candidates."""
    reranker_max_candidates_mid: _Count = 0
    """The same at budget mid."""
    reranker_max_candidates_high: _Count = 0
    """The same at budget high."""
    # Read alone by a bi-encoder in the place of a cross-encoder, all paragraphs are among the first
    # five for 0.25 of MuSiQue's questions (0.58 of HotpotQA's); 0.43 (0.72) with two places kept;
    # 0.20 (0.62) with paths.
    rerank_graph_paths: Annotated[bool, PER_BANK] = False
    """Put the path in front of what only links found, where a cross-encoder reads it."""
    graph_quota: Annotated[int, Field(ge=0, le=10), PER_BANK] = 2
    """Places kept for what only links found, whatever a cross-encoder says of it."""
    default_tags_match: Annotated[Literal["any", "any_strict"], PER_BANK] = "any"
    """Accepted: requests say how their tags match."""

    def with_overrides(self, overrides: Mapping[str, Any]) -> RecallSettings:
        """These settings with a bank's overrides; keys that are no recall fields are left alone,
        and so are values that a field cannot have: with a warning."""
        if not overrides:
            return self
        # Every recall asks, and checking a handful of values takes a tenth of a millisecond.
        return _overridden(self, orjson.dumps(overrides))


@dataclass(frozen=True, slots=True)
class RetainSettings(Described):
    """Everything a retain reads."""

    retain_extraction_mode: Annotated[
        Literal["concise", "verbose", "custom", "verbatim", "chunks"], PER_BANK
    ] = "concise"
    """How facts are drawn from a content. Without an LLM every chunk is a memory."""
    retain_chunk_size: Annotated[ChunkSize, PER_BANK] = 3000
    """Most characters of a chunk."""
    retain_structured_chunk_size: Annotated[ChunkSize | None, PER_BANK] = None
    """The same for conversations and tables; unset: as retain_chunk_size."""
    attachments_enabled: bool = False
    """Take images and files between the texts of a content: they are kept and shown, not read."""
    retain_max_attachments_per_chunk: Annotated[int, Field(ge=1, le=50), PER_BANK] = 8
    """Most of them in a chunk."""
    retain_mission: Annotated[_Text | None, PER_BANK] = None
    """What is worth remembering, for an LLM."""
    retain_custom_instructions: Annotated[_Text | None, PER_BANK] = None
    """Instructions of the extraction mode custom."""
    retain_default_strategy: Annotated[Annotated[str, Field(max_length=512)] | None, PER_BANK] = (
        None
    )
    """Strategy of items that name none."""
    retain_strategies: Annotated[Strategies | None, PER_BANK] = None
    """Names to bundles of retain settings, which items choose by name."""
    retain_entity_lookup: Literal["trigram", "full"] = "trigram"
    """How entities of similar names are found: by trigrams, or among all of the bank."""
    retain_entity_resolution_batch_size: _Positive = 100
    """Names that are looked up at once."""
    retain_entity_resolution_max_candidates: Annotated[int, Field(ge=1, le=10_000)] = 200
    """Most entities that one name is compared with."""
    entity_trgm_similarity_threshold: _Similarity = 0.15
    """Least similarity of trigrams of a name to be compared at all."""
    entity_intrabatch_merge_similarity: _Similarity = 0.5
    """Least similarity at which new names of one write become one entity."""
    retain_recognise_names: Annotated[bool, PER_BANK] = True
    """Find names of people, places and things in a content, without an LLM."""
    retain_date_text: Annotated[bool, PER_BANK] = False
    """Date a chunk by the one full date that it names."""
    retain_extract_causal_links: bool = True
    """Keep the causes that an LLM finds between facts."""
    entity_labels: Annotated[
        Annotated[Sequence[Mapping[str, Any]], Field(max_length=LABEL_GROUPS)] | None, PER_BANK
    ] = None
    """Labels that an LLM gives every fact: groups of a key, a type and values."""
    entities_allow_free_form: Annotated[bool, PER_BANK] = True
    """Keep names that an LLM finds, beside the labels."""
    llm_output_language: Annotated[Annotated[str, Field(max_length=64)] | None, PER_BANK] = None
    """Language of extracted facts; unset: that of the content."""
    on_chunk_failure: Annotated[Literal["fail", "chunk"], PER_BANK] = "fail"
    """What becomes of a chunk that an LLM cannot read: the retain fails, or it is kept as it is."""
    retain_wall_timeout_s: _Seconds = 3600.0
    """Most seconds of a retain: what is not extracted by then is tried again, or is a 504."""
    semantic_link_min_similarity: _Share = 0.7
    """Least similarity of memories that are linked for it."""
    semantic_link_top_k: Annotated[int, Field(ge=0, le=1000)] = 50
    """Most such links of one memory."""
    store_document_text: Annotated[bool, PER_BANK] = True
    """Keep the texts of documents and chunks."""
    text_search_language: Annotated[
        str, Field(max_length=64), AfterValidator(_language), PER_BANK
    ] = "english"
    """Language of the keyword analysis; auto: by each text; none: no stemming."""
    text_search_segmenter: Annotated[Literal["bigram", "jieba"], PER_BANK] = "bigram"
    """How Chinese text becomes words."""
    timezone: Annotated[Zone | None, PER_BANK] = None
    """As in RecallSettings: one setting for both."""
    retain_max_items: _Positive = 10_000
    """Most items of one retain."""
    import_max_items: _Positive = 10_000
    """Most memories of one import."""

    def with_overrides(self, overrides: Mapping[str, Any]) -> RetainSettings:
        """As RecallSettings.with_overrides, for retain fields."""
        known = dict(usable(RetainSettings, overrides))
        return dataclasses.replace(self, **known) if known else self


_Level = Annotated[int, Field(ge=1, le=5)]


class ReflectOptions(TypedDict, total=False):
    """What a bank's reflects do where the request does not say."""

    __pydantic_config__ = ConfigDict(  # type: ignore[misc]
        extra="forbid", use_attribute_docstrings=True
    )

    reflect_search_observations_max_tokens: SearchTokens
    """Tokens of one search among observations."""
    reflect_search_observations_include_entities: bool
    """Their entities are shown."""


@dataclass(frozen=True, slots=True)
class ReflectSettings(Described):
    """Everything a reflect reads, beside the settings of the recalls that it makes."""

    reflect_max_iterations: Annotated[int, Field(ge=1, le=100)] = 10
    """Calls of the language model at budget mid; half as many at low, twice at high."""
    reflect_wall_timeout_s: _Seconds = 300.0
    """Most seconds of a reflect; above it 504."""
    reflect_max_context_tokens: Annotated[int, Field(ge=2_000, le=10_000_000)] = 100_000
    """Most cl100k tokens of one call; where more was found, it has to answer."""
    reflect_max_concurrent: _Positive = 32
    """Reflects at once per process; the rest wait."""
    reflect_strict_grounding: Annotated[bool, PER_BANK] = False
    """Leave sentences out that rest on nothing, in place of marking them."""
    reflect_source_facts_max_tokens: Annotated[
        Annotated[int, Field(ge=-1, le=10_000_000)], PER_BANK
    ] = -1
    """Tokens of the facts that observations were made from, shown with them; -1 = none, 0 = no
    limit of their own."""
    reflect_mission: Annotated[_Text | None, PER_BANK] = None
    """What answers are for; a bank's own mission goes before the server's."""
    reflect_default_options: Annotated[ReflectOptions | None, PER_BANK] = None
    """Options of requests that do not give them."""
    disposition_skepticism: Annotated[_Level | None, PER_BANK] = None
    """How much doubt answers show, 1 to 5; unset: the profile's, else 3."""
    disposition_literalism: Annotated[_Level | None, PER_BANK] = None
    """How closely answers keep to the words of a question."""
    disposition_empathy: Annotated[_Level | None, PER_BANK] = None
    """How much answers show feeling."""
    recall_include_chunks: Annotated[bool, PER_BANK] = True
    """Show the passages that facts come from, in recalls of a reflect."""
    recall_max_tokens: Annotated[_Positive, PER_BANK] = 2048
    """Tokens of facts in such a recall."""
    recall_chunks_max_tokens: Annotated[_Count, PER_BANK] = 1000
    """Tokens of passages in such a recall."""

    def with_overrides(self, overrides: Mapping[str, Any]) -> ReflectSettings:
        """As RecallSettings.with_overrides, for reflect fields."""
        known = dict(usable(ReflectSettings, overrides))
        return dataclasses.replace(self, **known) if known else self


Owner: TypeAlias = Any
"""A class of settings."""

ANALYSIS = frozenset({"text_search_language", "text_search_segmenter"})
"""Settings that the stored postings depend on: fixed once a bank holds memories."""


@cache
def fields(owner: Owner) -> Mapping[str, Any]:
    """The annotated type of every field of a class of settings."""
    hints = get_type_hints(owner, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(owner)}


@cache
def per_bank(owner: Owner) -> tuple[str, ...]:
    """The fields that a bank may set for itself."""
    return tuple(n for n, kind in fields(owner).items() if PER_BANK in _metadata(kind))


@cache
def _in_strategies() -> frozenset[str]:
    nested = {"retain_strategies", "retain_default_strategy"}
    return frozenset(per_bank(RetainSettings)) - ANALYSIS - nested


def _metadata(kind: Any) -> tuple[Any, ...]:
    return getattr(kind, "__metadata__", ())


@cache
def _adapter(owner: Owner, name: str) -> TypeAdapter[Any]:
    return TypeAdapter(fields(owner)[name])


def value(owner: Owner, name: str, given: Any) -> Any:
    """The value that a field holds for what was given as JSON: ValidationError if it cannot."""
    return _adapter(owner, name).validate_python(given, strict=True)


def check(owner: Owner, name: str, given: Any) -> str | None:
    """What is wrong with this JSON value of a field; None if nothing is."""
    try:
        value(owner, name, given)
    except ValidationError as error:
        return _sentence(error)
    return None


def _sentence(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    if first["type"] == "value_error":
        return str(first["ctx"]["error"])
    said = first["msg"].removeprefix("Input ")
    where = ".".join(str(part) for part in first["loc"])
    return f"{where} {said}" if where and not isinstance(first["loc"][0], int) else said


@lru_cache(maxsize=1_024)
def _overridden(settings: RecallSettings, overrides: bytes) -> RecallSettings:
    known = dict(usable(RecallSettings, orjson.loads(overrides)))
    return dataclasses.replace(settings, **known) if known else settings


def usable(owner: Owner, overrides: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The overrides that are fields with a value which they can have; the others with a warning."""
    known = fields(owner)
    for name, given in overrides.items():
        if name in known and given is not None:
            try:
                yield name, value(owner, name, given)
            except ValidationError as error:
                _warn(name, repr(given)[:80], _sentence(error))
                if name == "retain_strategies" and isinstance(given, Mapping):
                    yield name, _usable_bundles(given)


def _usable_bundles(given: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What of stored strategies can be used: each without the keys that cannot be."""
    return {
        name: dict(
            usable(RetainSettings, {k: v for k, v in bundle.items() if k in _in_strategies()})
        )
        for name, bundle in given.items()
        if isinstance(bundle, Mapping)
    }


@cache
def _warn_once(name: str, shown: str, wanted: str) -> None:
    _log.warning("stored setting %s=%s is left out: it %s", name, shown, wanted)


def _warn(name: str, shown: str, wanted: str) -> None:
    if _warn_once.cache_info().currsize > 1000:
        _warn_once.cache_clear()
    _warn_once(name, shown, wanted)
