"""Stand-ins for hosted embedders, on a real socket: they check what the services check."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

KEY = "secret"


def vector(text: str, kind: str, dimension: int) -> list[float]:
    """Tells texts and kinds apart."""
    seed = sum((at + 1) * ord(char) for at, char in enumerate(text)) + 7 * len(kind)
    return [float((seed * (at + 3)) % 101 + 1) for at in range(dimension)]


class Refused(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def cohere(path: str, body: dict[str, Any]) -> Any:
    if path != "/v2/embed":
        raise Refused(404, f"no route {path}")
    texts, kind = body["texts"], body["input_type"]
    if not 1 <= len(texts) <= 96:
        raise Refused(400, "texts: between 1 and 96")
    if kind not in ("search_document", "search_query") or body["embedding_types"] != ["float"]:
        raise Refused(400, "input_type or embedding_types")
    size = body.get("output_dimension", 8)
    rows = [vector(text, kind, size) for text in texts]
    return {"id": "x", "embeddings": {"float": rows}, "texts": texts, "meta": {}}


def zeroentropy(path: str, body: dict[str, Any]) -> Any:
    if path != "/v1/models/embed":
        raise Refused(404, f"no route {path}")
    if body["input_type"] not in ("document", "query"):
        raise Refused(422, "input_type")
    rows = [vector(text, body["input_type"], body.get("dimensions", 16)) for text in body["input"]]
    return {"results": [{"embedding": row} for row in rows], "usage": {"total_tokens": 1}}


def openai(path: str, body: dict[str, Any]) -> Any:
    if path != "/v1/embeddings":
        raise Refused(404, f"no route {path}")
    rows = [vector(text, "", body.get("dimensions", 8)) for text in body["input"]]
    data = [{"object": "embedding", "index": at, "embedding": row} for at, row in enumerate(rows)]
    return {"object": "list", "data": data[::-1], "model": body["model"]}


PROTOCOLS = {
    "cohere": (cohere, "/v2"),
    "zeroentropy": (zeroentropy, "/v1"),
    "openai": (openai, "/v1"),
}


class EmbedServer:
    """One service. `failures`: statuses that the next requests get."""

    def __init__(self, provider: str) -> None:
        self._answer, self._base = PROTOCOLS[provider]
        self.failures: list[int] = []
        self.bodies: list[dict[str, Any]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status, answer = outer._reply(self.path, self.headers.get("Authorization"), body)
                content = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}{self._base}"

    def _reply(self, path: str, key: str | None, body: dict[str, Any]) -> tuple[int, Any]:
        self.bodies.append(body)
        if self.failures:
            return self.failures.pop(0), {"message": "later"}
        if key != f"Bearer {KEY}":
            return 401, {"message": "invalid api token"}
        try:
            return 200, self._answer(path, body)
        except Refused as error:
            return error.status, {"message": str(error)}
        except KeyError as error:
            return 400, {"message": f"{error} is missing"}

    def __enter__(self) -> EmbedServer:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
