"""Provider batches: many questions sent as one file, answered within a day for half the price.

The API of OpenAI (files, batches), which Groq and Gemini's layer speak, too. Nothing is retried
here and no turn is taken: whoever waits for a batch comes back anyway.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import orjson

from models.llm.member import ModelMember
from models.llm.openai import PATH
from models.llm.types import Completion, CompletionRequest
from models.types import BadOutput, RemoteError

WINDOW: Final = "24h"
MARK: Final = "fourfold"
"""Name of the mark in a batch's metadata."""
PAGES, PAGE = 5, 100
"""How many recent batches are looked through for a mark."""
_ENDED: Final = frozenset({"completed", "failed", "expired", "cancelled"})
_NONE_HERE: Final = frozenset({400, 404, 405, 422, 501})
"""Statuses by which a server says that it takes no such batch."""


@dataclass(frozen=True, slots=True)
class BatchState:
    """`ended`: no more answers come. `processed` of `total` questions are answered or failed.
    `outputs` are files with results, `input` the file of the questions."""

    ended: bool
    processed: int
    total: int
    outputs: tuple[str, ...] = ()
    input: str = ""


class Batches:
    """The batches of one account. Errors are those of Member.request."""

    def __init__(self, member: ModelMember) -> None:
        self._member = member

    @property
    def account(self) -> str:
        """Where batches go; it holds no secret."""
        settings = self._member.settings
        return f"{settings.provider} {settings.base_url}"

    @property
    def member(self) -> ModelMember:
        return self._member

    async def submit(self, questions: Mapping[str, CompletionRequest], mark: str) -> str | None:
        """Sends questions under names of at most 64 characters: the batch's id, or None where the
        server takes no batches of them. `find` knows it by `mark`."""
        content = await asyncio.to_thread(self._lines, questions)
        try:
            file = await self._json(
                "POST",
                "/files",
                data={"purpose": "batch"},
                files={"file": (f"{mark}.jsonl", content, "application/jsonl")},
            )
            made = await self._json(
                "POST",
                "/batches",
                json={
                    "input_file_id": _text(file.get("id")),
                    "endpoint": f"/v1{PATH}",
                    "completion_window": WINDOW,
                    "metadata": {MARK: mark},
                },
            )
        except RemoteError as error:
            if error.status in _NONE_HERE:
                return None
            raise
        return _text(made.get("id"))

    async def find(self, mark: str) -> str | None:
        """The batch that was submitted with the mark, as far as the server remembers."""
        after: dict[str, str] = {}
        for _ in range(PAGES):
            page = await self._json("GET", "/batches", params={"limit": str(PAGE), **after})
            found = page.get("data")
            rows = (
                [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []
            )
            for row in rows:
                metadata = row.get("metadata")
                if isinstance(metadata, dict) and metadata.get(MARK) == mark:
                    return _text(row.get("id"))
            if not rows or not page.get("has_more"):
                return None
            after = {"after": str(rows[-1].get("id"))}
        return None

    async def look(self, id: str) -> BatchState | None:
        """How far it is; None where the server knows no such batch."""
        try:
            row = await self._json("GET", f"/batches/{quote(id, safe='')}")
        except RemoteError as error:
            if error.status == 404:
                return None
            raise
        counts = row.get("request_counts")
        done, failed, total = (
            _count(counts.get(name)) if isinstance(counts, dict) else 0
            for name in ("completed", "failed", "total")
        )
        files = (row.get("output_file_id"), row.get("error_file_id"))
        return BatchState(
            row.get("status") in _ENDED,
            done + failed,
            total,
            tuple(file for file in files if isinstance(file, str) and file),
            str(row.get("input_file_id") or ""),
        )

    async def answers(self, state: BatchState) -> AsyncGenerator[tuple[str, Completion], None]:
        """What was answered, by the names of the questions. Those that failed are missing; the text
        of an answer that was cut or refused is empty."""
        for file in state.outputs:
            try:
                async with self._member.request(
                    "GET", f"/files/{quote(file, safe='')}/content"
                ) as response:
                    async for line in response.aiter_lines():
                        if (found := self._answer(line)) is not None:
                            yield found
            except RemoteError as error:
                if error.status != 404:
                    raise

    async def cancel(self, id: str) -> None:
        """Ends a batch before its time; one that has ended, or is not known, stays as it is."""
        try:
            await self._json("POST", f"/batches/{quote(id, safe='')}/cancel")
        except RemoteError as error:
            if error.status not in (400, 404, 409):
                raise

    async def forget(self, state: BatchState) -> None:
        """Drops its files: they hold what users said."""
        for file in (state.input, *state.outputs):
            if file:
                try:
                    await self._json("DELETE", f"/files/{quote(file, safe='')}")
                except RemoteError as error:
                    if error.status not in (409, *_NONE_HERE):
                        raise

    def _lines(self, questions: Mapping[str, CompletionRequest]) -> bytes:
        return b"\n".join(self._line(name, question) for name, question in questions.items())

    def _line(self, name: str, question: CompletionRequest) -> bytes:
        body = self._member.body(question, question.max_tokens)
        row = {"custom_id": name, "method": "POST", "url": f"/v1{PATH}", "body": body}
        return json.dumps(row, ensure_ascii=False).encode(errors="replace")

    def _answer(self, line: str) -> tuple[str, Completion] | None:
        """One row of an output file; None where it holds no answer."""
        try:
            row = orjson.loads(line.encode(errors="replace"))
        except orjson.JSONDecodeError:
            return None
        response = row.get("response") if isinstance(row, dict) else None
        if not isinstance(response, dict) or response.get("status_code") != 200:
            return None
        try:
            completion = self._member.read(response.get("body"))
        except BadOutput:
            return None
        return str(row.get("custom_id")), completion

    async def _json(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        async with self._member.request(method, path, **more) as response:
            content = await response.aread()
        try:
            found = orjson.loads(content)
        except orjson.JSONDecodeError:
            found = None
        if not isinstance(found, dict):
            raise RemoteError(self._member.name, f"{path} answers no JSON object")
        return found


def batches(members: Iterable[ModelMember]) -> Batches | None:
    """Those of the first member whose provider takes any."""
    for member in members:
        if member.settings.known.batches:
            return Batches(member)
    return None


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise RemoteError("the batch API", "an answer has no id")
    return value


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


__all__ = ["BatchState", "Batches", "batches"]
