"""Bodies about webhooks."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from retrieval.store.outbox import EVENTS
from serve.http.wire.common import Body

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


def _headers(value: dict[str, str]) -> dict[str, str]:
    for name, content in value.items():
        if not _TOKEN.fullmatch(name):
            raise ValueError(f"{name[:100]!r} is no name of a header")
        if not _VALUE.fullmatch(content) or content != content.strip():
            raise ValueError(f"{name}: not a value that a header may have")
    return value


def _upper(value: Any) -> Any:
    return value.upper() if isinstance(value, str) else value


def _distinct(value: list[str]) -> list[str]:
    return list(dict.fromkeys(value))


Short = Annotated[str, Field(max_length=4_096)]
Url = Annotated[str, Field(min_length=1, max_length=2_048)]
Secret = Annotated[str, Field(max_length=1_024)]
Events = Annotated[
    list[Literal[EVENTS]],  # type: ignore[valid-type]
    Field(min_length=1, max_length=50, fail_fast=True),
    AfterValidator(_distinct),
]


class HttpConfig(Body):
    """How a webhook is called."""

    method: Annotated[Literal["POST", "GET"], BeforeValidator(_upper)] = "POST"
    timeout_seconds: Annotated[int, Field(ge=1, le=120)] = 30
    headers: Annotated[dict[str, Short], Field(max_length=50), AfterValidator(_headers)] = Field(
        default_factory=dict
    )
    """Ours are never replaced by them."""
    params: Annotated[dict[str, Short], Field(max_length=50)] = Field(default_factory=dict)
    """Behind the query of the address."""


class WebhookBody(Body):
    """Somebody who is told what happens in a bank."""

    url: Url
    secret: Secret | None = None
    """What deliveries are signed with; never answered."""
    event_types: Events = Field(default_factory=lambda: ["consolidation.completed"])
    enabled: bool = True
    http_config: HttpConfig = Field(default_factory=HttpConfig)

    @property
    def fields(self) -> dict[str, Any]:
        return self.model_dump()


class WebhookPatch(Body):
    """What is given changes."""

    url: Url | None = None
    secret: Secret | None = None
    """A new one; the one before signs as well for a day. Empty: none any more."""
    event_types: Events | None = None
    enabled: bool | None = None
    http_config: HttpConfig | None = None

    @model_validator(mode="after")
    def _something(self) -> WebhookPatch:
        if not self.model_fields_set:
            raise ValueError("give at least one of url, secret, event_types, enabled, http_config")
        return self

    @property
    def changes(self) -> dict[str, Any]:
        return self.model_dump(include=self.model_fields_set, exclude_unset=True)
