"""A server that notes what it is sent."""

from __future__ import annotations

from typing import Any

from serve.cli.client import Api, ApiError


class Server(Api):
    """Notes what it is sent; refuses texts with `bad` in them, and dies after so many calls."""

    def __init__(self, dies_after: int = 10**6, url: str = "http://one") -> None:
        self.url = url
        self.memories: dict[str, dict[str, Any]] = {}
        self.documents: dict[str, Any] = {}
        self.invalid: list[str] = []
        self.left = dies_after

    def _call(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise ApiError("no server answers")

    def import_memories(self, bank: str, memories: Any) -> dict[str, Any]:
        self._call()
        if any("bad" in one["text"] for one in memories):
            raise ApiError("422: text")
        self.memories.update({f"{bank}/{one['key']}": dict(one) for one in memories})
        return {"ids": {one["key"]: one["key"] for one in memories}}

    def retain(self, bank: str, items: Any) -> dict[str, Any]:
        self._call()
        self.documents.update({f"{bank}/{one['document_id']}": one for one in items})
        return {}

    def patch_memory(self, bank: str, id: str, change: Any) -> dict[str, Any]:
        self.invalid.append(id)
        return {}
