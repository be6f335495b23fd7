"""A session's requests, answered again from recorded replies: is what the log holds what these bytes say?

Reads only: the log and the files. Each attempt of a step's request is matched by `requestSha256` and its number; summaries are
left out, because their chunks are not in the log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct

from refold_protocol.dialects.dialect_table import dialect_named
from refold_protocol.errors import ProviderError
from refold_protocol.session.append_only_list import AppendOnlyList
from refold_protocol.session.events import (
    AssistantChunk,
    AssistantMessage,
    Event,
    LlmRetry,
    RequestSent,
    TurnEnd,
)
from refold_protocol.session.header import header_step
from refold_protocol.session.messages import Chunk, EpochHeader
from refold_protocol.session.request import Request
from refold_server.config import ProviderConfig, TimeoutsConfig
from refold_server.providers.credentials import Credentials
from refold_server.providers.http_provider import HttpProvider
from refold_server.providers.http_transport import HttpClients
from refold_server.providers.login_store import LoginStore

ReplayVerdict: TypeAlias = Literal["equal", "different", "missing"]


class LoggedAttempt:
    """An attempt as the log has it: its chunks, the kind of its failure where it is known, whether its reply is whole."""

    def __init__(self, sent: RequestSent, header: EpochHeader) -> None:
        self.sent = sent
        self.header = header
        self.chunks: list[Chunk] = []
        self.error: str | None = None
        self.whole = False


class ReplayedAttempt(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """What came of one attempt; `difference` is a sentence."""

    turn: int
    step: int
    attempt: int
    request_sha256: str
    verdict: ReplayVerdict
    difference: str | None = None


def logged_attempts(events: Iterable[Event]) -> Iterator[LoggedAttempt]:
    """Give the attempts of all steps, in order."""
    header: EpochHeader | None = None
    open_: LoggedAttempt | None = None
    for event in events:
        header = header_step(header, event)
        match event.data:
            case RequestSent(purpose="step") as sent if header is not None:
                if open_ is not None:
                    yield open_
                open_ = LoggedAttempt(sent, header)
            case AssistantChunk(chunk=chunk) if open_ is not None:
                open_.chunks.append(chunk)
            case LlmRetry(code=code) if open_ is not None:
                open_.error = code
            case AssistantMessage(interrupted=cut) if open_ is not None:
                open_.whole = not cut
            case TurnEnd(reason=reason) if open_ is not None:
                if reason.error is not None and not open_.whole and reason.error.step == open_.sent.step:
                    open_.error = reason.error.kind
                yield open_
                open_ = None
            case _:
                pass
    if open_ is not None:
        yield open_


async def replay(events: Iterable[Event], folder: Path) -> list[ReplayedAttempt]:
    """Answer each attempt from `folder`, in order. Raises ConfigError for a file that is no recorded reply."""
    from refold_server.providers.reply_recording import playing, read_reply  # on use: it imports httpx

    counts = Counter[str]()
    rows: list[ReplayedAttempt] = []
    for logged in logged_attempts(events):
        sent = logged.sent
        counts[sent.request_sha256] += 1
        reply = read_reply(folder, sent.request_sha256, counts[sent.request_sha256])
        verdict: ReplayVerdict = "missing"
        difference = None
        if reply is not None:
            clients = HttpClients(lambda _, reply=reply: playing(reply))
            difference = _difference(logged, *await _answered(logged.header, clients))
            verdict = "equal" if difference is None else "different"
        names = (sent.turn or 0, sent.step or 0, sent.attempt, sent.request_sha256)
        rows.append(ReplayedAttempt(*names, verdict, difference))
    return rows


async def _answered(header: EpochHeader, clients: HttpClients) -> tuple[list[Chunk], str | None]:
    config = header.config
    dialect = dialect_named(config.dialect)
    options = config.dialect_options or dialect.resolve_options({})
    row = ProviderConfig(config.provider, config.dialect, options, "http://replay.invalid", proxy="none")
    nobody = Credentials(row, {}, LoginStore(Path("/nonexistent")))
    provider = HttpProvider(row, dialect, TimeoutsConfig(), clients, credentials=nobody)
    chunks: list[Chunk] = []
    try:
        async with aclosing(provider.stream(Request(header, AppendOnlyList()), b"")) as stream:
            async for chunk in stream:
                chunks.append(chunk)
    except ProviderError as error:
        return chunks, error.error_kind
    finally:
        await clients.close()
    return chunks, None


def _difference(logged: LoggedAttempt, chunks: list[Chunk], error: str | None) -> str | None:
    """Say what differs first, None for nothing. Of an attempt that was stopped from here only the beginning is there."""
    stopped = not logged.whole and logged.error in (None, "provider.timeout")
    for number, (was, now) in enumerate(zip(logged.chunks, chunks, strict=False), 1):
        if was != now:
            return f"chunk {number} was {was!r}, and is now {now!r}"
    if len(chunks) < len(logged.chunks) or (len(chunks) > len(logged.chunks) and not stopped):
        return f"there were {len(logged.chunks)} chunks, and there are now {len(chunks)}"
    if not stopped and logged.error != error:
        return f"it ended with {logged.error or 'a whole reply'}, and ends now with {error or 'a whole reply'}"
    return None
