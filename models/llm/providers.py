"""Who can be asked: addresses and the habits of each provider of chat completions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from models.settings import ModelSettingsError


class Rung(IntEnum):
    """How an answer's shape is asked for, from the firmest to the weakest."""

    STRICT = 0
    SCHEMA = 1
    TOOL = 2
    OBJECT = 3
    PROMPT = 4


@dataclass(frozen=True, slots=True)
class Provider:
    """`url` "" must be given. `first_rung`: where structured answers start; a refusal leads down.

    `completion_tokens`: the limit is called max_completion_tokens. `keyless`: answers without one.
    `batches`: takes files of questions, answered within a day for less.
    """

    url: str = ""
    first_rung: Rung = Rung.SCHEMA
    completion_tokens: bool = False
    keyless: bool = False
    messages: bool = False
    batches: bool = False


PROVIDERS = {
    "openai": Provider("https://api.openai.com/v1", completion_tokens=True, batches=True),
    "anthropic": Provider("https://api.anthropic.com/v1", Rung.TOOL, messages=True),
    "groq": Provider("https://api.groq.com/openai/v1", batches=True),
    "openrouter": Provider("https://openrouter.ai/api/v1"),
    "requesty": Provider("https://router.requesty.ai/v1"),
    "deepseek": Provider("https://api.deepseek.com", Rung.OBJECT),
    "zai": Provider("https://api.z.ai/api/paas/v4", Rung.OBJECT),
    "minimax": Provider("https://api.minimax.io/v1", Rung.TOOL),
    "volcano": Provider("https://ark.cn-beijing.volces.com/api/v3", Rung.OBJECT),
    "fireworks": Provider("https://api.fireworks.ai/inference/v1"),
    "nous": Provider("https://inference-api.nousresearch.com/v1", Rung.OBJECT),
    "opencode-go": Provider("https://opencode.ai/zen/go/v1", Rung.OBJECT),
    "gemini": Provider("https://generativelanguage.googleapis.com/v1beta/openai", batches=True),
    "ollama": Provider("http://localhost:11434/v1", keyless=True),
    "ollama-cloud": Provider("https://ollama.com/v1"),
    "lmstudio": Provider("http://localhost:1234/v1", keyless=True),
    "vllm": Provider(keyless=True),
    "litellm": Provider(keyless=True),
}

_PROXY = (
    "point provider litellm at a LiteLLM proxy that speaks to it, or another at a compatible server"
)
_LLAMA = "run llama-server and use provider openai with its address"

ELSEWHERE = {
    "bedrock": _PROXY,
    "vertexai": _PROXY,
    "openai-responses": "use provider openai: its chat completions reach the same models",
    "openai-codex": "use provider openai with an API key",
    "claude-code": "use provider anthropic with an API key",
    "github-copilot": _PROXY,
    "xai-oauth": _PROXY,
    "llamacpp": _LLAMA,
    "litellmrouter": "run it as a LiteLLM proxy and use provider litellm",
}
"""Names that other servers know and this one does not, and the way round."""


def provider(name: str) -> Provider:
    """ModelSettingsError names what can be used, or the way round."""
    if name in ELSEWHERE:
        raise ModelSettingsError(f"llm_provider {name!r} is not supported: {ELSEWHERE[name]}")
    if name not in PROVIDERS:
        raise ModelSettingsError(f"llm_provider is {name!r}: choose one of {', '.join(PROVIDERS)}")
    return PROVIDERS[name]
