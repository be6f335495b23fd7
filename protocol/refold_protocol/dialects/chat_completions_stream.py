"""Owns the way from the bytes of a chat-completions stream to chunks: what counts as the end, and what as a failure.

A reply is complete when a finish reason came, or `[DONE]` while no call is open; anything else is a failure, however
politely the connection closed. Chunks that were decoded before a failure are given first. Usage and finish are given
once, at the end, because servers send usage before, with and after the finish reason, and some with every event.
"""

from __future__ import annotations

from typing import Final

from refold_protocol.dialects.chat_completions_wire import Choice, parse_event, parse_usage, raise_error, text_of_part
from refold_protocol.dialects.provider_failures import short
from refold_protocol.dialects.reply_blocks import REASONING, TEXT, ReplyBlocks
from refold_protocol.dialects.sse import SseDecoder
from refold_protocol.errors import ProviderError
from refold_protocol.session.messages import Chunk, FinishChunk, UsageChunk

DONE: Final = "[DONE]"
"""The data of the event that ends a stream."""

_REASONS: Final[dict[str, str]] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool-calls",
    "content_filter": "content-filter",
}

_BREAKDOWNS: Final[frozenset[str]] = frozenset({"insufficient_system_resource", "error"})
"""Finish reasons by which a provider says that it broke the reply off: DeepSeek's, and that of OpenRouter."""


class ChatCompletionsDecoder:
    """Decodes one reply. Bytes may be cut anywhere."""

    __slots__ = ("_blocks", "_done", "_failure", "_reason", "_refused", "_seen", "_sse", "_usage")

    def __init__(self) -> None:
        self._sse = SseDecoder()
        self._blocks = ReplyBlocks()
        self._usage = None
        self._reason: str | None = None
        self._refused = False
        self._seen = False
        self._done = False
        self._failure: ProviderError | None = None

    @property
    def failure(self) -> ProviderError | None:
        """What was met behind the chunks that the last call gave; every later call raises it."""
        return self._failure

    @property
    def complete(self) -> bool:
        """Whether the reply has its positive end, so that a connection that breaks now takes nothing from it."""
        return self._reason is not None or self._done

    @property
    def done(self) -> bool:
        """Whether the last chunk was given; further bytes are ignored."""
        return self._done

    def feed(self, data: bytes) -> list[Chunk]:
        """Give the chunks that `data` completes, in order.

        Raises ProviderError when `data` shows a failure and no chunk came before it; otherwise the chunks are given and
        `failure` holds the error. Kinds: that of the provider's own error, else `provider.badStream`.
        """
        self._raise_failure()
        chunks: list[Chunk] = []
        if self._done:
            return chunks
        try:
            for event in self._sse.feed(data):
                self._take(event, chunks)
                if self._done:
                    return chunks
        except ProviderError as error:  # kept, and raised when what came before it was delivered
            return self._delivered(chunks, error)
        self._failure = self._sse.failure
        return chunks

    def close(self, *, cut: bool = False) -> list[Chunk]:
        """Give the last chunks when the stream has ended. `cut`: the connection broke, so what waits for the end of its
        line is dropped. Raises ProviderError (or sets `failure`, as `feed` does) when the reply has no positive end."""
        self._raise_failure()
        chunks: list[Chunk] = []
        try:
            for event in () if cut or self._done else self._sse.close():
                self._take(event, chunks)
            if not self._done:
                self._end(chunks, marked=False)
        except ProviderError as error:  # kept, and raised when what came before it was delivered
            return self._delivered(chunks, error)
        return chunks

    def _take(self, data: str, chunks: list[Chunk]) -> None:
        if data[0] != "{" and data.strip() == DONE:
            self._end(chunks, marked=True)
            return
        event, clean = parse_event(data)
        self._seen = True
        if len(event.usage) > 4:  # neither absent nor null
            self._usage = event.usage
        if event.error:
            raise_error(event.error)
        for choice in event.choices or ():
            if choice.index == 0:
                self._take_choice(choice, clean, chunks)

    def _take_choice(self, choice: Choice, clean: bool, chunks: list[Chunk]) -> None:
        if choice.error:
            raise_error(choice.error)
        delta = choice.delta
        if delta is not None:
            thinking = delta.reasoning_content or delta.reasoning
            if thinking and (text := thinking if type(thinking) is str else text_of_part(thinking)):
                self._blocks.add_text(REASONING, text, clean, chunks)
            content = delta.content
            if content and (text := content if type(content) is str else text_of_part(content)):
                self._blocks.add_text(TEXT, text, clean, chunks)
            if delta.refusal:
                self._refused = True
                self._blocks.add_text(TEXT, delta.refusal, clean, chunks)
            for entry in delta.tool_calls or ():
                self._blocks.add_call(entry, chunks)
        if choice.finish_reason:
            if choice.finish_reason in _BREAKDOWNS:
                raise ProviderError(
                    "provider.overloaded",
                    f"the provider broke its answer off (finish reason {choice.finish_reason}); try again later",
                )
            self._reason = choice.finish_reason

    def _end(self, chunks: list[Chunk], *, marked: bool) -> None:
        """Give the last chunks; `marked` tells that `[DONE]` came. Raises ProviderError when the reply is not whole."""
        if self._reason is None and (not marked or self._blocks.has_calls or not self._seen):
            raise ProviderError("provider.badStream", f"{self._where_it_ended()}; try again")
        self._blocks.close(chunks)
        if self._usage is not None and (usage := parse_usage(self._usage)) is not None:
            chunks.append(UsageChunk(usage))
        chunks.append(self._finish())
        self._done = True

    def _finish(self) -> FinishChunk:
        word = self._reason
        if word is None:  # the marker is the only positive end that some servers send
            return FinishChunk("stop", DONE)
        reason = _REASONS.get(word)
        if self._refused and word == "stop":
            return FinishChunk("refusal", word)
        if self._blocks.has_calls and word in ("stop", "function_call"):
            return FinishChunk("tool-calls", word)
        return FinishChunk("other", short(word, 80)) if reason is None else FinishChunk(reason)

    def _where_it_ended(self) -> str:
        if not self._seen:
            return "the provider's answer was empty: the stream ended before anything came"
        if self._blocks.has_calls:
            return "the provider's answer was cut off in the middle of a tool call, which did not run"
        if self._blocks.is_empty:
            return "the provider's answer was cut off before any text"
        return "the provider's answer was cut off in the middle of the text"

    def _delivered(self, chunks: list[Chunk], error: ProviderError) -> list[Chunk]:
        self._failure = error
        if not chunks:
            raise error
        return chunks

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure
