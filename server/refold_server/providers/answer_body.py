"""The body of an answer as it arrives: decompressed in bounded steps, however much it expands.

Compression is not asked for, and some servers compress all the same. One gzip or deflate is undone; a chain of them is not.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Final, Protocol, cast

from refold_protocol.errors import ProviderError

if TYPE_CHECKING:
    import httpx

STEP_BYTES: Final = 64 * 1024
"""How much is expanded at once."""

_PLAIN: Final = ("", "identity")
_COMPRESSED: Final = ("gzip", "x-gzip", "deflate")


def content_encoding(response: httpx.Response) -> str:
    """Give the encoding of an answer's body in lower case; empty for none."""
    return response.headers.get("content-encoding", "").strip().lower()


def can_decode(encoding: str) -> bool:
    """Tell whether a body of that encoding can be read."""
    return encoding in _PLAIN or encoding in _COMPRESSED


def body_pieces(response: httpx.Response) -> aclosing[AsyncGenerator[bytes, None]]:
    """Give the body's pieces, decompressed, as they arrive. Raises ProviderError `provider.badStream` for bytes that are not
    what the header says. Of a body that `can_decode` refuses nothing is given."""
    return aclosing(_pieces(response))


async def _pieces(response: httpx.Response) -> AsyncGenerator[bytes, None]:
    encoding = content_encoding(response)
    if not can_decode(encoding):
        return
    inflater = None if encoding in _PLAIN else Inflater(encoding)
    async with aclosing(cast("AsyncGenerator[bytes, None]", response.aiter_raw())) as raw:
        async for data in raw:
            if inflater is None:
                yield data
            else:
                for piece in inflater.feed(data):
                    yield piece


class Decompressor(Protocol):
    """What `zlib.decompressobj` gives."""

    @property
    def eof(self) -> bool:
        """Whether the end of the compressed data was read."""
        ...

    @property
    def unconsumed_tail(self) -> bytes:
        """What was not looked at because the limit was reached."""
        ...

    @property
    def unused_data(self) -> bytes:
        """What came after the end."""
        ...

    def decompress(self, data: bytes, max_length: int = 0, /) -> bytes:
        """Expand, up to a length."""
        ...


class Inflater:
    """Expands a body that comes in pieces, at most STEP_BYTES at once."""

    def __init__(self, encoding: str) -> None:
        self._gzip = encoding != "deflate"
        self._member: Decompressor | None = None
        self._ended = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Give what `data` expands to, piece by piece. Raises ProviderError `provider.badStream`."""
        piece = b""
        while (data or len(piece) == STEP_BYTES) and not (self._ended and not self._begins_member(data)):
            if self._member is None:
                self._member, self._ended = self._new_member(data), False
            try:
                piece = self._member.decompress(data, STEP_BYTES)
            except zlib.error:
                raise ProviderError(
                    "provider.badStream", "the provider's compressed answer could not be read; try again"
                ) from None
            data = self._member.unconsumed_tail
            if self._member.eof:
                data, piece_after = self._member.unused_data, piece
                self._member, self._ended, piece = None, True, b""
                if piece_after:
                    yield piece_after
            elif piece:
                yield piece

    def _begins_member(self, data: bytes) -> bool:
        """Whether another gzip member follows the one that ended; other bytes after the end are padding."""
        return self._gzip and data.startswith(b"\x1f")

    def _new_member(self, data: bytes) -> Decompressor:
        if self._gzip:
            return zlib.decompressobj(31)
        return zlib.decompressobj(15 if data[0] & 0x0F == 8 and data[0] >> 4 <= 7 else -15)  # servers mean both by deflate
