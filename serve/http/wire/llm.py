"""Bodies of the endpoints about language models."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from retrieval.settings import LABEL_GROUPS, ChunkSize
from serve.http.wire.common import Body
from serve.http.wire.writes import Timestamp, text_of


class DryRunBody(Body):
    """Content to extract facts from, and settings in place of the bank's."""

    content: Annotated[
        str, BeforeValidator(text_of, json_schema_input_type=str | list[dict[str, Any]])
    ]
    context: str | None = None
    timestamp: Timestamp = None
    agent_name: str | None = None
    strategy: str | None = None
    retain_mission: str | None = None
    retain_extraction_mode: Literal["concise", "verbose", "custom", "verbatim", "chunks"] | None = (
        None
    )
    retain_custom_instructions: str | None = None
    retain_extract_causal_links: bool | None = None
    retain_chunk_size: ChunkSize | None = None
    entity_labels: Annotated[list[dict[str, Any]], Field(max_length=LABEL_GROUPS)] | None = None
    entities_allow_free_form: bool | None = None
    llm_output_language: str | None = None

    @property
    def overrides(self) -> dict[str, Any]:
        """The settings that the request sets."""
        names = {n for n in type(self).model_fields if n.startswith("retain_")}
        names |= {"entity_labels", "entities_allow_free_form", "llm_output_language"}
        return {n: value for n in sorted(names) if (value := getattr(self, n)) is not None}


class PreviewBody(Body):
    """Whose prompts to show."""

    operation: Literal["retain", "consolidation", "reflect"] = "retain"
    strategy: str | None = None
