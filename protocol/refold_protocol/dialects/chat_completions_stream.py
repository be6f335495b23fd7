"""The way from the bytes of a chat-completions stream to chunks: what counts as the end, and what as a failure.

A reply is complete when a finish reason came and nothing of it after, or `[DONE]` while the arguments of all calls are whole;
anything else is a failure, however politely the connection closed. Chunks that were decoded before a failure are given
first. Usage and finish are given once, at the end, because servers send usage before, with and after the finish reason, and
some with every event. A reply that ended and is still none (nothing in it, a call that is not there, a reason that means
giving up) is given with its finish and its failure. A reply is bounded as a whole.
"""

from __future__ import annotations

from typing import Final

import msgspec

from refold_protocol.dialects.chat_completions_options import read_options
from refold_protocol.dialects.chat_completions_wire import (
    SAMPLE_CHARACTERS,
    Choice,
    Delta,
    StreamEvent,
    bad_stream,
    decode_event,
    odd_events,
    parse_usage,
    raise_error,
    text_parts,
)
from refold_protocol.dialects.finish_reasons import kind_of_abort, outweighs, reason_of
from refold_protocol.dialects.provider_failures import MESSAGE_CHARACTERS, WORD_CHARACTERS, short
from refold_protocol.dialects.reasoning_tags import ReasoningTags
from refold_protocol.dialects.reply_blocks import REASONING, TEXT, ReplyBlocks
from refold_protocol.dialects.sse import SseDecoder
from refold_protocol.errors import ProviderError
from refold_protocol.json_text import JsonText
from refold_protocol.session.messages import Chunk, FinishChunk, UsageChunk

DONE: Final = "[DONE]"
"""The data of the event that ends a stream."""

MOST_SIZE: Final = 24 * 1024 * 1024
"""How large a reply may get (`ReplyBlocks.size`), whatever limit was asked for."""

FREE_SIZE: Final = 4 * 1024 * 1024
SIZE_PER_TOKEN: Final = 256
"""How large it may get with an asked output limit: thinking may not count in it, and a token of blanks is long."""


class ChatCompletionsDecoder:
    """Decodes one reply. Bytes may be cut anywhere. `max_tokens` is the output limit that was asked for, `options` the text of
    the dialect's options."""

    __slots__ = (
        "_blocks",
        "_done",
        "_failure",
        "_most",
        "_reason",
        "_refused",
        "_resumed",
        "_said",
        "_seen",
        "_sse",
        "_tags",
        "_takes",
        "_usage",
        "_word",
    )

    def __init__(self, max_tokens: int | None = None, options: JsonText | None = None) -> None:
        tags = read_options(options).reasoning_tags
        self._tags = None if tags == "off" else ReasoningTags(opened=tags == "open")
        self._most = MOST_SIZE if max_tokens is None else min(MOST_SIZE, FREE_SIZE + SIZE_PER_TOKEN * max_tokens)
        self._sse = SseDecoder()
        self._blocks = ReplyBlocks()
        self._usage = None
        self._reason: str | None = None
        self._word = ""  # the server's own word for it
        self._resumed = False  # more came after the reason
        self._refused = False
        self._seen = False
        self._said = ""  # words of the server that were no part of a reply, and no error for sure
        self._takes = [-1, -1, -1]  # the choices that text, thinking and calls are taken from
        self._done = False
        self._failure: ProviderError | None = None

    @property
    def failure(self) -> ProviderError | None:
        """What was met behind the chunks that the last call gave; every later call raises it."""
        return self._failure

    @property
    def complete(self) -> bool:
        """Whether the reply has its positive end, so that a connection that breaks now takes nothing from it."""
        return (self._reason is not None and not self._resumed) or self._done

    @property
    def done(self) -> bool:
        """Whether the last chunk was given; further bytes are ignored."""
        return self._done

    @property
    def unread(self) -> bytes:
        """The first bytes that were no event, where no event came at all; else empty."""
        return b"" if self._seen else self._sse.unread

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
            if self._blocks.size > self._most:
                raise self._too_much()
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
        if data[0] != "{" and data.strip().removeprefix("data:").strip() == DONE:
            self._end(chunks, marked=True)
            return
        try:
            event = decode_event(data)
        except (msgspec.DecodeError, RecursionError):  # of another form: `odd_events` takes it
            self._take_odd(data, chunks)
            return
        if not self._take_event(event, True, chunks):
            self._take_odd(data, chunks)

    def _take_odd(self, data: str, chunks: list[Chunk]) -> None:
        """Take an event of which nothing was taken yet, whatever its form."""
        events = odd_events(data)
        if events is None:
            if not self.complete:  # else it is rubbish behind the end
                raise bad_stream(f"data that is not JSON: {short(data, SAMPLE_CHARACTERS)!r}")
            return
        for odd in events:
            if odd.event.choices is None:
                self._said = odd.said or self._said or data
            if odd.whole and not self._blocks.is_empty:  # a summary at the end of what was streamed
                for choice in odd.event.choices or ():
                    choice.delta = None
            self._take_event(odd.event, False, chunks)

    def _take_event(self, event: StreamEvent, clean: bool, chunks: list[Chunk]) -> bool:
        """Take what is in an event, and tell whether anything was."""
        if len(event.usage) > 4:  # neither absent nor null
            self._usage = event.usage
        if event.error:
            raise_error(event.error)
        if event.choices is None:
            return len(event.usage) > 4
        self._seen = True
        taken = False
        for choice in event.choices:
            delta = choice.delta
            if clean and (delta is None or (delta.tool_calls and delta.tool_calls[0].function is None)):
                return False  # what it says stands in other places than usual
            if choice.error:
                raise_error(choice.error)
            if delta is not None and self._take_delta(choice.index, delta, clean, chunks):
                taken = True
                self._resumed = self._reason is not None
            if choice.finish_reason and self._take_reason(choice, choice.finish_reason):
                taken = True
        return taken

    def _take_reason(self, choice: Choice, word: str) -> bool:
        reason = reason_of(word)
        if reason is None:
            return False
        if len(choice.usage) > 4:
            self._usage = choice.usage
        if self._takes == [-1, -1, -1] or choice.index in self._takes:
            self._resumed = False
            if outweighs(reason, self._reason):
                self._reason, self._word = reason, word
        return True

    def _take_delta(self, index: int, delta: Delta, clean: bool, chunks: list[Chunk]) -> bool:
        taken = False
        thinking = delta.reasoning_content or delta.reasoning
        if thinking:
            taken = True
            self._add(index, thinking, True, clean, chunks)
        content = delta.content
        if content:
            taken = True
            if index == self._takes[0] and self._tags is None and type(content) is str:
                self._blocks.add_text(TEXT, content, clean, chunks)
            else:
                self._add(index, content, False, clean, chunks)
        if delta.refusal:
            taken = self._refused = True
            self._add(index, delta.refusal, False, clean, chunks)
        if delta.tool_calls and self._follows(2, index):
            taken = True
            self._end_tags(chunks)
            for entry in delta.tool_calls:
                self._blocks.add_call(entry, chunks)
        return taken

    def _add(self, index: int, value: object, thinking: bool, clean: bool, chunks: list[Chunk]) -> None:
        if type(value) is str:
            if self._follows(thinking, index):
                self._add_part(value, thinking, clean, chunks)
            return
        for is_thinking, text in text_parts(value, thinking=thinking):
            if self._follows(is_thinking, index):
                self._add_part(text, is_thinking, False, chunks)

    def _add_part(self, text: str, thinking: bool, clean: bool, chunks: list[Chunk]) -> None:
        if thinking or self._tags is None:
            self._blocks.add_text(REASONING if thinking else TEXT, text, clean, chunks)
            return
        for is_thinking, part in self._tags.feed(text):
            self._blocks.add_text(REASONING if is_thinking else TEXT, part, clean, chunks)
        if self._tags.done:
            self._tags = None

    def _end_tags(self, chunks: list[Chunk]) -> None:
        """Give what was held back of the text's head: no more of it comes."""
        if self._tags is not None:
            for is_thinking, part in self._tags.close():
                self._blocks.add_text(REASONING if is_thinking else TEXT, part, False, chunks)
            self._tags = None

    def _follows(self, kind: int, index: int) -> bool:
        """Whether text (0), thinking (1) or calls (2) of a choice belong to the reply: those of the first that has some."""
        known = self._takes[kind]
        if known < 0:
            self._takes[kind] = index
            return True
        return known == index

    def _end(self, chunks: list[Chunk], *, marked: bool) -> None:
        """Give the last chunks; `marked` tells that `[DONE]` came. Raises ProviderError when the reply is not whole."""
        self._end_tags(chunks)
        blocks = self._blocks
        has_end = self._reason is not None and not (self._resumed and not marked)
        if not has_end and (not marked or not self._seen or not blocks.calls_are_whole):
            raise ProviderError("provider.badStream", f"{self._where_it_ended()}{self._words()}; try again")
        blocks.close(chunks)
        if self._usage is not None and (usage := parse_usage(self._usage)) is not None:
            chunks.append(UsageChunk(usage))
        finish = self._finish()
        chunks.append(finish)
        self._done = True
        if (error := self._no_answer(finish)) is not None:
            raise error

    def _finish(self) -> FinishChunk:
        reason, word = self._reason, short(self._word, WORD_CHARACTERS)
        if reason is None:  # the marker is the only positive end that some servers send
            return FinishChunk("tool-calls" if self._blocks.has_calls else "stop", DONE)
        if self._refused and reason == "stop":
            return FinishChunk("refusal", word)
        if self._blocks.has_calls and (reason == "stop" or word == "function_call"):
            return FinishChunk("tool-calls", word)
        return FinishChunk(reason, None if word == reason.replace("-", "_") else word)

    def _no_answer(self, finish: FinishChunk) -> ProviderError | None:
        """Give the error of a reply that ended and is none."""
        blocks, words = self._blocks, self._words()
        reason = f"(finish reason {finish.raw or finish.reason})"
        if finish.reason == "aborted":
            message = f"the provider broke its answer off {reason}{words}; try again later"
            return ProviderError(kind_of_abort(self._word), message)
        if finish.reason == "pause":
            message = f"the provider paused its answer for a tool of its own {reason}, which refold does not offer{words}"
            return ProviderError("provider.rejected", message)
        if blocks.has_nameless_call and finish.reason in ("tool-calls", "stop", "other"):
            message = f"the provider asked for a tool without naming it {reason}, so nothing ran{words}; try again"
            return ProviderError("provider.badStream", message)
        if finish.reason == "tool-calls" and not blocks.has_calls:
            message = f"the provider said that it calls a tool {reason}, and sent no call{words}; try again"
            return ProviderError("provider.badStream", message)
        if finish.reason in ("stop", "other") and blocks.is_blank and not blocks.has_calls:
            message = f"the provider ended its answer without any text, thinking or call {reason}{words}; try again"
            return ProviderError("provider.badStream", message)
        return None

    def _where_it_ended(self) -> str:
        if not self._seen:
            words = self._words()
            return (
                "the provider sent no reply"
                if words
                else "the provider's answer was empty: the stream ended before anything came"
            )
        if self._blocks.has_calls:
            return "the provider's answer was cut off in the middle of a tool call, which did not run"
        if self._blocks.is_empty:
            return "the provider's answer was cut off before any text"
        return "the provider's answer was cut off in the middle of the text"

    def _words(self) -> str:
        """Give what the server said beside a reply."""
        said = self._said or self._sse.unread.decode("utf-8", "replace")
        said = short(said, MESSAGE_CHARACTERS)
        return f"; it said: {said}" if said else ""

    def _too_much(self) -> ProviderError:
        return ProviderError(
            "provider.badStream",
            f"the provider's answer does not end: it is larger than {self._most:,} characters, far more than was asked for; "
            "refold takes no more, and keeps what came",
        )

    def _delivered(self, chunks: list[Chunk], error: ProviderError) -> list[Chunk]:
        self._end_tags(chunks)
        self._failure = error
        if not chunks:
            raise error
        return chunks

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure
