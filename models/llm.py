"""A client of OpenAI-compatible chat completions: one system text, one user text, one answer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import httpx

from models.http import JsonClient
from models.settings import SettingsError
from models.types import BadOutput, Unavailable


@dataclass(frozen=True, slots=True)
class LLMSettings:
    """url: the base, with /v1. temperature: None leaves it to the server."""

    model: str
    url: str = "https://api.openai.com/v1"
    api_key: str = ""
    timeout_s: float = 300.0
    max_concurrent: int = 4
    temperature: float | None = 0.0

    def __post_init__(self) -> None:
        if not self.model:
            raise SettingsError("an LLM needs a model")
        if not self.url.startswith(("http://", "https://")):
            raise SettingsError("the LLM's url must start with http(s)://")
        if self.timeout_s <= 0 or self.max_concurrent < 1:
            raise SettingsError("timeout_s and max_concurrent of the LLM must be positive")


class ChatLLM:
    """Use from one event loop; `start` first."""

    def __init__(
        self, settings: LLMSettings, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self._settings = settings
        self._part = f"LLM {settings.model}"
        self._calls = asyncio.Semaphore(settings.max_concurrent)
        self._client = JsonClient(
            self._part,
            settings.url,
            api_key=settings.api_key,
            timeout_s=settings.timeout_s,
            max_connections=settings.max_concurrent,
            transport=transport,
        )

    @property
    def model_id(self) -> str:
        return self._settings.model

    async def start(self) -> None:
        self._client.open()

    async def check_health(self) -> None:
        if not self._client.is_open:
            raise Unavailable(self._part, "it is not started")

    async def close(self) -> None:
        await self._client.close()

    async def complete(
        self, system: str, user: str, *, max_tokens: int, deadline: float | None = None
    ) -> str:
        """The answer's text. Raises Overloaded, DeadlineExceeded, Unavailable, RemoteError, and
        BadOutput where the answer is empty or was cut at `max_tokens`."""
        body = {
            "model": self._settings.model,
            "messages": [
                {"role": "system", "content": system},
                {"role": "user", "content": user},
            ],
            "max_tokens": max_tokens,
        }
        if self._settings.temperature is not None:
            body["temperature"] = self._settings.temperature
        async with self._calls:
            answer = await self._client.post("/chat/completions", body, deadline=deadline)
        try:
            choice = answer["choices"][0]
            text = choice["message"]["content"]
        except (KeyError, IndexError, TypeError) as error:
            raise BadOutput(f"{self._part}: the answer has no choices") from error
        if choice.get("finish_reason") == "length":
            raise BadOutput(f"{self._part}: the answer was cut at {max_tokens} tokens")
        if not isinstance(text, str) or not text.strip():
            raise BadOutput(f"{self._part}: the answer is empty")
        return text
