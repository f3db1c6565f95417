"""What to paste into the configuration of clients."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import orjson

NAME = "memory"


@dataclass(frozen=True, slots=True)
class ClientTarget:
    """Where a client connects: a server, one of its banks or all, and the key if one is needed."""

    server: str
    bank: str | None = None
    key: str | None = None

    @property
    def url(self) -> str:
        base = f"{self.server.rstrip('/')}/mcp"
        return base if self.bank is None else f"{base}/{quote(self.bank, safe='')}"

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}

    def entry(self, url: str = "url", **more: str) -> dict[str, Any]:
        """As most clients write it; `url`: what the address is called."""
        headers = {"headers": self.headers} if self.headers else {}
        return {**more, url: self.url, **headers}


def _json(where: str, content: Mapping[str, Any]) -> str:
    return f"{where}:\n{orjson.dumps(content, option=orjson.OPT_INDENT_2).decode()}"


def _claude_code(to: ClientTarget) -> str:
    words = ["claude", "mcp", "add", "--transport", "http", NAME, to.url]
    for name, value in to.headers.items():
        words += ["--header", f"{name}: {value}"]
    return shlex.join(words)


def _codex(to: ClientTarget) -> str:
    lines = ["~/.codex/config.toml:", f"[mcp_servers.{NAME}]", f'url = "{to.url}"']
    if to.key:
        lines.append('bearer_token_env_var = "FOURFOLD_API_KEY"')
        lines.append(f"# in the environment: export FOURFOLD_API_KEY={shlex.quote(to.key)}")
    return "\n".join(lines)


def _stdio(where: str) -> Callable[[ClientTarget], str]:
    def snippet(to: ClientTarget) -> str:
        arguments = ["mcp", "--url", to.server]
        if to.bank is not None:
            arguments += ["--bank", to.bank]
        environment = {"env": {"FOURFOLD_API_KEY": to.key}} if to.key else {}
        entry = {"command": "fourfold", "args": arguments, **environment}
        return _json(where, {"mcpServers": {NAME: entry}})

    return snippet


SNIPPETS: Mapping[str, Callable[[ClientTarget], str]] = {
    "claude-code": _claude_code,
    "claude-desktop": _stdio("claude_desktop_config.json"),
    "codex": _codex,
    "cursor": lambda to: _json("~/.cursor/mcp.json", {"mcpServers": {NAME: to.entry()}}),
    "gemini": lambda to: _json(
        "~/.gemini/settings.json",
        {"mcpServers": {NAME: to.entry("httpUrl")}},
    ),
    "openhands": lambda to: _json("mcp.json", {"mcpServers": {NAME: to.entry()}}),
    "roo": lambda to: _json(
        ".roo/mcp.json", {"mcpServers": {NAME: to.entry(type="streamable-http")}}
    ),
    "stdio": _stdio("any client that starts a program"),
    "vscode": lambda to: _json(".vscode/mcp.json", {"servers": {NAME: to.entry(type="http")}}),
    "windsurf": lambda to: _json(
        "~/.codeium/windsurf/mcp_config.json",
        {"mcpServers": {NAME: to.entry("serverUrl")}},
    ),
    "zed": lambda to: _json("settings.json", {"context_servers": {NAME: to.entry()}}),
}
"""Client -> its snippet for an endpoint."""
