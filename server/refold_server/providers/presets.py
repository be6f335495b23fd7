"""Presets of providers: what known servers need, as a configuration would say it.

`[providers.NAME] preset = "groq"` stands for the rows here; each may be set beside it. Addresses, names of variables and
options are those of the vendors' own documents. Local servers need no key. Holds data alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final


def _served(base_url: str, **settings: Any) -> Mapping[str, Any]:
    return {"dialect": "chat-completions", "base_url": base_url, **settings}


PRESETS: Final[Mapping[str, Mapping[str, Any]]] = {
    # on this machine, at the port that each takes by itself
    "llama.cpp": _served("http://127.0.0.1:8080/v1"),
    "lmstudio": _served("http://127.0.0.1:1234/v1"),
    "ollama": _served("http://127.0.0.1:11434/v1"),
    "sglang": _served("http://127.0.0.1:30000/v1"),
    "vllm": _served("http://127.0.0.1:8000/v1"),
    # vendors and gateways
    "alibaba": _served("https://dashscope-intl.aliyuncs.com/compatible-mode/v1", key_env="DASHSCOPE_API_KEY"),
    "azure": {
        # `base_url` is the resource's own: https://RESOURCE.openai.azure.com/openai/v1
        "dialect": "chat-completions",
        "key_env": "AZURE_OPENAI_API_KEY",
        "key_header": "api-key",
        "options": {"max_tokens_field": "max_completion_tokens"},
    },
    "cerebras": _served("https://api.cerebras.ai/v1", key_env="CEREBRAS_API_KEY"),
    "deepseek": _served("https://api.deepseek.com/v1", key_env="DEEPSEEK_API_KEY"),
    "fireworks": _served("https://api.fireworks.ai/inference/v1", key_env="FIREWORKS_API_KEY"),
    "gemini": _served("https://generativelanguage.googleapis.com/v1beta/openai", key_env="GEMINI_API_KEY"),
    "groq": _served("https://api.groq.com/openai/v1", key_env="GROQ_API_KEY"),
    "mistral": _served(
        "https://api.mistral.ai/v1",
        key_env="MISTRAL_API_KEY",
        options={"include_usage": False},  # it tells the usage unasked, and refuses `stream_options`
    ),
    "moonshot": _served("https://api.moonshot.ai/v1", key_env="MOONSHOT_API_KEY"),
    "openai": _served(
        "https://api.openai.com/v1", key_env="OPENAI_API_KEY", options={"max_tokens_field": "max_completion_tokens"}
    ),
    "openrouter": _served("https://openrouter.ai/api/v1", key_env="OPENROUTER_API_KEY"),
    "together": _served("https://api.together.xyz/v1", key_env="TOGETHER_API_KEY"),
    "xai": _served("https://api.x.ai/v1", key_env="XAI_API_KEY"),
    "zai": _served("https://api.z.ai/api/paas/v4", key_env="ZAI_API_KEY"),
}
