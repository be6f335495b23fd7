"""A real engine understands the bodies that refold encodes, and refold understands its streams."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import anyio
import pytest

from refold_protocol.dialects.chat_completions import ChatCompletionsEncoder, resolve_options
from refold_protocol.errors import ProviderError
from refold_protocol.json_text import JsonText
from refold_protocol.session.append_only_list import AppendOnlyList
from refold_protocol.session.chunks import assemble
from refold_protocol.session.messages import (
    CallConfig,
    EpochHeader,
    FinishChunk,
    Message,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    ToolSchema,
    Usage,
    text_content,
)
from refold_protocol.session.request import Request
from refold_server.providers.provider_registry import Provider
from tests.support.asking import Asked, ask, error_of, http_provider
from tests.support.chat_stream import text_in, usage_in
from tests.support.engine import chain_engine, random_engine
from tests.support.engine_models import SPOKEN
from tests.support.requests import request, user

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

LIST_FILES = ToolSchema(
    "list_files", "List files.", JsonText('{"type":"object","properties":{"path":{"type":"string"}},"required":[]}')
)


class Talk:
    """A conversation with one model: each `say` sends the whole history, encoded step by step."""

    def __init__(self, provider: Provider, *, tools: tuple[ToolSchema, ...] = (), max_tokens: int = 64) -> None:
        config = CallConfig(
            "engine",
            "model",
            "chat-completions",
            dialect_options=resolve_options({}),
            temperature=0.0,
            max_tokens=max_tokens,
        )
        self._header = EpochHeader(config, "You are tested. 那🙂", tools or None)
        self._provider = provider
        self._encoder = ChatCompletionsEncoder()
        self.history: AppendOnlyList[Message] = AppendOnlyList()

    async def say(self, message: Message) -> Asked:
        self.history = self.history.then(message)
        asked = await ask(self._provider, self.body())
        if asked.error is None:
            self.history = self.history.then(Message("assistant", assemble(asked.chunks).content))
        return asked

    def body(self) -> bytes:
        return self._encoder.encode(Request(self._header, self.history), {}).data


@asynccontextmanager
async def chain(folder: Path) -> AsyncGenerator[Provider, None]:
    with chain_engine(folder, "list_files", {"path": "."}) as base_url:
        async with http_provider(base_url) as provider:
            yield provider


async def test_the_chain_model_calls_a_tool_and_speaks_after_its_result(tmp_path: Path) -> None:
    async with chain(tmp_path) as provider:
        talk = Talk(provider, tools=(LIST_FILES,))
        called = await talk.say(user("What is here?"))
        assert called.error is None
        (call,) = assemble(called.chunks).content
        assert isinstance(call, ToolCallBlock)
        assert (call.name, call.arguments) == ("list_files", '{"path": "."}')
        assert called.chunks[-1] == FinishChunk("tool-calls")
        spoke = await talk.say(Message("user", (ToolResultBlock(call.id, text_content("a.txt\nb.txt"), False),)))
    assert spoke.error is None
    assert (text_in(spoke.chunks), spoke.chunks[-1]) == (SPOKEN, FinishChunk("stop"))
    assert usage_of(spoke).cache_read_tokens == usage_of(called).prompt_tokens


@pytest.mark.parametrize("form", ["null", "empty", "absent"])
async def test_a_history_with_a_call_is_taken_whatever_stands_for_its_missing_text(tmp_path: Path, form: str) -> None:
    """A-11; and with arguments that were no JSON, which this engine refuses for ever (A-08)."""
    config = CallConfig("engine", "m", "chat-completions", resolve_options({"tool_only_content": form}))
    history = [
        user("What is here?"),
        Message("assistant", (ToolCallBlock("c1", "list_files", '{"path": '),)),
        Message("user", (ToolResultBlock("c1", text_content("broken arguments"), True),)),
    ]
    body = ChatCompletionsEncoder().encode(Request(EpochHeader(config, tools=(LIST_FILES,)), AppendOnlyList(history)), {}).data
    async with chain(tmp_path) as provider:
        assert text_in((await ask(provider, body)).chunks) == SPOKEN


async def test_ten_prompts_are_each_read_from_the_cache_up_to_the_end_of_the_one_before(tmp_path: Path) -> None:
    with random_engine(tmp_path) as base_url:
        async with http_provider(base_url) as provider:
            talk = Talk(provider)
            seen: list[Usage] = []
            for number in range(10):
                asked = await talk.say(user(f"Prompt {number}: é 那🙂"))
                assert asked.error is None
                seen.append(usage_of(asked))
    for before, after in pairwise(seen):
        assert after.cache_read_tokens is not None
        assert after.cache_read_tokens >= before.prompt_tokens


async def test_a_reply_cut_by_its_limit_says_so(tmp_path: Path) -> None:
    with random_engine(tmp_path) as base_url:
        async with http_provider(base_url) as provider:
            asked = await Talk(provider, max_tokens=7).say(user("babble"))
    assert asked.chunks[-1] == FinishChunk("length")
    assert usage_of(asked).output_tokens == 7
    (block,) = assemble(asked.chunks).content
    assert isinstance(block, TextBlock)
    assert len(block.text) == 7


async def test_a_prompt_that_does_not_fit_is_an_overflow_with_its_numbers(tmp_path: Path) -> None:
    with random_engine(tmp_path, context=256) as base_url:
        async with http_provider(base_url) as provider:
            talk = Talk(provider)
            talk.history = talk.history.then(user("x" * 2000))
            error: ProviderError = await error_of(provider, talk.body())
    assert (error.error_kind, error.status) == ("provider.contextOverflow", 400)
    assert "the window holds 256" in error.message


async def test_a_stream_without_end_can_be_cancelled_and_the_engine_is_free_again(tmp_path: Path) -> None:
    with chain_engine(tmp_path, endless=True) as base_url:
        async with http_provider(base_url) as provider:
            talk = Talk(provider, max_tokens=20_000)
            talk.history = talk.history.then(user("go on"))
            came = anyio.Event()

            async def listen() -> None:
                async for _ in provider.stream(request(user("go on")), talk.body()):
                    came.set()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(listen)
                await came.wait()
                tasks.cancel_scope.cancel()
            again = await Talk(provider, max_tokens=3).say(user("more"))
    assert text_in(again.chunks) == "abc"


def usage_of(asked: Asked) -> Usage:
    (found,) = usage_in(asked.chunks)
    return found.usage
