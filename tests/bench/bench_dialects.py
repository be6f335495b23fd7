"""CPU of the dialect: microseconds per event of a stream, per body of a growing history, per chunk over HTTP.

Run it alone: `python -m tests.bench.bench_dialects`. The figures are CPU time of this process, the best and the median of
ROUNDS runs. The server of the HTTP row plays in a thread of the same process, so its own cost is measured and taken off.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from hashlib import sha256
from statistics import median

import anyio

from refold_protocol.dialects.chat_completions import ChatCompletionsDecoder, ChatCompletionsEncoder, encode
from refold_protocol.dialects.sse import SseDecoder
from refold_protocol.json_text import JsonText
from refold_protocol.session.append_only_list import AppendOnlyList
from refold_protocol.session.messages import (
    CallConfig,
    EpochHeader,
    Message,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    ToolSchema,
    text_content,
)
from refold_protocol.session.request import Request, RequestDigest
from tests.support.asking import ask, http_provider
from tests.support.fake_provider import FakeProvider, answer

ROUNDS = 7
EVENTS = 20_000
EVENT = (
    'data: {{"id":"chatcmpl-BxyzK1234567890abcdefghij","object":"chat.completion.chunk","created":1751234567,'
    '"model":"gpt-4o-mini-2024-07-18","service_tier":"default","system_fingerprint":"fp_34a54ae93c","choices":[{{"index":0,'
    '"delta":{delta},"logprobs":null,"finish_reason":{finish}}}],"usage":null}}\n\n'
)


def main() -> None:
    """Measure and print."""
    decoding()
    encoding()
    over_http()


def decoding() -> None:
    """Bytes to events, and bytes to chunks."""
    plain = EVENT.format(delta='{"content":" token"}', finish="null").encode()
    wide = EVENT.format(delta='{"content":" 那🙂"}', finish="null").encode()
    calls = EVENT.format(delta='{"tool_calls":[{"index":0,"function":{"name":"w","arguments":"abc"}}]}', finish="null").encode()
    for name, event in (
        ("ASCII text", plain),
        ("other text", wide),
        ("CRLF", plain.replace(b"\n", b"\r\n")),
        ("a call", calls),
    ):
        for group in (1, 16):
            writes = [event * group] * (EVENTS // group)
            show(f"events, {name}, {group} a write", EVENTS, lambda writes=writes: feed(SseDecoder().feed, writes))
            show(f"chunks, {name}, {group} a write", EVENTS, lambda writes=writes: feed(ChatCompletionsDecoder().feed, writes))


def feed(take: Callable[[bytes], object], writes: list[bytes]) -> None:
    """Feed all writes."""
    for write in writes:
        take(write)


def encoding() -> None:
    """Bodies of about 400 kB: from nothing, and after one more message."""
    tool = ToolSchema("read_file", "Reads a file.", JsonText('{"type":"object","properties":{"path":{"type":"string"}}}'))
    header = EpochHeader(CallConfig("p", "m", "chat-completions", max_tokens=1024), "You help." * 400, (tool,) * 12)
    tape: AppendOnlyList[Message] = AppendOnlyList()
    for number in range(66):
        tape = tape.then(Message("user", text_content(f"Question {number}? " * 120)))
        call = ToolCallBlock(f"c{number}", "read_file", '{"path":"src/main.py"}')
        tape = tape.then(Message("assistant", (TextBlock("I look. " * 100), call)))
        tape = tape.then(Message("user", (ToolResultBlock(f"c{number}", text_content("line of code\n" * 200), False),)))
    whole = Request(header, tape)
    print(f"body of {len(tape)} messages, {len(encode(whole, {})):,} bytes")
    show("  encode from nothing, with digest", 20, lambda: repeat(20, lambda: ChatCompletionsEncoder().encode(whole, {})))
    encoder = ChatCompletionsEncoder()
    encoder.encode(whole, {})
    show("  the same request again", 200, lambda: repeat(200, lambda: encoder.encode(whole, {})))
    show("  one message more, each time", 200, lambda: grow(encoder, header, tape))
    body = encode(whole, {})
    show("  (SHA-256 of the body alone)", 200, lambda: repeat(200, lambda: sha256(body)))
    show("  canonical digest, one message more", 200, lambda: digest(header, tape))


def grow(encoder: ChatCompletionsEncoder, header: EpochHeader, tape: AppendOnlyList[Message]) -> None:
    """Encode 200 times, each time after one more short message."""
    for _ in range(200):
        tape = tape.then(Message("user", text_content("and then?")))
        encoder.encode(Request(header, tape), {})


def digest(header: EpochHeader, tape: AppendOnlyList[Message]) -> None:
    """Compute the canonical digest 200 times, each time after one more short message; the first one costs all."""
    running = RequestDigest()
    for _ in range(200):
        tape = tape.then(Message("user", text_content("and then?")))
        running.of(Request(header, tape))


def repeat(times: int, act: Callable[[], object]) -> None:
    """Do it again and again."""
    for _ in range(times):
        act()


def over_http() -> None:
    """A stream over the loopback interface through the provider: one event a write, CPU of this thread alone."""
    event = EVENT.format(delta='{"content":" token"}', finish="null").encode()
    end = EVENT.format(delta="{}", finish='"stop"').encode() + b"data: [DONE]\n\n"
    for group in (1, 16):
        writes = (*[event * group] * (EVENTS // group), end)

        async def run(writes: tuple[bytes, ...] = writes) -> float:
            with FakeProvider(answer(*writes)) as server:
                async with http_provider(server.base_url) as provider:
                    start = time.thread_time()
                    asked = await ask(provider)
                    assert asked.error is None
                    return (time.thread_time() - start) / EVENTS * 1e6

        figures = [anyio.run(run) for _ in range(3)]
        print(f"{f'provider over HTTP, {group} a write':44}{min(figures):9.2f} µs (median {median(figures):.2f})")


def show(name: str, count: int, act: Callable[[], None]) -> None:
    """Run `act`, which does `count` things, ROUNDS times, and print the CPU microseconds of one thing."""
    figures: list[float] = []
    for _ in range(ROUNDS):
        start = time.process_time()
        act()
        figures.append((time.process_time() - start) / count * 1e6)
    print(f"{name:44}{min(figures):9.2f} µs (median {median(figures):.2f})")


if __name__ == "__main__":
    sys.exit(main())
