"""Owns the shape of a dialect: the few things that a wire form of model providers consists of.

Everything here is pure: a dialect makes bodies and reads streams, it never sends or receives. Rows of the one table
(`registry.py`) are of this type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from msgspec import Struct

from refold_protocol.dialects.growing_body import Body, Segment
from refold_protocol.errors import ProviderError
from refold_protocol.json_text import JsonText
from refold_protocol.session.events import EncoderId
from refold_protocol.session.messages import Chunk
from refold_protocol.session.request import Request


class BodyEncoder(Protocol):
    """Encodes the requests of one session one after the other; what did not change is not encoded again."""

    def encode(self, request: Request, blobs: Mapping[str, bytes]) -> Body:
        """Give the body of `request`: the same bytes as the dialect's `encode` gives. `blobs` holds the bytes of images
        by the digests that the request names. Raises BlobUnknownError for one that is not there."""
        ...


class StreamDecoder(Protocol):
    """Decodes the stream of one reply."""

    @property
    def failure(self) -> ProviderError | None:
        """What was met behind the chunks that the last call gave; every later call raises it."""
        ...

    @property
    def complete(self) -> bool:
        """Whether the reply has its positive end already."""
        ...

    @property
    def done(self) -> bool:
        """Whether the last chunk was given."""
        ...

    @property
    def unread(self) -> bytes:
        """The first bytes of an answer in which nothing was of the dialect; else empty."""
        ...

    def feed(self, data: bytes) -> list[Chunk]:
        """Give the chunks that `data` completes, in order. Raises ProviderError, unless there are chunks to give first."""
        ...

    def close(self, *, cut: bool = False) -> list[Chunk]:
        """Give the last chunks of a stream that ended (`cut`: broke). Raises as `feed` does when it is not whole."""
        ...


class MakeDecoder(Protocol):
    """Makes the decoder of one reply."""

    def __call__(self, max_tokens: int | None = None, options: JsonText | None = None) -> StreamDecoder:
        """Give a decoder for a request with these recorded options. A reply that is far larger than the asked output limit is
        given up."""
        ...


class Dialect(Struct, frozen=True):
    """One wire form.

    `path` is what follows a base address. `key_header` and `key_prefix` say where a key goes; `headers` are those that
    every call carries.
    """

    encoder: EncoderId
    encode: Callable[[Request, Mapping[str, bytes]], bytes]
    segments: Callable[[Request, Mapping[str, bytes]], tuple[Segment, ...]]
    """Cuts the body of a request into named segments, which tile it: the first begins at 0, each at the end of the one
    before, the last ends with the body. Raises what `encode` raises."""
    moved_end: Callable[[Request, Request], int]
    """Counts the bytes at the end of the first one's body that the body of the second, of a longer history, has further
    back: what closes a body, and its last message where the next one continues it."""
    make_encoder: Callable[[], BodyEncoder]
    make_decoder: MakeDecoder
    resolve_options: Callable[[Mapping[str, object]], JsonText]
    """Fills in the defaults of a dialect's settings; raises ConfigError for unknown keys and wrong values."""
    check_extra: Callable[[str], JsonText]
    """Accepts the text of an object whose members are merged into bodies; raises ConfigError."""
    text_calls: Callable[[JsonText | None], bool]
    """Tells from recorded options whether calls that a model writes as text are taken for calls."""
    path: str
    key_header: str
    key_prefix: str
    headers: tuple[tuple[str, str], ...]
