"""Raw replies of providers in files, kept without secrets, and played again through httpx's own way in.

A file is named after the digest of its request and the number of the attempt, and reads like HTTP: a status line whose last
word says how the reply ended, headers, an empty line, the bytes as they came. An attempt that got no answer has the kind of its
error in place of a status. Imports httpx: import this on use.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

import httpx
from msgspec import Struct

from refold_protocol.errors import ConfigError, ProviderError
from refold_server.secret_text import SECRETS

_KEPT_HEADERS: Final = ("content-type", "retry-after", "retry-after-ms", "date", "location", "x-request-id", "request-id")
_PLAIN: Final = ("", "identity")


class RecordedReply(Struct, frozen=True):
    """One answer. `status` is 0 where none came: then `error` is the kind and the sentence. `cut` tells that it broke."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    cut: bool = False
    error: tuple[str, str] = ("", "")


class ReplyRecorder:
    """Writes replies to a folder, which it makes. Never writes over a file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError("--record", f"the folder cannot be made: {error.strerror}", file=str(folder)) from None

    def unanswered(self, digest: str, error: ProviderError) -> None:
        """Keep that a request got no answer."""
        self._write(digest, RecordedReply(0, error=(error.error_kind, SECRETS.scrub(error.message))))

    def taped(self, digest: str, response: httpx.Response) -> httpx.Response:
        """Give an answer that is kept when it is closed. A compressed one is not: secrets could not be taken out of it."""
        if response.headers.get("content-encoding", "").strip().lower() in _PLAIN:
            assert isinstance(response.stream, httpx.AsyncByteStream)
            headers = tuple((name, value) for name in _KEPT_HEADERS if (value := response.headers.get(name)) is not None)

            def finish(body: bytes, cut: bool) -> None:
                self._write(digest, RecordedReply(response.status_code, headers, body, cut))

            response.stream = _Tape(response.stream, finish)
        return response

    def _write(self, digest: str, reply: RecordedReply) -> None:
        if reply.status:
            end = "cut" if reply.cut else "complete"
            lines = [f"HTTP/1.1 {reply.status} {end}", *(f"{name}: {value}" for name, value in reply.headers)]
        else:
            lines = [f"{reply.error[0]} {' '.join(reply.error[1].split())}"]
        head = "\r\n".join([*lines, "", ""]).encode("utf-8", "replace")
        data = SECRETS.scrub((head + reply.body).decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
        number = 1
        while True:
            try:
                with open(self._folder / f"{digest}.{number}.http", "xb") as file:  # noqa: PTH123 - never over another
                    file.write(data)
                return
            except FileExistsError:
                number += 1
            except OSError as error:
                raise ConfigError("--record", f"a reply cannot be kept: {error.strerror}", file=str(self._folder)) from None


def read_reply(folder: Path, digest: str, number: int) -> RecordedReply | None:
    """Read the reply to attempt `number`, from 1, of a request; None where there is no file. Raises ConfigError for one that
    is broken."""
    path = folder / f"{digest}.{number}.http"
    try:
        head, found, body = path.read_bytes().partition(b"\r\n\r\n")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError("--from", f"cannot be read: {error.strerror}", file=str(path)) from None
    first, *rows = head.decode("utf-8", "replace").split("\r\n")
    words = first.split(" ", 2)
    if not found or len(words) < 2:
        raise ConfigError("--from", "is no recorded reply", file=str(path))
    if words[0] != "HTTP/1.1" or not words[1].isdigit():
        return RecordedReply(0, error=(words[0], first.partition(" ")[2]))
    headers = tuple((name, value.strip()) for name, _, value in (row.partition(":") for row in rows))
    return RecordedReply(int(words[1]), headers, body, words[-1] == "cut")


def playing(reply: RecordedReply) -> httpx.AsyncClient:
    """Give a client to which every request is answered with `reply`."""
    return httpx.AsyncClient(transport=_Player(reply), trust_env=False)


class _Tape(httpx.AsyncByteStream):
    def __init__(self, stream: httpx.AsyncByteStream, finish: Callable[[bytes, bool], None]) -> None:
        self._stream = stream
        self._finish = finish
        self._pieces: list[bytes] = []
        self._cut = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._stream:
                self._pieces.append(piece)
                yield piece
        except Exception:
            self._cut = True
            raise

    async def aclose(self) -> None:
        await self._stream.aclose()
        self._finish(b"".join(self._pieces), self._cut)


class _Played(httpx.AsyncByteStream):
    def __init__(self, reply: RecordedReply) -> None:
        self._reply = reply

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._reply.body
        if self._reply.cut:
            raise httpx.ReadError("the recorded reply was cut here")


class _Player(httpx.AsyncBaseTransport):
    def __init__(self, reply: RecordedReply) -> None:
        self._reply = reply

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if not self._reply.status:
            raise ProviderError(*self._reply.error)
        headers = [(name.encode(), value.encode()) for name, value in self._reply.headers]
        return httpx.Response(self._reply.status, headers=headers, stream=_Played(self._reply), request=request)
