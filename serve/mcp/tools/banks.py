"""Banks as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field, model_validator

from serve.mcp.calls import Route, RouteRequest
from serve.mcp.tool import Effect, Id, Object, Offset, Page, Tool, in_bank

_Name = Annotated[str, Field(min_length=1, max_length=1024)]


class GetBank(Tool):
    """The bank's name, mission and disposition."""

    NAME = "get_bank"
    EFFECT = Effect.READS
    ROUTE = in_bank("GET", "/profile")


class UpdateBank(Tool):
    """Change the bank's name, mission or settings; what is not given stays."""

    NAME = "update_bank"
    EFFECT = Effect.ADDS
    ROUTE = in_bank("PATCH")

    name: _Name | None = None
    mission: str | None = None
    """What the bank is for, and what matters in it."""
    config_updates: Object | None = None
    """Settings by name, such as {"enable_reranking": false}; null takes one back."""

    @model_validator(mode="after")
    def _something(self) -> UpdateBank:
        if self.name is None and self.mission is None and not self.config_updates:
            raise ValueError("nothing to change: give name, mission or config_updates")
        return self

    def calls(self, bank_id: str) -> Sequence[RouteRequest]:
        # The settings first: they are what may be refused.
        ids, found = {"bank_id": bank_id}, []
        if self.config_updates:
            settings = in_bank("PATCH", "/config")
            found.append(settings.call(ids, {"updates": self.config_updates}))
        profile = {"name": self.name, "mission": self.mission}
        if given := {name: value for name, value in profile.items() if value is not None}:
            found.append(self.ROUTE.call(ids, given))
        return found


class ClearMemories(Tool):
    """Delete all memories of the bank, or all of one type, for good; the bank stays."""

    NAME = "clear_memories"
    EFFECT = Effect.DESTROYS
    ROUTE = in_bank("DELETE", "/memories")

    type: str | None = None
    """world, experience or observation; absent: all."""


class DeleteBank(Tool):
    """Delete the bank and everything in it, for good."""

    NAME = "delete_bank"
    EFFECT = Effect.DESTROYS
    ROUTE = in_bank("DELETE")


class ListBanks(Tool):
    """The banks that there are, the last written to first."""

    NAME = "list_banks"
    EFFECT = Effect.READS
    ROUTE = Route("GET", "/v1/default/banks")
    ALL_BANKS = True
    OF_BANK = False

    query: str | None = None
    """A part of the id or the name."""
    limit: Page = 100
    offset: Offset = 0

    def sent(self) -> dict[str, object]:
        found = super().sent()
        query = found.pop("query", None)
        return found if query is None else {**found, "q": query}


class CreateBank(Tool):
    """Make a bank, or give one that is there another name or mission."""

    NAME = "create_bank"
    EFFECT = Effect.ADDS
    ROUTE = in_bank("PUT")
    ALL_BANKS = True

    bank_id: Id
    """Its id, such as "user-123"."""
    name: _Name | None = None
    mission: str | None = None
    """What the bank is for, and what matters in it."""


class GetBankStats(Tool):
    """Counts of what the bank holds."""

    NAME = "get_bank_stats"
    EFFECT = Effect.READS
    ROUTE = in_bank("GET", "/stats")
    ALL_BANKS = True


TOOLS: tuple[type[Tool], ...] = (
    GetBank,
    UpdateBank,
    ClearMemories,
    DeleteBank,
    ListBanks,
    CreateBank,
    GetBankStats,
)
