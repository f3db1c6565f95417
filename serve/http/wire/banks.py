"""Bodies about banks: profile and config."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, Field, model_validator

from retrieval import zones
from retrieval.store import bankconfig
from serve.http.wire.common import Body, Zone

Trait = Annotated[int, Field(ge=1, le=5)]


class Disposition(Body):
    skepticism: Trait = 3
    literalism: Trait = 3
    empathy: Trait = 3


class DispositionBody(Body):
    disposition: Disposition


class BankBody(Body):
    """Everything that a PUT or PATCH of a bank may carry. Only given fields change."""

    name: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    mission: str | None = None
    background: str | None = None
    reflect_mission: str | None = None
    disposition: Disposition | None = None
    disposition_skepticism: Trait | None = None
    disposition_literalism: Trait | None = None
    disposition_empathy: Trait | None = None
    retain_mission: str | None = None
    retain_extraction_mode: str | None = None
    retain_custom_instructions: str | None = None
    retain_chunk_size: Annotated[int, Field(ge=1)] | None = None
    retain_structured_chunk_size: Annotated[int, Field(ge=1)] | None = None
    retain_max_attachments_per_chunk: Annotated[int, Field(ge=1, le=50)] | None = None
    enable_observations: bool | None = None
    observations_mission: str | None = None
    timezone: Zone | None = None
    """IANA name, such as Europe/Berlin: where times without an offset are read."""
    enable_text_search: bool | None = None
    enable_temporal_retrieval: bool | None = None
    enable_graph_retrieval: bool | None = None
    enable_reranking: bool | None = None

    @property
    def changes(self) -> dict[str, Any]:
        """Only what was given."""
        return self.model_dump(include=self.model_fields_set)


class BackgroundBody(Body):
    content: str
    update_disposition: bool = True


def _zone(updates: dict[str, Any]) -> dict[str, Any]:
    for key, value in updates.items():
        if bankconfig.field_name(key) == "timezone" and isinstance(value, str):
            zones.canonical(value)
    return updates


class ConfigBody(BaseModel):
    updates: Annotated[dict[str, Any], AfterValidator(_zone)]

    @model_validator(mode="after")
    def _something(self) -> ConfigBody:
        if not self.updates:
            raise ValueError("updates is empty")
        return self
