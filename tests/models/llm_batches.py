"""The batch API of the stand-in for a language model's server: files, batches, results."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit


class BatchAPI:
    """`answer` gives the body of one row's response, or None where the row fails.

    Set: `held`, batches stay in progress; `refused`, (status, message) of every request here;
    `final`, the status that a batch ends with; `page`, the most that a list shows; `lost`: the
    next batch is made, but its answer never comes.
    Read: `rows`, the bodies of all rows that were sent; `files`, `batches`, `asked`.
    """

    def __init__(self, answer: Callable[[Mapping[str, Any]], Mapping[str, Any] | None]) -> None:
        self._answer = answer
        self._lock = threading.RLock()
        self.held = False
        self.refused: tuple[int, str] | None = None
        self.final = "completed"
        self.page = 100
        self.lost = False
        self.rows: list[Mapping[str, Any]] = []
        self.files: dict[str, bytes] = {}
        self.batches: dict[str, dict[str, Any]] = {}
        self.asked: list[tuple[str, str]] = []

    @staticmethod
    def means(path: str) -> bool:
        """Whether a request is for this API."""
        return "/files" in path or path.split("?")[0].split("/v1/")[-1].startswith("batches")

    def handle(self, method: str, url: str, content: bytes, kind: str) -> tuple[int, bytes] | None:
        """(status, body); None: the connection is to break."""
        parts = urlsplit(url)
        path = parts.path.split("/v1/")[-1].split("/")
        with self._lock:
            self.asked.append((method, "/".join(path)))
            if self.refused is not None:
                status, message = self.refused
                return status, _json({"error": {"message": message}})
            match method, path:
                case "POST", ["files"]:
                    return 200, self._upload(content, kind)
                case "GET", ["files", id, "content"]:
                    return (200, self.files[id]) if id in self.files else _none(id)
                case "DELETE", ["files", id]:
                    return (200, b"{}") if self.files.pop(id, None) is not None else _none(id)
                case "POST", ["batches"]:
                    made = self._make(json.loads(content))
                    if self.lost:
                        self.lost = False
                        return None
                    return 200, _json(made)
                case "GET", ["batches"]:
                    return 200, self._list(parse_qs(parts.query).get("after", [""])[0])
                case "GET", ["batches", id] if id in self.batches:
                    self._advance(self.batches[id])
                    return 200, _json(self.batches[id])
                case "POST", ["batches", id, "cancel"] if id in self.batches:
                    self.batches[id]["status"] = "cancelled"
                    return 200, _json(self.batches[id])
            return _none("/".join(path))

    def _upload(self, content: bytes, kind: str) -> bytes:
        assert kind.startswith("multipart/form-data"), kind
        boundary = kind.split("boundary=")[1].encode()
        parts = [part.split(b"\r\n\r\n", 1) for part in content.split(b"--" + boundary)[1:-1]]
        held = {head.split(b'name="')[1].split(b'"')[0]: body[:-2] for head, body in parts}
        assert held[b"purpose"] == b"batch"
        id = f"file-{len(self.files)}-{len(self.asked)}"
        self.files[id] = held[b"file"]
        return _json({"id": id, "object": "file"})

    def _make(self, body: Mapping[str, Any]) -> dict[str, Any]:
        assert body["endpoint"] == "/v1/chat/completions"
        assert body["completion_window"] == "24h"
        rows = [json.loads(line) for line in self.files[body["input_file_id"]].splitlines()]
        assert all(row["method"] == "POST" and len(row["custom_id"]) <= 64 for row in rows)
        self.rows += [row["body"] for row in rows]
        id = f"batch-{len(self.batches)}"
        self.batches[id] = {
            "id": id,
            "object": "batch",
            "status": "in_progress",
            "input_file_id": body["input_file_id"],
            "metadata": body["metadata"],
            "request_counts": {"total": len(rows), "completed": 0, "failed": 0},
        }
        return self.batches[id]

    def _list(self, after: str) -> bytes:
        every = list(reversed(self.batches.values()))
        ids = [batch["id"] for batch in every]
        first = ids.index(after) + 1 if after else 0
        found = every[first : first + self.page]
        return _json({"data": found, "has_more": first + len(found) < len(every)})

    def _advance(self, batch: dict[str, Any]) -> None:
        if self.held or batch["status"] != "in_progress":
            return
        lines = []
        for line in self.files[batch["input_file_id"]].splitlines():
            row = json.loads(line)
            answered = self._answer(row["body"])
            if answered is not None:
                response = {"status_code": 200, "body": answered}
                lines.append(_json({"custom_id": row["custom_id"], "response": response}))
        file = f"out-{batch['id']}"
        self.files[file] = b"\n".join(lines)
        batch["status"], batch["output_file_id"] = self.final, file
        batch["request_counts"]["completed"] = len(lines)


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _none(what: str) -> tuple[int, bytes]:
    return 404, _json({"error": {"message": f"no such thing: {what}"}})
