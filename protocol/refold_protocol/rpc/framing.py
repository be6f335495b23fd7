"""Owns LSP framing: bytes to message bodies and back.

Follows the base protocol of LSP 3.17, read generously: header names in any case and order, unknown headers, `\\n` for
`\\r\\n`, empty lines before a header block. `Content-Length` counts bytes. Must not know what a body says. Never raises for
input, never holds more than one body, and never looks at a body byte twice.
"""

from __future__ import annotations

import re
from typing import Final, TypeAlias

from msgspec import Struct

DEFAULT_FRAME_LIMIT: Final = 64 * 1024 * 1024
"""Largest body that is taken, in bytes."""

HEAD_BYTES: Final = 4096
"""How much of a body that is too large is kept, so that its id can be read."""

MAX_HEADER_BYTES: Final = 8192
"""Largest header block. A stream that exceeds it does not speak this framing."""

MAX_LENGTH: Final = 2**53
"""Largest announced length that is believed, in bytes; above it the header is taken for broken."""


class Frame(Struct, frozen=True, gc=False):
    """One whole body."""

    body: bytes


class TooLarge(Struct, frozen=True, gc=False):
    """A body of `length` bytes, above the limit: it is skipped. `head` is its beginning, at most HEAD_BYTES."""

    length: int
    head: bytes


class Broken(Struct, frozen=True, gc=False):
    """The stream cannot be followed any further. The last event of a reader."""

    reason: str


FrameEvent: TypeAlias = Frame | TooLarge | Broken


class FrameReader:
    """Takes bytes as they come and gives frames as they become whole."""

    def __init__(self, limit: int = DEFAULT_FRAME_LIMIT) -> None:
        self.limit = limit
        self._rest = b""  # an incomplete header line, or the beginning of a header block in its usual form
        self._length: int | None = None  # from the header block that is being read
        self._block = 0  # bytes of header lines read so far
        self._missing = 0  # bytes of the present body still to come
        self._body: bytearray | None = None
        self._skipped: TooLarge | None = None
        self._broken = False

    @property
    def mid_frame(self) -> bool:
        """Whether the stream would be cut inside a frame if it ended now."""
        return bool(self._rest.strip() or self._block or self._missing)

    def feed(self, data: bytes) -> list[FrameEvent]:
        """Take the next bytes of the stream; give what they complete, in order. Nothing more comes after a Broken."""
        events: list[FrameEvent] = []
        if self._rest:
            data, self._rest = self._rest + data, b""
        position = 0
        while position < len(data) and not self._broken:
            take = self._take_body if self._missing else self._take_header
            position = take(data, position, events)
        return events

    def _take_body(self, data: bytes, position: int, events: list[FrameEvent]) -> int:
        end = min(position + self._missing, len(data))
        self._missing -= end - position
        if self._skipped is not None:
            self._skip(data[position:end], events)
        elif self._body is None and not self._missing:
            events.append(Frame(data[position:end]))
        else:
            if self._body is None:
                self._body = bytearray()
            self._body += data[position:end]
            if not self._missing:
                events.append(Frame(bytes(self._body)))
                self._body = None
        return end

    def _skip(self, piece: bytes, events: list[FrameEvent]) -> None:
        assert self._skipped is not None
        length, head = self._skipped.length, self._skipped.head
        if len(head) < min(HEAD_BYTES, length):
            head += piece[: HEAD_BYTES - len(head)]
            self._skipped = TooLarge(length, head)
            if len(head) == min(HEAD_BYTES, length):
                events.append(self._skipped)
        if not self._missing:
            self._skipped = None

    def _take_header(self, data: bytes, position: int, events: list[FrameEvent]) -> int:
        if not self._block and (usual := _USUAL.match(data, position)):
            self._begin_body(int(usual[1]), events)
            return usual.end()
        end = data.find(b"\n", position)
        if end < 0:
            self._rest = data[position:]
            if self._block + len(self._rest) > MAX_HEADER_BYTES:
                self._break(events, f"a header block of more than {MAX_HEADER_BYTES} bytes")
            return len(data)
        line = data[position:end].rstrip(b"\r")
        if line:
            self._block += end + 1 - position
            self._take_line(line, events)
        elif self._block:
            length, self._length, self._block = self._length, None, 0
            if length is None:
                self._break(events, "a header block without Content-Length")
            else:
                self._begin_body(length, events)
        return end + 1

    def _take_line(self, line: bytes, events: list[FrameEvent]) -> None:
        name, colon, value = line.partition(b":")
        name, value = name.strip(b" \t").lower(), value.strip(b" \t")
        if not colon or not _NAME.fullmatch(name):
            hint = "; one JSON text a line is not this framing" if line.startswith(b"{") else ""
            self._break(events, f"not a header line: {line[:60]!r}{hint}")
        elif self._block > MAX_HEADER_BYTES:
            self._break(events, f"a header block of more than {MAX_HEADER_BYTES} bytes")
        elif name == b"content-length":
            length = int(value) if _DIGITS.fullmatch(value) else None
            if length is None or length > MAX_LENGTH or self._length not in (None, length):
                self._break(events, f"Content-Length: {value[:60].decode('ascii', 'replace')} is not a length")
            self._length = length

    def _begin_body(self, length: int, events: list[FrameEvent]) -> None:
        self._missing = length
        if length > self.limit:
            self._skipped = TooLarge(length, b"")
        elif not length:
            events.append(Frame(b""))

    def _break(self, events: list[FrameEvent], reason: str) -> None:
        self._broken = True
        events.append(Broken(reason))


def encode_frame(body: bytes) -> bytes:
    """Give `body` with its header."""
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


_USUAL: Final = re.compile(rb"Content-Length: ([0-9]{1,15})\r\n\r\n")
_NAME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9a-z-]+")
_DIGITS: Final = re.compile(rb"[0-9]{1,19}")
