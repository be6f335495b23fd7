"""Preset dictionary that records are deflated with: a constant of format version 0.

Every record of every store of this version was written with exactly these bytes, so they never change: another text is
another format version, and a test pins their digest. The lines are typical events, the most frequent kind last, because
deflate spends fewer bits on what is near. Knows nothing of events beyond their looks.

Bytes of a record: a run of consecutive events of one session as one value of the `records` database.

    offset  size  field
         0     1  version, 0
         1     1  flags: 1 = the body is raw deflate with the preset dictionary; 2 and 4 = each line is a chunk of a
                  reply: both or none, so that no single bit that flips makes or unmakes the mark; no other is defined
         2     2  count of events, at least 1
         4     4  length of the body before deflating, in bytes
         8    32  the chain's digest of the run's last event
        40     …  body: the events' exact lines joined by a line break

Integers are big-endian. Where a run begins stands in its key. Nothing here decodes an event: lines go in and the same
lines come out, or SessionCorruptionError says where the log stops being right. Of a run of chunks alone a reader that needs
none of them learns as much from the head.

Borders of records: borders follow from sizes and never mean anything.

A record takes lines until it holds 256 or its value would pass MAX_RUN_BYTES; an event that needs more stands alone. How
well a run deflates is only known after deflating it, so a border is found by a few tries around a guess. Pure.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from struct import Struct as Layout
from typing import Final, TypeAlias

from msgspec import Struct

from refold_protocol.errors import SessionCorruptionError, SessionFormatUnsupportedError
from refold_protocol.session.codec import CHUNK
from refold_protocol.session.events import FORMAT_VERSION

PRESET_DICTIONARY: Final = (
    b'"status":"pending","status":"in_progress","status":"completed","todo/write","data":{"todos":[{"content":"'
    b'{"type":"session/title","seq":0,"time":17,"data":{"title":"","by":{"kind":"loop"}}}\n'
    b'{"type":"context/message","data":{"content":[{"type":"image","mediaType":"image/png","blob":"'
    b'"envelope":"context","envelope":"raw","source":{"kind":"plugin","name":"'
    b'{"type":"compact/summary","data":{"summary":"","shadowed":[[0,1]],"shadowedTokens":1000,"maxTokens":8192,'
    b'{"type":"compact/start","data":{"trigger":"pressure","range":[0,1],"instructions":"","config":{'
    b'{"type":"compact/end","data":{}}\n{"type":"llm/retry","data":{"attempt":1,"code":"provider.overloaded","delayMs":'
    b'{"type":"approval/asked","data":{"id":"","callId":"call_1_1_1","tool":"run_command","subject":{"kind":"command",'
    b'{"type":"approval/decided","data":{"id":"","outcome":"allowed","outcome":"denied","scope":"once","by":{"kind":"cli"}}}\n'
    b'{"type":"steering/message","surfaceOp":{"op":"replace","start":0,"end":'
    b'{"type":"input/settled","data":{"input":"","how":"withdrawn","reason":"'
    b'{"type":"session/settings","data":{"model":"","effort":"high","permissions":{"mode":"ask"},"limits":{"steps":50}}}\n'
    b'{"type":"instance/start","data":{"instance":1,"reason":"new","reason":"resume","client":{"name":"","version":"'
    b'{"type":"request/header-delta","data":{"tools":{"removed":[],"changed":[],"added":['
    b'{"type":"request/header","data":{"header":{"config":{"provider":"","model":"","dialect":"chat-completions",'
    b'"dialectOptions":"{\\"","temperature":0,"topP":1,"maxTokens":4096,"reasoningEffort":"medium"},"system":"You are ",'
    b'"tools":[{"name":"list_files","description":"","parameters":"{\\"type\\":\\"object\\",\\"properties\\":{'
    b'\\"path\\":{\\"type\\":\\"string\\",\\"description\\":\\"\\"},\\"pattern\\":{\\"type\\":\\"string\\"},'
    b'\\"startLine\\":{\\"type\\":\\"integer\\"},\\"required\\":[\\"path\\"],\\"additionalProperties\\":false}"}]},'
    b'"reason":"initial"}}\n'
    b'{"type":"turn/end","data":{"turn":1,"reason":{"kind":"error","error":{"kind":"provider.","message":"'
    b'{"type":"turn/end","data":{"turn":1,"reason":{"kind":"aborted","cause":{"kind":"user"}}}}\n'
    b'{"type":"step/end","data":{"turn":1,"step":1,"outcome":"aborted"}}\n'
    b'{"type":"input/accepted","seq":1,"time":17,"data":{"input":"01","mode":"prompt","content":[{"type":"text","text":"'
    b'"}],"source":{"kind":"client","name":"nvim"}}}\n'
    b'{"type":"turn/start","seq":2,"time":17,"data":{"turn":1,"trigger":{"kind":"message","source":{"kind":"cli"},"input":"01'
    b'{"type":"user/message","seq":3,"time":17,"data":{"content":[{"type":"text","text":"'
    b'"}],"source":{"kind":"client"},"input":"01"},"surfaceOp":"append"}\n'
    b'{"type":"tool/call","seq":7,"time":17,"data":{"turn":1,"step":1,"callId":"call_","name":"search_text","arguments":"{\\"'
    b'{"type":"tool/result","seq":8,"time":17,"data":{"turn":1,"step":1,"callId":"call_","content":[{"type":"text","text":"'
    b'"}],"isError":true,"error":{"name":"ToolError","code":"'
    b'"}],"isError":false},"surfaceOp":"append"}\n'
    b'{"type":"assistant/message","seq":6,"time":17,"data":{"turn":1,"step":1,"content":[{"type":"tool-call","id":"call_",'
    b'"name":"read_file","arguments":"{\\"path\\":\\""}],"provider":"","model":"","finish":"length","interrupted":true,'
    b'"content":[{"type":"reasoning","text":"","content":[{"type":"text","text":"'
    b'"}],"provider":"","model":"","finish":"tool-calls","finish":"stop","usage":{"inputTokens":1000,"outputTokens":100,'
    b'"cacheReadTokens":1000,"cacheWriteTokens":0,"reasoningTokens":10}},"surfaceOp":"append","sources":[[1,9]]}\n'
    b'{"type":"turn/end","seq":9,"time":17,"data":{"turn":1,"reason":{"kind":"completed"}}}\n'
    b'{"type":"step/end","seq":9,"time":17,"data":{"turn":1,"step":1}}\n'
    b'{"type":"step/start","seq":3,"time":17,"data":{"turn":1,"step":1}}\n'
    b'{"type":"request/sent","seq":4,"time":17,"data":{"purpose":"step","attempt":1,"encoder":{"name":"chat-completions",'
    b'"version":1},"bytes":10000,"sha256":"0","requestSha256":"0","turn":1,"step":1},"ignorable":true}\n'
    b'{"type":"assistant/chunk","seq":5,"time":17,"data":{"turn":1,"step":1,"attempt":1,"chunk":{"type":"usage","usage":{'
    b'"inputTokens":1000,"outputTokens":100,"cacheReadTokens":1000}}}}\n'
    b'"chunk":{"type":"finish","reason":"tool-calls"}}}\n"chunk":{"type":"finish","reason":"stop"}}}\n'
    b'"chunk":{"type":"block-start","index":1,"block":"tool-call","id":"call_","name":"list_files"}}}\n'
    b'"chunk":{"type":"block-start","index":0,"block":"reasoning"}}}\n'
    b'"chunk":{"type":"block-start","index":0,"block":"text"}}}\n"chunk":{"type":"block-end","index":0}}}\n'
    b'"chunk":{"type":"tool-call-delta","index":0,"arguments":"\\"}"}}}\n'
    b'"chunk":{"type":"reasoning-delta","index":0,"text":" the"}}}\n'
    b'{"type":"assistant/chunk","seq":10,"time":17,"data":{"turn":1,"step":1,"attempt":1,"chunk":{"type":"text-delta",'
    b'"index":0,"text":" a"}}}\n'
    b'{"type":"assistant/chunk","seq":11,"time":17,"data":{"turn":1,"step":1,"attempt":1,"chunk":{"type":"text-delta",'
    b'"index":0,"text":" the"}}}\n'
)
"""About five kilobytes of JSON, never parsed."""


LinesBatch: TypeAlias = Callable[[int, int, int], list[bytes]]
"""Gives lines from a first to at most a last seq: at least one, then as many as fit a number of bytes."""


BATCH_BYTES: Final = 256 * 1024
"""A batch ends behind the line with which it reaches this size."""


HEAD_BYTES: Final = 40
"""Size of a record's fixed head."""

MAX_EVENTS: Final = 256
"""Most events of one record."""

MAX_LINE_BYTES: Final = 1 << 27
"""Longest line that is written or imported: twice the largest frame. Judging one takes a few times its size in memory."""

MAX_FIRST_LINE_BYTES: Final = 1 << 24
"""Longest first line of an export: it says what the session is."""


class Record(Struct, frozen=True, gc=False):
    """A run of events: seq of the first, their lines in order, the chain's digest of the last, and the lines' bytes."""

    first: int
    lines: tuple[bytes, ...]
    digest: bytes
    size: int

    @property
    def last(self) -> int:
        """Seq of the last event."""
        return self.first + len(self.lines) - 1

    def cut(self, last: int, digest: bytes) -> Record:
        """Give the run up to the event `last`, behind which the chain has `digest`."""
        return run_of(self.first, self.lines[: last + 1 - self.first], digest)


def run_of(first: int, lines: tuple[bytes, ...], digest: bytes) -> Record:
    """Make a run of lines."""
    return Record(first, lines, digest, sum(map(len, lines)))


class Damage(Struct, frozen=True, gc=False):
    """Events that should be stored and cannot be read: the seqs of the first and the last, and why. `digest` is the chain's
    digest of the last where the head of their record still says it."""

    first: int
    last: int
    message: str
    digest: bytes | None = None


class RecordHead(Struct, frozen=True, gc=False):
    """What a record says of itself without its body: `length` is the body's size in bytes before deflating, `chunks`
    whether each line is a chunk."""

    first: int
    deflated: bool
    chunks: bool
    count: int
    length: int
    digest: bytes

    @property
    def last(self) -> int:
        """Seq of the last event."""
        return self.first + self.count - 1


def record_body(lines: Sequence[bytes]) -> tuple[bytes, int, int]:
    """Give the stored body of `lines`, its flags, and its length before deflating; deflated only when that is shorter."""
    body = b"\n".join(lines)
    flags = _CHUNKS if _are_chunks(lines) else 0
    deflater = zlib.compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS, zlib.DEF_MEM_LEVEL, zlib.Z_DEFAULT_STRATEGY, _PRESET)
    deflated = deflater.compress(body) + deflater.flush()
    if len(deflated) < len(body):
        return deflated, flags | _DEFLATED, len(body)
    return body, flags, len(body)


def encode_record(lines: Sequence[bytes], digest: bytes, body: tuple[bytes, int, int] | None = None) -> bytes:
    """Write a run as a value. `body` is what `record_body(lines)` gave, where that is known already."""
    stored, flags, length = record_body(lines) if body is None else body
    return _HEAD.pack(FORMAT_VERSION, flags, len(lines), length, digest) + stored


def record_head(first: int, value: bytes) -> RecordHead:
    """Read the head of the record that begins at seq `first`.

    Raises SessionFormatUnsupportedError for another version or an unknown flag, SessionCorruptionError for a head that
    cannot be.
    """
    if len(value) < HEAD_BYTES:
        raise SessionCorruptionError(f"the record at seq {first} has {len(value)} bytes and no whole head", seq=first)
    version, flags, count, length, digest = _HEAD.unpack_from(value)
    if version != FORMAT_VERSION or flags & ~_DEFLATED not in (0, _CHUNKS):
        raise SessionFormatUnsupportedError(
            f"the record at seq {first} has version {version} and flags {flags}; this release reads version {FORMAT_VERSION}",
            seq=first,
        )
    if count == 0:
        raise SessionCorruptionError(f"the record at seq {first} holds no event", seq=first)
    return RecordHead(first, bool(flags & _DEFLATED), bool(flags & _CHUNKS), count, length, digest)


def decode_record(first: int, value: bytes) -> Record:
    """Read the record that begins at seq `first`. Errors as for `record_head`, with the seq where it is damaged."""
    head = record_head(first, value)
    stored = value[HEAD_BYTES:]
    body = _inflate(head, stored) if head.deflated else stored
    if len(body) != head.length:
        raise SessionCorruptionError(
            f"the record at seq {first} holds {len(body)} bytes where its head says {head.length}", seq=first
        )
    lines = tuple(body.split(b"\n"))
    if len(lines) != head.count:
        raise SessionCorruptionError(
            f"the record at seq {first} holds {len(lines)} events where its head says {head.count}",
            seq=first + min(len(lines), head.count),
        )
    if head.chunks and not _are_chunks(lines):
        raise SessionCorruptionError(f"the record at seq {first} says that it holds chunks alone, and does not", seq=first)
    return Record(first, lines, head.digest, head.length - head.count + 1)


def bare_record(head: RecordHead) -> Record:
    """Give a record of chunks by its head: of each line it is said that it is a chunk (CHUNK), and not which one."""
    return Record(head.first, (CHUNK,) * head.count, head.digest, len(CHUNK) * head.count)


def _are_chunks(lines: Sequence[bytes]) -> bool:
    return all(line.startswith(CHUNK) for line in lines)


def _inflate(head: RecordHead, stored: bytes) -> bytes:
    inflater = zlib.decompressobj(-zlib.MAX_WBITS, _PRESET)
    try:
        # One byte more than announced is asked for, so that a longer body is noticed without being unpacked whole.
        body = inflater.decompress(stored, head.length + 1)
    except zlib.error as error:
        raise SessionCorruptionError(f"the record at seq {head.first} is damaged: {error}", seq=head.first) from None
    if not inflater.eof or inflater.unused_data:
        raise SessionCorruptionError(f"the record at seq {head.first} does not end where it should", seq=head.first)
    return body


_HEAD: Final = Layout(f">BBHI{HEAD_BYTES - 8}s")
_DEFLATED: Final = 1
_CHUNKS: Final = 2 | 4
_PRESET: Final = PRESET_DICTIONARY


MAX_RUN_BYTES: Final = 790
"""Most bytes of a record with more than one event, head included: with its key and LMDB's own 26 bytes, five fill a page
of 4,096 bytes. Where records are put in between others LMDB leaves about one place of each page free, which is why few
large records would cost more than many small ones; beyond 2,014 bytes a value would even take pages of its own."""


class Packed(Struct, frozen=True, gc=False):
    """One record ready to be stored: seq of its first event, number of its events, its value."""

    first: int
    count: int
    value: bytes

    @property
    def may_grow(self) -> bool:
        """Whether a later commit should try to put more events into this record instead of beginning a new one."""
        return may_grow(self.count, len(self.value))


class _Run(Struct, frozen=True, gc=False):
    count: int
    body: tuple[bytes, int, int]

    @property
    def size(self) -> int:
        return HEAD_BYTES + len(self.body[0])


def may_grow(count: int, size: int) -> bool:
    """Whether a record of `count` events and `size` bytes has room enough that trying to extend it pays."""
    return count < MAX_EVENTS and size < _FULL_ENOUGH


def pack(first: int, lines: Sequence[bytes], digests: Sequence[bytes], settled: int = 0) -> list[Packed]:
    """Pack `lines`, which begin at seq `first`, into records, in order.

    The first `settled` lines are those of a stored record that may be extended: where they fit together with at least
    one more, the first record given back holds them too and replaces the stored one; otherwise it begins behind them.
    `digests` are the chain's digests after each of the lines behind the settled ones.
    """
    packed: list[Packed] = []
    ratio = _FIRST_RATIO
    at = 0
    while at < len(lines):
        run = _fit(lines, at, settled + 1 if at < settled else 1, ratio)
        if run is None:
            at = settled
            continue
        end = at + run.count
        ratio = len(run.body[0]) / max(run.body[2], 1)
        value = encode_record(lines[at:end], digests[end - 1 - settled], run.body)
        packed.append(Packed(first + at, run.count, value))
        at = end
    return packed


def _fit(lines: Sequence[bytes], at: int, least: int, ratio: float) -> _Run | None:
    """Give the longest run from position `at` that fits into a record; None when it would have less than `least` lines,
    except that one line always fits."""
    most = _most(lines, at)
    best: _Run | None = None
    low, high = least, most
    count = _guess(lines, at, least, most, ratio)
    for _ in range(_TRIES):
        if low > high or (best is not None and best.size > MAX_RUN_BYTES):
            break
        count = min(max(count, low), high)
        run = _Run(count, record_body(lines[at : at + count]))
        if run.size <= MAX_RUN_BYTES or count == 1:
            best, low = run, count + 1
        else:
            high = count - 1
        count += (MAX_RUN_BYTES - run.size) * count // len(run.body[0])
    return _Run(1, record_body(lines[at : at + 1])) if best is None and least == 1 else best


def _most(lines: Sequence[bytes], at: int) -> int:
    """How many lines a record from position `at` may hold at most: a long line ends it, unless it is the first."""
    most = min(len(lines) - at, MAX_EVENTS)
    for count in range(most):
        if len(lines[at + count]) > _LONG_LINE:
            return max(count, 1)
    return most


def _guess(lines: Sequence[bytes], at: int, least: int, most: int, ratio: float) -> int:
    room = MAX_RUN_BYTES - HEAD_BYTES
    count = 0
    while count < most and room > 0:
        room -= int((len(lines[at + count]) + 1) * ratio)
        count += 1
    return max(count, least)


_LONG_LINE: Final = 16 * 1024
"""A longer line stands alone without being tried beside others: it would have to deflate to less than a twentieth."""

_FULL_ENOUGH: Final = MAX_RUN_BYTES - 20
_TRIES: Final = 8
_FIRST_RATIO: Final = 0.09
