"""When and how a document is refreshed: the fields, what they may hold, and the scope they make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from cronsim import CronSim, CronSimError
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StringConstraints,
    TypeAdapter,
    ValidationError,
)
from typing_extensions import TypedDict

from retrieval.errors import InvalidInput
from retrieval.settings import SearchTokens
from retrieval.settings.mental import RefreshInterval
from retrieval.store.edge import clean
from retrieval.store.tag_groups import tag_groups
from retrieval.types import Budget, FactType, Filters, TagsMatch

ID = r"[a-z0-9][a-z0-9-]{0,127}"
"""What the id of a mental model looks like."""
SCHEMA_TYPES = ("string", "number", "integer", "boolean", "array", "object")


def cron(text: str) -> str:
    """`text` if it is a schedule of five fields that comes round at all; ValueError if not."""
    if len(text.split()) != 5:
        raise ValueError(f"{text[:60]!r} is no cron schedule: it has five fields, in UTC")
    try:
        next(CronSim(text, datetime(2024, 1, 1, tzinfo=UTC)))
    except CronSimError as error:
        raise ValueError(f"{text[:60]!r} is no cron schedule: {error}") from None
    except StopIteration:
        raise ValueError(f"{text[:60]!r} is a cron schedule that never comes round") from None
    return text


def following(schedule: str | None, now: datetime) -> datetime | None:
    """The first time of a schedule after `now`; None without one."""
    return None if schedule is None else next(CronSim(schedule, now.astimezone(UTC)))


def response_schema(value: dict[str, Any]) -> dict[str, Any]:
    """`value` if it describes an object with properties of plain types; ValueError if not."""
    properties = value.get("properties")
    if value.get("type") != "object" or not isinstance(properties, dict) or not properties:
        raise ValueError("response_schema describes an object, with properties")
    for name, property in properties.items():
        if not isinstance(property, dict) or property.get("type") not in SCHEMA_TYPES:
            raise ValueError(
                f"response_schema: the type of {name[:60]!r} is one of {', '.join(SCHEMA_TYPES)}"
            )
    return value


def _groups(value: list[Any]) -> list[Any]:
    if not value:
        raise ValueError("tag_groups is empty: leave it out")
    tag_groups(value)
    return value


_Cron = Annotated[str, StringConstraints(max_length=200), AfterValidator(cron)]
_Id = Annotated[str, StringConstraints(pattern=f"^{ID}$")]


class TriggerFields(TypedDict, total=False):
    """The fields that a request names."""

    budget: Budget
    mode: Literal["full", "delta"]
    refresh_after_consolidation: bool
    refresh_cron: _Cron
    full_refresh_cron: _Cron
    min_refresh_interval_seconds: RefreshInterval
    fact_types: Annotated[
        list[Literal["world", "experience", "observation"]], Field(min_length=1, max_length=3)
    ]
    exclude_mental_models: bool
    exclude_mental_model_ids: Annotated[list[_Id], Field(max_length=1_000)]
    tags_match: TagsMatch
    tag_groups: Annotated[list[Any], Field(max_length=256), AfterValidator(_groups)]
    include_chunks: bool
    recall_max_tokens: SearchTokens
    recall_chunks_max_tokens: SearchTokens
    reflect_search_observations_max_tokens: SearchTokens
    reflect_search_observations_include_entities: bool
    response_schema: Annotated[dict[str, Any], AfterValidator(response_schema)]
    keep_trace: bool


def _named(value: Any) -> Any:
    return {k: v for k, v in value.items() if v is not None} if isinstance(value, dict) else value


def _one_kind(value: TriggerFields) -> TriggerFields:
    if value.get("refresh_after_consolidation") and "refresh_cron" in value:
        raise ValueError("give refresh_after_consolidation or refresh_cron, not both")
    return value


GivenTrigger = Annotated[TriggerFields, BeforeValidator(_named), AfterValidator(_one_kind)]
"""What a request says of a trigger; nulls count as not given."""
_adapter: TypeAdapter[TriggerFields] = TypeAdapter(GivenTrigger)

PAGE: TriggerFields = {
    "mode": "delta",
    "fact_types": ["observation"],
    "exclude_mental_models": True,
    "refresh_after_consolidation": True,
}
"""Of a page that says nothing else."""


def checked(value: Any, field: str) -> TriggerFields:
    """A stored or configured trigger. InvalidInput names `field`."""
    try:
        return _adapter.validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, (field, *first["loc"])))
        raise InvalidInput(f"{place}: {first['msg']}", field) from None


def merged(stored: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """`stored` with the named fields of `given`; one kind of refresh clears the other."""
    found = {**stored, **given}
    if given.get("refresh_after_consolidation"):
        found.pop("refresh_cron", None)
    elif "refresh_cron" in given:
        found["refresh_after_consolidation"] = False
    return found


@dataclass(frozen=True, slots=True)
class Trigger:
    """All fields, with their defaults; as TriggerFields."""

    budget: str | None = None
    mode: str = "full"
    refresh_after_consolidation: bool = False
    refresh_cron: str | None = None
    full_refresh_cron: str | None = None
    min_refresh_interval_seconds: int | None = None
    fact_types: tuple[str, ...] | None = None
    exclude_mental_models: bool = False
    exclude_mental_model_ids: tuple[str, ...] | None = None
    tags_match: str | None = None
    tag_groups: tuple[Any, ...] | None = None
    include_chunks: bool | None = None
    recall_max_tokens: int | None = None
    recall_chunks_max_tokens: int | None = None
    reflect_search_observations_max_tokens: int | None = None
    reflect_search_observations_include_entities: bool | None = None
    response_schema: Mapping[str, Any] | None = None
    keep_trace: bool = False

    @staticmethod
    def of(stored: Mapping[str, Any]) -> Trigger:
        """From what is stored; fields that nobody knows any more are left out."""
        known = {k: v for k, v in stored.items() if k in Trigger.__slots__}
        for name in ("fact_types", "exclude_mental_model_ids", "tag_groups"):
            if known.get(name) is not None:
                known[name] = tuple(known[name])
        return Trigger(**known)

    def wire(self) -> dict[str, Any]:
        """As the API shows it."""
        return {name: getattr(self, name) for name in Trigger.__slots__}


def scope(tags: list[str], trigger: Trigger) -> Filters:
    """The memories that a document is about."""
    kinds = tuple(FactType.of(name) for name in trigger.fact_types or ()) or tuple(FactType)
    if trigger.tag_groups is not None:
        return Filters(kinds, tag_groups=tag_groups(list(trigger.tag_groups)))
    default = TagsMatch.ALL_STRICT if tags else TagsMatch.ANY
    match = TagsMatch(trigger.tags_match) if trigger.tags_match else default
    return Filters(kinds, tuple(map(clean, tags)) or None, match)
