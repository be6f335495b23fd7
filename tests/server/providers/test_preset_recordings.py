"""A preset reads what its vendor really sends: recorded replies, in a folder elsewhere that REFOLD_RECORDINGS names.

None are recorded of Cerebras, Fireworks, Gemini's compatible endpoint, LM Studio, sglang, Together and vLLM.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from refold_protocol.dialects.chat_completions import CHAT_COMPLETIONS
from refold_protocol.session.messages import FinishChunk
from refold_server.config import TimeoutsConfig
from refold_server.config_file import build_config, read_toml
from refold_server.providers.credentials import Credentials
from refold_server.providers.http_provider import HttpProvider
from refold_server.providers.http_transport import HttpClients
from tests.support.asking import NO_LOGINS, ask
from tests.support.fake_provider import FakeProvider, answer

pytestmark = pytest.mark.anyio

RECORDED = {
    "alibaba": "alibaba",
    "azure": "azure",
    "deepseek": "deepseek",
    "groq": "groq",
    "llama.cpp": "llamacpp",
    "mistral": "mistral",
    "moonshot": "moonshot",
    "ollama": "ollama",
    "openai": "openai",
    "openrouter": "openrouter",
    "xai": "xai",
    "zai": "zai",
}
"""The presets of whose vendors replies are recorded, and how their files begin."""


@pytest.mark.parametrize("preset", RECORDED)
async def test_each_recorded_stream_ends_with_a_finish_or_in_the_servers_own_words(preset: str) -> None:
    folder = os.environ.get("REFOLD_RECORDINGS")
    if folder is None:
        pytest.skip("REFOLD_RECORDINGS names no folder of recorded replies")
    streams = sorted((Path(folder) / "chat").glob(f"{RECORDED[preset]}*.response.sse"))
    assert streams
    with FakeProvider(*(answer(path.read_bytes()) for path in streams)) as server:
        text = f'[providers.p]\npreset = "{preset}"\nbase_url = "{server.base_url}"\n'
        row = build_config(read_toml(text, "c.toml"), lambda: Path("/store")).providers[1]
        clients, key = HttpClients(), Credentials(row, {str(row.key_env): "sk-0123456789"}, NO_LOGINS)
        provider = HttpProvider(row, CHAT_COMPLETIONS, TimeoutsConfig(), clients, credentials=key)
        for path in streams:
            asked = await ask(provider)
            whole = asked.error is None and isinstance(asked.chunks[-1], FinishChunk)
            assert whole or "the provider reported an error" in str(asked.error), path.name
        await clients.close()
