"""A stand-in for huggingface/text-embeddings-inference: a real HTTP server with its contract.

Keeps its limits (texts per request, texts at once, body size, input length), its sorting, its
statuses and its error bodies, of 1.8 and of 1.9. Scores and vectors are computed from the words,
so that tests can tell right from wrong. Faults are set by attributes while it runs.

    with TeiServer(max_client_batch_size=32) as server:
        ... server.url ...
"""

from __future__ import annotations

import hashlib
import json
import math
import socket
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

Version = Literal["1.8", "1.9"]
DIMENSION = 16


def logit(query: str, text: str) -> float:
    """Grows with the words that both share; distinct for distinct texts."""
    shared = len(set(query.lower().split()) & set(text.lower().split()))
    return shared * 2.0 - 4.0 + _fraction(text)


def vector(text: str) -> list[float]:
    """Of length 1, from the words."""
    values = [0.0] * DIMENSION
    for word in text.lower().split() or [""]:
        digest = hashlib.sha256(word.encode()).digest()
        for i in range(DIMENSION):
            values[i] += digest[i] / 127.5 - 1
    norm = math.sqrt(sum(v * v for v in values)) or 1.0
    return [v / norm for v in values]


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def _fraction(text: str) -> float:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4]) / 2**32


@dataclass
class Reply:
    """One scripted answer, sent instead of the real one."""

    status: int
    body: Any = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


class _Refused(Exception):
    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status, self.kind = status, kind


class TeiServer:
    """Set before or while it runs:

    scripted: answers to give first, in order. delay_s: time per request. hanging: never answer
    while set. bad_text: a request with a text that contains it fails as a whole (424). short: leave
    out the last score. nan: all scores NaN. nulls: vectors of nulls. fixed: text -> score.
    Read: requests (path, body), largest_batch, most_texts (in flight at once), refused (429s).
    """

    def __init__(
        self,
        *,
        version: Version = "1.9",
        kind: str = "reranker",
        port: int = 0,
        max_client_batch_size: int = 32,
        max_concurrent_requests: int = 512,
        max_input_length: int = 512,
        auto_truncate: bool | None = None,
        payload_limit: int = 2_000_000,
        api_key: str = "",
    ) -> None:
        self.version, self.kind = version, kind
        self.model_id = f"stand-in/{kind}"
        self.max_client_batch_size = max_client_batch_size
        self.max_concurrent_requests = max_concurrent_requests
        self.max_input_length = max_input_length
        self.auto_truncate = version == "1.9" if auto_truncate is None else auto_truncate
        self.payload_limit = payload_limit
        self.api_key = api_key
        self.scripted: deque[Reply] = deque()
        self.delay_s = 0.0
        self.hanging = threading.Event()
        self.bad_text = ""
        self.short = self.nan = self.nulls = False
        self.fixed: dict[str, float] = {}
        self.requests: list[tuple[str, Any]] = []
        self.headers: list[Mapping[str, str]] = []
        self.largest_batch = self.most_texts = self.refused = 0
        self._in_flight = 0
        self._lock = threading.Lock()
        self._port = port
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def start(self) -> TeiServer:
        """Listens; a second start after `stop` takes the same port."""
        self._server = _Server(("127.0.0.1", self._port), _handler(self))
        self._port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        return self

    def stop(self) -> None:
        """Closes the port and all connections, as a killed server does."""
        if self._server is None or self._thread is None:
            return
        self.hanging.clear()
        self._server.shutdown()
        self._server.drop_connections()
        self._server.server_close()
        self._thread.join()
        self._server = None

    def __enter__(self) -> TeiServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def answer(self, method: str, path: str, headers: Mapping[str, str], raw: bytes) -> Reply:
        if self.api_key and headers.get("Authorization") != f"Bearer {self.api_key}":
            return Reply(401, "")
        if method == "GET":
            return self._get(path)
        if len(raw) > self.payload_limit:
            return Reply(413, "Failed to buffer the request body: length limit exceeded")
        try:
            body = json.loads(raw)
        except ValueError:
            return Reply(400, "Failed to parse the request body as JSON")
        with self._lock:
            self.requests.append((path, body))
            self.headers.append(dict(headers))
            if self.scripted:
                return self.scripted.popleft()
        try:
            return Reply(200, self._post(path, body))
        except _Refused as refusal:
            return Reply(refusal.status, {"error": str(refusal), "error_type": refusal.kind})

    def _get(self, path: str) -> Reply:
        if path == "/health":
            return Reply(200, "")
        if path != "/info":
            return Reply(404, "")
        labels = {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}
        kinds = {"reranker": labels, "embedding": {"pooling": "cls"}, "classifier": labels}
        return Reply(
            200,
            {
                "model_id": self.model_id,
                "model_type": {self.kind: kinds[self.kind]},
                "max_concurrent_requests": self.max_concurrent_requests,
                "max_input_length": self.max_input_length,
                "max_batch_tokens": 16384,
                "max_client_batch_size": self.max_client_batch_size,
                "auto_truncate": self.auto_truncate,
                "version": f"{self.version}.0",
            },
        )

    def _post(self, path: str, body: Mapping[str, Any]) -> Any:
        if path not in ("/rerank", "/embed"):
            raise _Refused(404, "NotFound", "no such route")
        inputs = body["texts"] if path == "/rerank" else body["inputs"]
        texts = [inputs] if isinstance(inputs, str) else list(inputs)
        query = str(body.get("query", ""))
        self._validate(path, texts, query, body.get("truncate"))
        self._take_permits(len(texts))
        try:
            while self.hanging.is_set():
                time.sleep(0.01)
            time.sleep(self.delay_s)
            if self.bad_text and any(self.bad_text in text for text in texts):
                raise _Refused(424, "Backend", "the batch failed")
            if path == "/embed":
                return [[None] * DIMENSION if self.nulls else vector(text) for text in texts]
            return self._ranked(query, texts, bool(body.get("raw_scores")))
        finally:
            with self._lock:
                self._in_flight -= len(texts)

    def _validate(self, path: str, texts: list[str], query: str, truncate: bool | None) -> None:
        invalid = 422 if self.version == "1.9" else 413
        if not texts:
            raise _Refused(400, "Empty", "`texts` cannot be empty")
        wanted = "reranker" if path == "/rerank" else "embedding"
        if self.kind != wanted:
            raise _Refused(424, "Backend", f"model is not a {wanted} model")
        if len(texts) > self.max_client_batch_size:
            raise _Refused(
                invalid,
                "Validation",
                f"batch size {len(texts)} > maximum allowed {self.max_client_batch_size}",
            )
        cut = self.auto_truncate if truncate is None else truncate
        longest = max(len(query.split()) + len(text.split()) for text in texts)
        if longest > self.max_input_length and not cut:
            raise _Refused(
                invalid,
                "Validation",
                f"`inputs` must have less than {self.max_input_length} tokens. Given: {longest}",
            )

    def _take_permits(self, count: int) -> None:
        with self._lock:
            self.largest_batch = max(self.largest_batch, count)
            if self._in_flight + count > self.max_concurrent_requests:
                self.refused += 1
                raise _Refused(429, "Overloaded", "Model is overloaded")
            self._in_flight += count
            self.most_texts = max(self.most_texts, self._in_flight)

    def _ranked(self, query: str, texts: list[str], raw: bool) -> list[dict[str, Any]]:
        scores = [self.fixed.get(text, logit(query, text)) for text in texts]
        if not raw:
            scores = [
                s if t in self.fixed else sigmoid(s) for s, t in zip(scores, texts, strict=True)
            ]
        if self.nan:
            scores = [math.nan] * len(texts)
        ranked = [{"index": i, "score": score} for i, score in enumerate(scores)]
        ranked.sort(key=lambda item: -item["score"])
        return ranked[:-1] if self.short else ranked


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self._open: set[socket.socket] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a client that went away is no news

    def drop_connections(self) -> None:
        for connection in list(self._open):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue


def _handler(server: TeiServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            self._reply(server.answer("GET", self.path, dict(self.headers), b""))

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self._reply(server.answer("POST", self.path, dict(self.headers), raw))

        def _reply(self, reply: Reply) -> None:
            plain = isinstance(reply.body, str)
            body = reply.body.encode() if plain else json.dumps(reply.body).encode()
            self.send_response(reply.status)
            self.send_header("Content-Type", "text/plain" if plain else "application/json")
            self.send_header("Content-Length", str(len(body)))
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler
