"""Owns the way from a stream's bytes to its server-sent events: incremental, indifferent to where the bytes were cut.

The rules are those of the HTML standard's event stream format, with one addition: an event that still waits for its
blank line when the stream ends is delivered, because some servers leave that line out. Only the data of an event is
given; comments and the fields `id` and `retry` mean nothing to the dialects. Never splits at anything but CR, LF and CRLF:
U+2028, U+2029 and U+0085 are ordinary characters inside JSON.

Errors come in other clothes too. The data of an event of the type `error`, and of a field named `error`, is given as the
`error` member of an object. Lines that are no event stream at all are given as an event where they are JSON, whole, over
one line or many; of others the first bytes are kept in `unread`.

Owns the repair of halves of surrogate pairs before a chunk is yielded: joined with their other half, else U+FFFD.

A half is a character of its own only after the JSON of its event was decoded by a lenient scanner; its other half may
come with the next delta, so a high half at the end is held back. Halves that stand as escapes inside the JSON text of a
call's arguments are another matter: the assembler repairs those, on the whole text. Knows nothing of events or blocks.
"""

from __future__ import annotations

import json
from typing import Final

from refold_protocol.dialects.json_scan import JsonScan
from refold_protocol.errors import ProviderError
from refold_protocol.json_text import repair_surrogates

MAX_EVENT_BYTES: Final = 32 * 1024 * 1024
"""How many bytes of one unfinished event, or of one unfinished line, are kept before the stream is given up."""

MAX_UNREAD_BYTES: Final = 64 * 1024
"""How much is kept of what was no event."""

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_ERROR: Final = b'{"error":'


class SseDecoder:
    """Turns bytes into the data of events, in order. Bytes are gathered to whole lines before they become text, so a
    character may be cut anywhere; a byte that is no UTF-8 becomes U+FFFD."""

    __slots__ = (
        "_bare",
        "_bare_bytes",
        "_data",
        "_data_bytes",
        "_failure",
        "_first",
        "_limit",
        "_line",
        "_scan",
        "_skip_line_feed",
        "unread",
    )

    def __init__(self, limit: int = MAX_EVENT_BYTES) -> None:
        self._limit = limit
        self._line = bytearray()  # a line without its end
        self._data: list[bytes] = []  # data lines of an event without its blank line
        self._data_bytes = 0
        self._skip_line_feed = False  # the last byte was a CR, which ended a line
        self._first = True
        self._failure: ProviderError | None = None
        self._bare: list[bytes] = []  # lines of a JSON value that stands outside of any event
        self._bare_bytes = 0
        self._scan = JsonScan()
        self.unread = b""
        """The first bytes that were no event."""

    @property
    def failure(self) -> ProviderError | None:
        """What `feed` met behind the events that it gave; the next call raises it."""
        return self._failure

    def feed(self, data: bytes) -> list[str]:
        """Give the data of each event that `data` completes, in order; several data lines are joined by `\\n`.

        Raises ProviderError (`provider.badStream`) when an unfinished event is larger than the limit; if events were
        completed before that, it gives those, and `failure` holds the error.
        """
        self._raise_failure()
        data = self._normalised(data)
        if self._line:
            if b"\n" not in data:
                self._line += data
                return self._checked([])
            data = bytes(self._line + data)
            self._line.clear()
        blocks = data.split(b"\n\n")
        rest = blocks.pop()
        events: list[str] = []
        for block in blocks:
            if block.startswith(b"data: ") and b"\n" not in block and not self._data:
                self._first = False
                if len(block) > 6:
                    events.append(block[6:].decode("utf-8", "replace"))
            else:
                self._take_lines(block, events)
                self._dispatch(events)
        if rest:
            self._keep(rest, events)
            return self._checked(events)
        return events

    def close(self) -> list[str]:
        """Give the event that still waited for its end when the stream ended cleanly. Raises what `failure` holds."""
        self._raise_failure()
        events: list[str] = []
        self._take_lines(bytes(self._line), events)
        self._dispatch(events)
        self._line.clear()
        if self._bare:
            self._keep_unread(b"\n".join(self._bare))
            self._bare.clear()
        return events

    def _normalised(self, data: bytes) -> bytes:
        """Turn every line end into LF. A CR ends its line at once; the LF that may follow it is dropped then."""
        if self._skip_line_feed and data:
            self._skip_line_feed = False
            if data[0] == 10:
                data = data[1:]
        if b"\r" in data:
            self._skip_line_feed = data[-1] == 13
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return data

    def _keep(self, rest: bytes, events: list[str]) -> None:
        end = rest.rfind(b"\n")
        if end >= 0:
            self._take_lines(rest[:end], events)
        self._line += rest[end + 1 :]

    def _take_lines(self, block: bytes, events: list[str]) -> None:
        for line in block.split(b"\n"):
            if self._first:
                self._first = False
                line = line.removeprefix(_BYTE_ORDER_MARK)
            if not line:
                self._dispatch(events)
            elif line.startswith(b"data:"):
                self._add(line[6:] if line[5:6] == b" " else line[5:])
            elif line == b"data":
                self._add(b"")
            else:
                self._take_other(line, events)

    def _take_other(self, line: bytes, events: list[str]) -> None:
        name, colon, value = line.partition(b":")
        if name == b"error" and colon:
            self._data.insert(0, _ERROR)
            self._add(value.removeprefix(b" "))
        elif name == b"event" and value.strip() == b"error":
            self._data.insert(0, _ERROR)
        elif name not in _FIELDS and (name or not colon):
            self._take_bare(line, events)

    def _take_bare(self, line: bytes, events: list[str]) -> None:
        if not self._bare and line.lstrip()[:1] not in (b"{", b"["):
            self._keep_unread(line)
            return
        self._bare.append(line)
        self._bare_bytes += len(line) + 1
        self._scan.feed(line.decode("utf-8", "replace"))
        if self._scan.whole:
            events.append(b"\n".join(self._bare).decode("utf-8", "replace"))
            self._bare.clear()
            self._bare_bytes = 0
            self._scan = JsonScan()

    def _keep_unread(self, line: bytes) -> None:
        if len(self.unread) < MAX_UNREAD_BYTES:
            self.unread = (self.unread + line + b"\n")[:MAX_UNREAD_BYTES]

    def _add(self, value: bytes) -> None:
        self._data.append(value)
        self._data_bytes += len(value) + 1

    def _dispatch(self, events: list[str]) -> None:
        if not self._data:
            return
        is_error = self._data[0] is _ERROR
        data = b"\n".join(self._data[1:] if is_error else self._data)
        if data:
            text = data.decode("utf-8", "replace")
            events.append(_as_error(text) if is_error else text)
        self._data.clear()
        self._data_bytes = 0

    def _checked(self, events: list[str]) -> list[str]:
        if len(self._line) + self._data_bytes + self._bare_bytes > self._limit:
            self._failure = ProviderError(
                "provider.badStream",
                f"the provider sent one event of more than {self._limit:,} bytes without an end; "
                "refold keeps no more than that",
            )
            self._line.clear()
            self._data.clear()
            self._bare.clear()
            if not events:
                raise self._failure
        return events

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure


def _as_error(text: str) -> str:
    """Give an object whose `error` is `text`: as JSON where it is some, else as a string."""
    text = text.strip()
    return f'{{"error":{text}}}' if text.startswith(("{", "[", '"')) else json.dumps({"error": text})


_FIELDS: Final = (b"event", b"id", b"retry", b"data")
"""Fields of an event stream; a line that begins with another name is none of it, one without a name is a comment."""


REPLACEMENT: Final = "\ufffd"
"""What stands for a half whose other half never came."""


class TextRepair:
    """Repairs one text that comes in pieces. `pending` is a high half that waits for its low half, else empty."""

    __slots__ = ("pending",)

    def __init__(self) -> None:
        self.pending = ""

    def feed(self, text: str) -> str:
        """Give as much valid text as is known by now; an empty string where nothing is."""
        text = self.pending + text
        self.pending = text[-1] if text and "\ud800" <= text[-1] <= "\udbff" else ""
        return repair_surrogates(text[:-1] if self.pending else text)

    def close(self) -> str:
        """Give what stands for a half that is still pending; an empty string where none is."""
        left, self.pending = self.pending, ""
        return REPLACEMENT if left else ""
