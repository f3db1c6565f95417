"""Settings that change while processes run: what the table `hot_settings` says, over what a process
was started with. Admission, the common limits of tenants, and the memory for banks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import is_dataclass
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from retrieval.errors import InvalidInput
from retrieval.settings import RecallSettings
from retrieval.store import hot_settings
from retrieval.store.database.pool import Pool
from serve.settings.model import Banks, ServerLimits

log = logging.getLogger(__name__)

LOOK_S = 2.0
"""How often a process looks: a change is in force within five seconds everywhere."""

_WHERE: Mapping[str, type] = {
    "recall_max_concurrent": RecallSettings,
    "recall_queue_max": ServerLimits,
    "write_max_concurrent": ServerLimits,
    "write_queue_max": ServerLimits,
    "read_max_concurrent": ServerLimits,
    "read_queue_max": ServerLimits,
    "tenant_max_concurrent": ServerLimits,
    "tenant_requests_per_s": ServerLimits,
    "tenant_burst": ServerLimits,
    "bank_memory_bytes": Banks,
}
NAMES = tuple(_WHERE)
"""What can be changed; each is a setting of the same name, with its bounds."""

SHARES = "slot_shares"
"""The shares of slots (`retrieval.bank.shards.evenness`) by stage: told by a process, not by an
operator."""


def checked(name: str, value: Any) -> Any:
    """The value as the setting has it; InvalidInput says what would be right."""
    if name not in _WHERE:
        raise InvalidInput(f"{name} cannot be changed like this; {', '.join(NAMES)} can", name)
    section = _WHERE[name]
    assert is_dataclass(section) or hasattr(section, "model_fields")
    kind = TypeAdapter(get_type_hints(section, include_extras=True)[name])
    try:
        return kind.validate_python(value)
    except ValidationError as error:
        said = "; ".join(str(each["msg"]) for each in error.errors())
        raise InvalidInput(f"{name}: {said}", name) from None


class HotSettings:
    """What the table says, as this process knows it. `follow` keeps it."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._stored: dict[str, Any] = {}
        self._values: dict[str, Any] = {}
        self._told: list[Callable[[], None]] = []

    def value(self, name: str, otherwise: Any) -> Any:
        """The value of a setting; `otherwise` is what the process was started with, which also
        holds where the stored value is none that the setting may have."""
        return self._values.get(name, otherwise)

    def shares(self, stage: str) -> dict[int, float]:
        """Shares of the slots of a stage."""
        stored = self._stored.get(SHARES)
        of_stage = stored.get(stage) if isinstance(stored, dict) else None
        return {int(slot): float(part) for slot, part in (of_stage or {}).items()}

    def tell(self, changed: Callable[[], None]) -> None:
        """Calls it now, and after every change."""
        self._told.append(changed)
        changed()

    async def follow(self, stack: AsyncExitStack) -> None:
        """Looks now, and again and again until the stack closes."""
        await self._look()
        following = asyncio.create_task(self._go_on())
        stack.callback(following.cancel)

    async def _go_on(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            await self._look()

    async def _look(self) -> None:
        try:
            stored = await hot_settings.everything(self._pool)
        except Exception as error:  # the database is away: what was known goes on
            log.debug("hot settings could not be read: %s", error)
            return
        if stored == self._stored:
            return
        self._stored, self._values = stored, {}
        for name in set(stored) & set(NAMES):
            try:
                self._values[name] = checked(name, stored[name])
            except InvalidInput as error:
                log.warning("hot settings: %s", error)
        for changed in self._told:
            changed()


async def open_hot(pool: Pool, stack: AsyncExitStack) -> HotSettings:
    """Settings that change while this process runs, kept until the stack closes."""
    hot = HotSettings(pool)
    await hot.follow(stack)
    return hot
