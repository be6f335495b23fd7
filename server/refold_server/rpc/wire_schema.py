"""Method table written out as JSON Schema, and its digest, by which two releases can be told apart.

Used by tests and generators only: the daemon announces the digest as a constant, because computing it costs milliseconds.

What msgspec's structs do not say about their own JSON: what stands in places that hold text of JSON, and which words
a member takes whose set is a table of its own. Generated artefacts read it; a test holds that no place is missing.

TypeScript declarations of the native protocol: the method table, the types behind it, the types of events.

Pure: the tables in, text out. Nothing is declared here that is not declared in a table: `methods.py`, `EVENT_TYPES`,
`TURN_ENDS`, `KINDS`, and `shapes.py` for what structs do not say about their own JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from hashlib import sha256
from inspect import getdoc
from typing import Any, Final, cast

import msgspec
from msgspec import NODEFAULT, Raw
from msgspec import inspect as shape
from msgspec.inspect import StructType

from refold_protocol.errors import KINDS
from refold_protocol.rpc.initialize import PROTOCOL_VERSION, VERSION
from refold_protocol.session.event_data import TURN_ENDS
from refold_protocol.session.events import EVENT_TYPES, EventType, SurfaceOp
from refold_server.rpc.method import Method


def schema_of(methods: Mapping[str, Method]) -> dict[str, Any]:
    """Give the table as JSON: `methods` with `params` and `result` as JSON Schema, and the `types` that those name."""
    shapes = [shape for row in methods.values() for shape in (row.params, row.result) if _is_struct(shape)]
    schemas, components = msgspec.json.schema_components(shapes, ref_template="#/types/{name}")
    by_shape = dict(zip(shapes, schemas, strict=True))
    rows: dict[str, Any] = {}
    for name, row in methods.items():
        params = by_shape[row.params] if _is_struct(row.params) else {}
        result = by_shape[row.result] if _is_struct(row.result) else ({} if row.result is Raw else {"type": "null"})
        rows[name] = {"direction": row.direction, "kind": row.kind, "doc": row.doc, "params": params}
        if row.kind == "request":
            rows[name]["result"] = result
    return {"methods": rows, "types": components}


def schema_digest(methods: Mapping[str, Method]) -> str:
    """Give the digest of `schema_of`: `sha256:` and hex over its compact JSON with sorted keys, descriptions left out."""
    text = msgspec.json.encode(_wordless(schema_of(methods)), order="sorted")
    return f"sha256:{sha256(text).hexdigest()}"


def _wordless(schema: Any) -> Any:
    if isinstance(schema, dict):
        members = cast("dict[str, Any]", schema).items()
        return {key: _wordless(value) for key, value in members if not (key in _WORDS and isinstance(value, str))}
    return [_wordless(item) for item in cast("list[Any]", schema)] if isinstance(schema, list) else schema


def _is_struct(shape: Any) -> bool:
    return shape is not None and shape is not Raw


_WORDS: Final = ("doc", "description")


SPLICED: Final[dict[tuple[str, str], str]] = {
    ("SessionEventsNotice", "events"): "Event[]",
    ("SessionReadResult", "events"): "Event[]",
    ("TurnInterruptResult", "reason"): "TurnEndReason | null",
    ("ToolRow", "parameters"): "object",
    ("DaemonSchemaResult", "schema"): "{ methods: object; types: object }",
    ("ClientCapabilities", "text_document"): "object",
    ("ClientCapabilities", "window"): "object",
    ("ClientCapabilities", "workspace"): "object",
    ("ServerCapabilities", "text_document_sync"): "object",
    ("ServerCapabilities", "code_action_provider"): "object",
    ("ServerCapabilities", "execute_command_provider"): "object",
    ("ServerCapabilities", "workspace"): "object",
}
"""Members that hold text of JSON (`msgspec.Raw`), by struct and field, with their type on the wire."""

SPLICED_RESULTS: Final[dict[str, str]] = {"turn/wait": 'EventOf<"turn/end">'}
"""Methods whose whole result is text of JSON, with its type on the wire."""

WORDS: Final[dict[tuple[str, str], str]] = {
    ("TurnEndReason", "kind"): "TurnEndKind | Foreign",
    ("TurnError", "kind"): "ErrorKind | Foreign",
    ("WorkDone", "kind"): '"begin" | "report" | "end"',
    ("Message", "role"): '"system" | "user" | "assistant"',
    ("ProviderRow", "credentials"): '"none" | "present" | "missing" | "command"',
    ("Status", "status"): "StatusWord",
    ("SessionRow", "status"): "StatusWord",
    ("LiveHealth", "status"): "StatusWord",
    ("SessionsChangedNotice", "status"): "StatusWord",
    ("InputAccepted", "mode"): '"prompt" | "steer" | "inject"',
    ("PendingInput", "mode"): '"prompt" | "steer" | "inject"',
    ("ApprovalSubject", "kind"): '"command" | "diff" | "path" | "text"',
    ("ApprovalDecided", "outcome"): '"allowed" | "denied" | "cancelled"',
    ("ApprovalDecided", "scope"): '"once" | "session"',
}
"""Members of text that hold one of some words, with those words. What is open has `Foreign` beside them."""


def wire_doc(kind: StructType) -> str:
    """Give the docstring of a struct, with its members named as on the wire."""
    text = getdoc(kind.cls) or ""
    for field in kind.fields:
        text = text.replace(f"`{field.name}`", f"`{field.encode_name}`")
    return text


EMPTY: Final = "Record<string, never>"
"""The type of params that have no members."""


def declarations(methods: Mapping[str, Method], events: Mapping[str, EventType] = EVENT_TYPES) -> str:
    """Give the whole file: a module of types without any code."""
    types = Types()
    requests = "".join(_request(row, types) for row in methods.values() if row.kind == "request")
    notifications = "".join(_notification(row, types) for row in methods.values() if row.kind == "notification")
    data = "".join(f"  {_quoted(name)}: {types.of(row.data)};\n" for name, row in events.items())
    types.of(SurfaceOp)
    parts = [
        _HEAD,
        _interface("Every request, by its method: what it takes and what it answers.", "Requests", requests),
        _interface("Every notification, by its method, with who sends it.", "Notifications", notifications),
        _interface("The data of every type of event.", "EventData", data),
        _ENVELOPE,
        *_words(),
        *types.texts.values(),
    ]
    return "\n".join(parts)


class Types:
    """Gathers the structs that were named, each once, in the order in which they were met."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def of(self, kind: Any) -> str:
        """Give the TypeScript of a type; the structs in it are gathered."""
        return self._written(shape.type_info(kind))

    def _written(self, kind: shape.Type) -> str:
        match kind:
            case shape.StructType():
                return self._struct(kind)
            case shape.UnionType(types=types):
                return " | ".join(dict.fromkeys(self._written(one) for one in types))
            case shape.LiteralType(values=values):
                return " | ".join(_quoted(value) for value in sorted(values, key=str))
            case shape.VarTupleType(item_type=item):
                inner = self._written(item)
                return f"({inner})[]" if " " in inner and not inner.startswith("[") else f"{inner}[]"
            case shape.TupleType(item_types=items):
                return f"[{', '.join(self._written(item) for item in items)}]"
            case shape.IntType() | shape.FloatType():
                return "number"
            case _:
                return _PLAIN[type(kind)]

    def _struct(self, kind: shape.StructType) -> str:
        name = kind.cls.__name__
        if name not in self.texts:
            self.texts[name] = ""  # its place in the order; what refers to itself ends here
            tag = f"  {kind.tag_field}: {_quoted(kind.tag)};\n" if kind.tag_field else ""
            members = tag + "".join(self._member(kind, field) for field in kind.fields)
            self.texts[name] = _interface(wire_doc(kind), name, members)
        return name

    def of_member(self, kind: shape.StructType, field: shape.Field) -> str:
        """Give the TypeScript of a member's type; without null where null means that it is absent."""
        place = (kind.cls.__name__, field.name)
        text = SPLICED.get(place) or WORDS.get(place) or self._written(field.type)
        if is_optional(kind, field) and _never_null(kind, field):
            text = text.removesuffix(" | null")
        return text

    def _member(self, kind: shape.StructType, field: shape.Field) -> str:
        return f"  {field.encode_name}{'?' if is_optional(kind, field) else ''}: {self.of_member(kind, field)};\n"


def is_optional(kind: shape.StructType, field: shape.Field) -> bool:
    """Tell whether a member may be absent from what is sent. A struct that writes its defaults out has them always, but for
    UNSET, which msgspec shows as a member that is not required and has no default."""
    if field.required:
        return False
    unset = field.default is NODEFAULT and field.default_factory is NODEFAULT
    return unset or bool(kind.cls.__struct_config__.omit_defaults)


def _never_null(kind: shape.StructType, field: shape.Field) -> bool:
    return bool(kind.cls.__struct_config__.omit_defaults) and field.default is None


def _request(row: Method, types: Types) -> str:
    result = SPLICED_RESULTS.get(row.name) or ("null" if row.result is None else types.of(row.result))
    return f"{_comment(row.doc, '  ')}  {_quoted(row.name)}: {{ params: {_params(row, types)}; result: {result} }};\n"


def _notification(row: Method, types: Types) -> str:
    members = f"params: {_params(row, types)}; direction: {_quoted(row.direction)}"
    return f"{_comment(row.doc, '  ')}  {_quoted(row.name)}: {{ {members} }};\n"


def _params(row: Method, types: Types) -> str:
    """What is not read may be anything, or nothing."""
    if row.params is None:
        return "object | undefined"
    return types.of(row.params) if row.params is not Raw else "unknown"


def _words() -> Iterator[str]:
    yield _alias("Why a turn ended. The set is open: a plugin's kind may come too.", "TurnEndKind", TURN_ENDS)
    kinds = "".join(f"\n  | {{ kind: {_quoted(name)}{_payload(row.payload)} }}" for name, row in TURN_ENDS.items())
    yield f"{_comment('The ends that refold itself writes, told apart by `kind`.')}export type KnownTurnEnd ={kinds};\n"
    yield _alias("What `data.kind` of an error says, and the kind of a failed turn's error.", "ErrorKind", KINDS)


def _payload(name: str | None) -> str:
    return "" if name is None else f"; {name}: NonNullable<TurnEndReason[{_quoted(name)}]>"


def _alias(doc: str, name: str, words: Mapping[str, object]) -> str:
    lines = "".join(f"\n  | {_quoted(word)}" for word in words)
    return f"{_comment(doc)}export type {name} ={lines};\n"


def _interface(doc: str, name: str, members: str) -> str:
    if not members:
        return f"{_comment(doc)}export type {name} = {EMPTY};\n"
    return f"{_comment(doc)}export interface {name} {{\n{members}}}\n"


def _comment(doc: str, indent: str = "") -> str:
    lines = doc.replace("*/", "*\\/").split("\n")
    if len(lines) == 1:
        return f"{indent}/** {lines[0]} */\n"
    return f"{indent}/**\n" + "".join(f"{indent} * {line}".rstrip() + "\n" for line in lines) + f"{indent} */\n"


def _quoted(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


_PLAIN: Final[dict[type[shape.Type], str]] = {
    shape.StrType: "string",
    shape.BoolType: "boolean",
    shape.NoneType: "null",
    shape.RawType: "unknown",
}

_HEAD: Final = f"""// The native protocol of refold {VERSION} (protocol version {PROTOCOL_VERSION}), for clients in TypeScript.
// Generated from the method table by `make golden`; do not edit.
// The methods of LSP that the daemon serves are not here: they have LSP's own types.

/** A word that this release does not know. */
export type Foreign = string & {{}};
"""

_ENVELOPE: Final = """/** An event of one type, as it is stored and sent. `time` is Unix epoch ms, `sources` ranges of seqs. */
export interface EventOf<T extends keyof EventData> {
  type: T;
  seq: number;
  time: number;
  data: EventData[T];
  surfaceOp?: SurfaceOp;
  sources?: [number, number][];
  ignorable?: boolean;
}

/** Any event, told apart by `type`. A type that is not among them is a ForeignEvent: it can be shown, not understood. */
export type Event = { [T in keyof EventData]: EventOf<T> }[keyof EventData];

/** An event of a plugin's type, or of a later release's. */
export interface ForeignEvent {
  type: Foreign;
  seq: number;
  time: number;
  data: unknown;
  surfaceOp?: SurfaceOp;
  sources?: [number, number][];
  ignorable?: boolean;
}

/** How an event changes the surface: it joins at the end, or takes the place of others. */
export type SurfaceOp = "append" | Replace;

/** What a session does. */
export type StatusWord = "idle" | "running" | "waiting" | "compacting" | "broken";

/** `data` of an error with code -31000; other members depend on the kind. */
export interface ErrorData {
  kind: ErrorKind | Foreign;
  retryable: boolean;
  [detail: string]: unknown;
}
"""
