"""A small HTTP client for the command line."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote

import httpx

ATTEMPTS = 8
"""With waits that double from half a second: about a minute of a server that restarts."""


class ApiError(RuntimeError):
    """The server refused, or cannot be reached; str() is a sentence."""


class Api:
    """Blocking. Repeats a call that met a busy or restarting server, where that is harmless."""

    def __init__(self, url: str, key: str | None = None) -> None:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._http = httpx.Client(base_url=url, headers=headers, timeout=300)
        self.url = url

    def __enter__(self) -> Api:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._http.close()

    def recall(self, bank: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._post(bank, "memories/recall", body)

    def reflect(self, bank: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._post(bank, "reflect", body)

    def import_memories(self, bank: str, memories: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Safe to repeat: a memory with a known key is replaced by itself."""
        return self._post(bank, "memories/import", {"memories": memories})

    def retain(self, bank: str, items: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Safe to repeat: a document with a known id is replaced by itself."""
        return self._post(bank, "memories", {"items": items})

    def patch_memory(self, bank: str, id: str, change: Mapping[str, Any]) -> dict[str, Any]:
        return self._ask(lambda: self._http.patch(_address(bank, f"memories/{id}"), json=change))

    def erase(self, bank: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Safe to repeat: what is gone is not found again."""
        return self._post(bank, "erase", body)

    def banks(self) -> list[str]:
        """The ids of all banks."""
        found: list[str] = []
        while True:
            page = self.get("/v1/default/banks", {"limit": 1000, "offset": len(found)})
            found += [bank["bank_id"] for bank in page["banks"]]
            if not page["banks"] or len(found) >= page["total"]:
                return found

    def get(self, address: str, query: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return self._ask(lambda: self._http.get(address, params=query))

    def post(
        self, bank: str, path: str, body: Mapping[str, Any] | None, query: Mapping[str, Any]
    ) -> dict[str, Any]:
        address = _address(bank, path)
        return self._ask(lambda: self._http.post(address, json=body, params=query))

    def operation(self, bank: str, id: str) -> dict[str, Any]:
        return self.get(_address(bank, f"operations/{id}"))

    def upload(self, bank: str, path: str, file: Path, query: Mapping[str, Any]) -> dict[str, Any]:
        """Sends a file, as a stream."""

        def send() -> httpx.Response:
            with file.open("rb") as source:
                parts = {"file": (file.name, source, "application/zip")}
                return self._http.post(_address(bank, path), files=parts, params=query)

        return self._ask(send)

    def download(self, address: str, into: Path) -> None:
        """Appends to a file what it lacks; an interruption is gone on from."""
        for attempt in range(ATTEMPTS):
            have = into.stat().st_size if into.exists() else 0
            headers = {"Range": f"bytes={have}-"} if have else {}
            try:
                with self._http.stream("GET", address, headers=headers) as answer:
                    if answer.status_code == 416:  # all of it is there
                        return
                    if answer.status_code not in (200, 206):
                        answer.read()
                        raise ApiError(f"{answer.status_code}: {_detail(answer)}")
                    whole = have if answer.status_code == 206 else 0
                    with into.open("ab") as out:
                        out.truncate(whole)
                        for data in answer.iter_bytes():
                            out.write(data)
                return
            except httpx.TransportError as error:
                if attempt == ATTEMPTS - 1:
                    raise ApiError(f"the download broke off at {self.url} ({error})") from None
                time.sleep(0.5 * 2**attempt)

    def _post(self, bank: str, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        address = _address(bank, path)
        return self._ask(lambda: self._http.post(address, json=body))

    def _ask(self, send: Callable[[], httpx.Response]) -> dict[str, Any]:
        for attempt in range(ATTEMPTS):
            wait = 0.5 * 2**attempt * random.uniform(0.5, 1)
            last = attempt == ATTEMPTS - 1
            try:
                answer = send()
            except httpx.TransportError as error:
                if last:
                    raise ApiError(f"no server answers at {self.url} ({error})") from None
                if attempt == 0 and isinstance(error, httpx.ConnectError):
                    wait = 0.2
            else:
                if answer.is_success:
                    found: dict[str, Any] = answer.json()
                    return found
                if last or answer.status_code not in (429, 503):
                    raise ApiError(f"{answer.status_code}: {_detail(answer)}")
                wait = max(wait, _asked_to_wait(answer))
            time.sleep(wait)
        raise AssertionError("unreachable")


def _asked_to_wait(answer: httpx.Response) -> float:
    """Seconds of a Retry-After; a date, as something before the server may send, is not waited
    for."""
    said = answer.headers.get("retry-after", "")
    return float(said) if said.isascii() and said.isdigit() else 0.0


def _address(bank: str, path: str) -> str:
    return f"/v1/default/banks/{quote(bank, safe='')}/{path}"


def _detail(answer: httpx.Response) -> str:
    try:
        detail = answer.json()["detail"]
    except (ValueError, KeyError, TypeError):
        return answer.text[:500]
    if isinstance(detail, list):
        return "; ".join(
            f"{'.'.join(str(part) for part in problem['loc'])}: {problem['msg']}"
            for problem in detail
        )
    return str(detail)
