"""A stand-in for a language model's server: real HTTP, chat completions, Messages and batches.

It keeps the protocols (tools, tool_choice, response_format, statuses, headers, error bodies) and
answers by script; a request that no step or rule answers is a failure of the test.

    with LLMServer() as server:
        server.then(Reply(text="hello"))
        server.rule("extract", lambda asked: Reply(json={"facts": []}))
        ... server.url ...
"""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.models.llm_batches import BatchAPI


@dataclass(frozen=True)
class Asked:
    """One request, as it came. `at` is on time.monotonic()."""

    path: str
    body: Mapping[str, Any]
    headers: Mapping[str, str]
    at: float

    @property
    def text(self) -> str:
        """Everything that the model would read."""
        return "\n".join(
            content if isinstance(content, str) else json.dumps(content)
            for content in [
                *([self.body["system"]] if "system" in self.body else []),
                *(message.get("content") or "" for message in self.body.get("messages", [])),
            ]
        )

    @property
    def shape(self) -> str:
        """How a structured answer was asked for: strict, schema, object, tool, or plain."""
        form = self.body.get("response_format") or {}
        if form.get("type") == "json_schema":
            return "strict" if form["json_schema"].get("strict") else "schema"
        if form.get("type") == "json_object":
            return "object"
        return "tool" if self.forced else "plain"

    @property
    def forced(self) -> str:
        """The tool that the model must call."""
        choice = self.body.get("tool_choice")
        if isinstance(choice, dict):
            return str(choice.get("name") or (choice.get("function") or {}).get("name") or "")
        return ""


@dataclass(frozen=True)
class Reply:
    """`text` or `json` is what the model says; where a tool is forced, it is that call's arguments.

    `calls`: tools that the model wants called, (name, arguments); arguments as an object or as
    text. `raw` replaces the whole body. `delay_s` before the answer; `hang`: none ever comes;
    `reset_after`: the connection breaks after so many bytes.
    """

    text: str | None = None
    json: Any = None
    calls: Sequence[tuple[str, Any]] = ()
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    error: Mapping[str, Any] | str | None = None
    finish: str | None = None
    reasoning: str | None = None
    usage: Mapping[str, Any] | None = field(
        default_factory=lambda: {"prompt_tokens": 100, "completion_tokens": 10}
    )
    delay_s: float = 0.0
    hang: bool = False
    reset_after: int | None = None

    @property
    def said(self) -> str | None:
        return json.dumps(self.json) if self.json is not None else self.text


Answer = Reply | Callable[[Asked], Reply | None]


class LLMServer:
    """Set: `unsupported`, parameters that are refused with 400 as real servers do it
    ("temperature", "response_format", "json_schema", "tool_choice", "max_tokens", …).
    Read: `asked` (but for rows of batches), `unmatched`, `most_at_once`, `batches`."""

    def __init__(self, *, unsupported: Sequence[str] = ()) -> None:
        self.unsupported = set(unsupported)
        self.asked: list[Asked] = []
        self.unmatched: list[Asked] = []
        self.most_at_once = 0
        self.batches = BatchAPI(self._row)
        self._at_once = 0
        self._steps: deque[Answer] = deque()
        self.rules: list[tuple[Callable[[Asked], bool], Answer]] = []
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> LLMServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def then(self, *answers: Answer) -> None:
        """Answers in this order, before any rule."""
        self._steps.extend(answers)

    def rule(self, match: str | Callable[[Asked], bool], answer: Answer) -> None:
        """The answer of all requests that hold the text `match`, or for which it is true. Earlier
        rules first; one whose answer is None passes on."""
        if isinstance(match, str):
            wanted = match
            self.rules.append((lambda asked: wanted in asked.text, answer))
        else:
            self.rules.append((match, answer))

    def reply(self, asked: Asked) -> Reply:
        """Called by the handler, from its thread."""
        with self._lock:
            self.asked.append(asked)
            if refusal := self._refusal(asked):
                return refusal
            if self._steps:
                step = self._steps.popleft()
                found = step(asked) if callable(step) else step
                if found is not None:
                    return found
        if (found := self._by_rule(asked)) is not None:
            return found
        with self._lock:
            self.unmatched.append(asked)
        return Reply(status=500, error=f"no step answers this: {asked.text[:200]}")

    def _by_rule(self, asked: Asked) -> Reply | None:
        for matches, answer in self.rules:
            if matches(asked):
                found = answer(asked) if callable(answer) else answer
                if found is not None:
                    return found
        return None

    def _row(self, body: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The answer to a row of a batch, by the rules."""
        asked = Asked("/v1/chat/completions", body, {}, time.monotonic())
        reply = self._by_rule(asked)
        if reply is None or reply.status >= 400:
            return None
        found: Mapping[str, Any] = json.loads(_body(asked, reply))
        return found

    def _refusal(self, asked: Asked) -> Reply | None:
        form = asked.body.get("response_format") or {}
        for name in sorted(self.unsupported):
            if name in asked.body or form.get("type") == name:
                parameter = "response_format" if form.get("type") == name else name
                return Reply(
                    status=400,
                    error={
                        "message": f"Unsupported parameter: '{parameter}' is not supported here.",
                        "type": "invalid_request_error",
                        "param": parameter,
                        "code": "unsupported_parameter",
                    },
                )
        return None

    def enter(self) -> None:
        with self._lock:
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)

    def leave(self) -> None:
        with self._lock:
            self._at_once -= 1

    def wait(self, seconds: float) -> None:
        """Waits, but never longer than the server runs."""
        self._closing.wait(seconds)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512


def _handler(server: LLMServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if BatchAPI.means(self.path):
                self._batched(b"")
                return
            self._send(200, {}, json.dumps({"data": [{"id": "scripted"}]}).encode())

        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            if BatchAPI.means(self.path):
                self._batched(content)
                return
            headers = {name.lower(): value for name, value in self.headers.items()}
            asked = Asked(self.path, json.loads(content), headers, time.monotonic())
            server.enter()
            try:
                self._answer(asked, server.reply(asked))
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True
            finally:
                server.leave()

        def do_DELETE(self) -> None:
            self._batched(b"")

        def _batched(self, content: bytes) -> None:
            kind = self.headers.get("Content-Type", "")
            answer = server.batches.handle(self.command, self.path, content, kind)
            if answer is None:
                self.close_connection = True
            else:
                self._send(answer[0], {}, answer[1])

        def _answer(self, asked: Asked, reply: Reply) -> None:
            if reply.hang:
                server.wait(600)
            if reply.delay_s:
                server.wait(reply.delay_s)
            body = reply.raw if reply.raw is not None else _body(asked, reply)
            if reply.reset_after is not None:
                self.send_response(reply.status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body[: reply.reset_after])
                self.wfile.flush()
                linger = struct.pack("ii", 1, 0)
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                self.close_connection = True
                return
            self._send(reply.status, reply.headers, body)

        def _send(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


def _body(asked: Asked, reply: Reply) -> bytes:
    if reply.error is not None or reply.status >= 400:
        error = reply.error or {"message": "scripted", "type": "scripted"}
        if isinstance(error, str):
            error = {"message": error, "type": "scripted"}
        return json.dumps({"error": error}).encode()
    if asked.path.endswith("/messages"):
        return json.dumps(_messages(asked, reply)).encode()
    return json.dumps(_completion(asked, reply)).encode()


def _completion(asked: Asked, reply: Reply) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": reply.said}
    calls = list(reply.calls)
    if asked.forced and reply.said is not None:
        calls, message["content"] = [(asked.forced, reply.said)], None
    if reply.reasoning is not None:
        message["reasoning_content"] = reply.reasoning
    if calls:
        message["tool_calls"] = [
            {
                "id": f"call_{place}",
                "type": "function",
                "function": {
                    "name": name,
                    "arguments": given if isinstance(given, str) else json.dumps(given),
                },
            }
            for place, (name, given) in enumerate(calls)
        ]
    finish = reply.finish or ("tool_calls" if calls else "stop")
    answer: dict[str, Any] = {
        "id": "scripted",
        "object": "chat.completion",
        "model": asked.body.get("model"),
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
    }
    if reply.usage is not None:
        answer["usage"] = reply.usage
    return answer


def _messages(asked: Asked, reply: Reply) -> dict[str, Any]:
    blocks: list[dict[str, Any]] = []
    calls = list(reply.calls)
    if asked.forced and reply.said is not None:
        calls = [(asked.forced, reply.said)]
    elif reply.said is not None:
        blocks.append({"type": "text", "text": reply.said})
    for place, (name, given) in enumerate(calls):
        input = json.loads(given) if isinstance(given, str) else given
        blocks.append({"type": "tool_use", "id": f"toolu_{place}", "name": name, "input": input})
    usage = dict(reply.usage or {})
    return {
        "id": "scripted",
        "type": "message",
        "role": "assistant",
        "model": asked.body.get("model"),
        "content": blocks,
        "stop_reason": reply.finish or ("tool_use" if calls else "end_turn"),
        "usage": {
            "input_tokens": usage.get("prompt_tokens", 0),
            "output_tokens": usage.get("completion_tokens", 0),
        },
    }
