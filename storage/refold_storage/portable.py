"""Owns the first line of an export: the session's record as a line of JSON, written and read.

    {"type":"refold/session","format":0,"id":…,"cwd":…,"createdAt":…,"tail":…,"headDigest":…,"writers":[[…,0]]}

with `parent` where the session is a fork and `archived` where it is. Behind it stands each event's exact line. Whatever is
a cache, as the title, is left out. A reader takes what one writer writes and nothing else: what it does not know, it refuses.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated, Any, Final, NoReturn, cast

import msgspec
from msgspec import Meta, Struct

from refold_protocol.errors import InvalidJsonError, SessionCorruptionError, SessionFormatUnsupportedError
from refold_protocol.ids import SessionId, WriterId
from refold_protocol.json_text import parse_strict
from refold_protocol.session.events import FORMAT_VERSION
from refold_protocol.session.summary import EMPTY_SUMMARY
from refold_storage.intake import MAX_TIME
from refold_storage.session_record import Parent, SessionRecord

TYPE: Final = "refold/session"
"""What the first line calls itself, so that it is told from an event's."""


def write_record(record: SessionRecord) -> bytes:
    """Give the first line, without a line break."""
    parent = None if record.parent is None else _Parent(*msgspec.structs.astuple(record.parent))
    line = _Line(
        TYPE,
        FORMAT_VERSION,
        record.id,
        record.cwd,
        record.created_at,
        record.tail,
        record.head_digest,
        record.writers,
        parent,
        record.archived,
    )
    return msgspec.json.encode(line)


def read_record(line: bytes) -> SessionRecord:
    """Read the first line; the record's summary is empty. Raises SessionCorruptionError for one that cannot be,
    SessionFormatUnsupportedError for one of another release, which says who is older."""
    members = _members(line)
    if members.get("type") != TYPE:
        _refuse(f"this is no export of a session: it begins with no line of the type {TYPE}")
    _check_format(members)
    try:
        found = _DECODER.decode(line)
    except msgspec.ValidationError as error:
        _refuse(str(error))
    parent = None if found.parent is None else Parent(*msgspec.structs.astuple(found.parent))
    if parent is not None and parent.at > found.tail:
        _refuse(f"it was forked at {parent.at} and ends at {found.tail}")
    if not found.id.isprintable():
        _refuse(f"the id {found.id!r} holds what cannot be shown")
    if not PurePosixPath(found.cwd).is_absolute() or "\0" in found.cwd:
        _refuse(f"cwd {found.cwd!r} is no absolute path")
    return SessionRecord(
        found.id,
        found.cwd,
        found.created_at,
        found.tail,
        found.head_digest,
        found.writers,
        EMPTY_SUMMARY,
        parent,
        found.archived,
    )


_Seq = Annotated[int, Meta(ge=0, lt=1 << 62)]
_Time = Annotated[int, Meta(ge=0, le=MAX_TIME)]
_Digest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
_Id = Annotated[SessionId, Meta(min_length=1, max_length=200)]


class _Parent(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    session: _Id
    at: _Seq
    digest: _Digest


class _Line(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel", forbid_unknown_fields=True):
    type: str
    format: int
    id: _Id
    cwd: str
    created_at: _Time
    tail: _Seq
    head_digest: _Digest
    writers: tuple[tuple[WriterId, _Seq], ...]
    parent: _Parent | None = None
    archived: bool = False


def _members(line: bytes) -> dict[str, Any]:
    try:
        value = parse_strict(line.decode())
    except UnicodeDecodeError as error:
        _refuse(f"not UTF-8 at byte {error.start}")
    except InvalidJsonError as error:
        _refuse(f"not JSON: {error.message}")
    if not isinstance(value, dict):
        _refuse("not a JSON object")
    return cast("dict[str, Any]", value)


def _check_format(members: dict[str, Any]) -> None:
    version = members.get("format")
    if not isinstance(version, int) or isinstance(version, bool):
        _refuse("it names no format version")
    if version != FORMAT_VERSION:
        age = "a later" if version > FORMAT_VERSION else "an earlier"
        raise SessionFormatUnsupportedError(
            f"line 1: format version {version}, where this release of refold reads {FORMAT_VERSION}: the file comes from "
            f"{age} release",
            line=1,
        )
    if unknown := members.keys() - _MEMBERS:
        raise SessionFormatUnsupportedError(
            f"line 1: this release of refold does not know {', '.join(sorted(unknown))}: the file comes from a later release",
            line=1,
        )


def _refuse(reason: str) -> NoReturn:
    raise SessionCorruptionError(f"line 1: {reason}", line=1)


_DECODER: Final = msgspec.json.Decoder(_Line)
_MEMBERS: Final = frozenset(_Line.__struct_encode_fields__)
