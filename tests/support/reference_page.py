"""The generated documents: the reference page of the native protocol, its TypeScript declarations, and the configuration.

The page is a pure function of the tables and of the golden files. Run as a program (`make golden`) this writes them anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Raw
from msgspec import inspect as shape

from refold_protocol.errors import KINDS, RETRYABLE_KINDS
from refold_protocol.rpc import wire_errors as errors
from refold_protocol.rpc.initialize import PROTOCOL_VERSION, VERSION, Limits
from refold_protocol.session.event_data import TURN_ENDS
from refold_protocol.session.events import EVENT_TYPES
from refold_server.config_docs import configuration_page, schema_text
from refold_server.lsp.lsp_bridge import LANGUAGE_METHODS
from refold_server.rpc.method import Method
from refold_server.rpc.method_table import METHODS
from refold_server.rpc.wire_schema import SPLICED_RESULTS, Types, declarations, is_optional, wire_doc
from tests.support import event_examples, rpc_examples

DOCS: Final = Path(__file__).parents[2] / "docs"
PAGE: Final = DOCS / "protocol.md"
TYPESCRIPT: Final = DOCS / "refold.d.ts"
CONFIGURATION: Final = DOCS / "configuration.md"
CONFIGURATION_SCHEMA: Final = DOCS / "configuration.schema.json"


_RULES: Final = {
    "approval/request": """\
A person decides, and sees what they decide. Whoever writes a client keeps three rules. A question takes no focus: it waits
where the session is shown, and a message or a status line tells of it. Plain typing is no answer, nor is what was typed before
the question could be read: an answer is a deliberate act, on the question that it is meant for. Nothing unseen is approved: the
client shows all of `subject`, a new file too, with its name and size, and says so while a part was not on the screen.""",
}
"""What a client has to keep beyond the shapes of a method's messages."""


def golden_messages() -> dict[str, str]:
    """Give the golden messages of each method and the golden line of each event type, by name."""
    found = {name: rpc_examples.golden_file(name).read_text(encoding="utf-8") for name in METHODS}
    events = {f"event {name}": event_examples.golden_file(name).read_text(encoding="utf-8") for name in EVENT_TYPES}
    return found | events  # a method and an event may have one name


def page(golden: Mapping[str, str]) -> str:
    """Give the reference page."""
    return "\n".join(_page(golden)).rstrip("\n") + "\n"


def _page(golden: Mapping[str, str]) -> Iterator[str]:
    structs: dict[str, shape.StructType] = {}
    yield _HEAD
    yield "## A walk: the ten messages to a working client\n"
    for number, (name, sentence) in enumerate(_WALK.items(), 1):
        yield f"{number}. {sentence}\n"
        yield from _example(golden[name])
    for kind, title in (("request", "Requests"), ("notification", "Notifications")):
        yield f"## {title}\n"
        for row in METHODS.values():
            if row.kind == kind:
                yield from _method(row, golden[row.name], structs)
    yield "## Methods of LSP\n\nFor clients that announced documents. Their types are those of LSP 3.17.\n"
    yield from _table(("method", "what it does"), ((f"`{row.name}`", row.doc) for row in LANGUAGE_METHODS.values()))
    yield "## Events\n\nWhat `session/events` brings and logs hold: `type`, `seq`, `time` (Unix epoch ms) and `data`.\n"
    for name, row in EVENT_TYPES.items():
        marks = [word for word, on in (("joins the surface", row.surface), ("may be skipped", row.ignorable)) if on]
        yield f"### {name}\n"
        yield from _struct(_info(row.data), structs, f" ({', '.join(marks)})" if marks else "")
        yield from _example(golden[f"event {name}"])
    yield from _endings()
    yield from _errors()
    yield "## Limits\n\nAs `initialize` announces them; sizes are in bytes.\n"
    limits = msgspec.to_builtins(Limits())
    yield from _table(("limit", "value"), ((f"`{name}`", str(value)) for name, value in limits.items()))
    yield "## Types\n\nWhat the tables above name, by name.\n"
    yield from _types(structs)


def _method(row: Method, example: str, structs: dict[str, shape.StructType]) -> Iterator[str]:
    yield f"### {row.name}\n"
    yield f"{_DIRECTIONS[row.direction]}. {row.doc}\n"
    if row.params is None:
        yield "Params are not read.\n"
    else:
        yield from _struct(_info(row.params), structs, "", "**Params.** ")
    if row.kind == "request":
        if row.result is None or row.result is Raw:
            result = SPLICED_RESULTS.get(row.name, "null")
            yield f"**Result.** `{result}`\n"
        else:
            yield from _struct(_info(row.result), structs, "", "**Result.** ")
    yield from _example(example)
    if row.name in _RULES:
        yield f"{_RULES[row.name]}\n"


def _struct(info: shape.StructType, structs: dict[str, shape.StructType], marks: str = "", lead: str = "") -> Iterator[str]:
    """Tell of a struct: its docstring and a table of its members. The structs that it names are gathered."""
    yield f"{lead}{' '.join(wire_doc(info).split())}{marks}\n"
    for field in info.fields:
        _gather(field.type, structs)
    if info.fields:
        rows = ((f"`{f.encode_name}`", _type(info, f), _required(info, f), _meaning(info, f)) for f in info.fields)
        yield from _table(("member", "type", "required", "meaning"), rows)


def _types(structs: dict[str, shape.StructType]) -> Iterator[str]:
    told: set[str] = set()
    while rest := sorted(structs.keys() - told):  # telling of one may name further ones
        for name in rest:
            told.add(name)
            for field in structs[name].fields:
                _gather(field.type, structs)
    for name in sorted(told):
        info = structs[name]
        yield f"### {name}\n"
        yield from _struct(info, structs, f" (`{info.tag_field}` is `{info.tag}`)" if info.tag_field else "")


def _gather(kind: shape.Type, structs: dict[str, shape.StructType]) -> None:
    match kind:
        case shape.StructType():
            structs.setdefault(kind.cls.__name__, kind)
        case shape.UnionType(types=types) | shape.TupleType(item_types=types):
            for one in types:
                _gather(one, structs)
        case shape.VarTupleType(item_type=item):
            _gather(item, structs)
        case _:
            pass


def _type(info: shape.StructType, field: shape.Field) -> str:
    return f"`{Types().of_member(info, field)}`".replace("|", "\\|")


def _required(info: shape.StructType, field: shape.Field) -> str:
    return "no" if is_optional(info, field) else "yes"


def _meaning(info: shape.StructType, field: shape.Field) -> str:
    """The clauses of the docstring that name the member, what bounds it, and its default."""
    text = re.sub(r"^`\S+/\S+`[:.] ", "", " ".join(wire_doc(info).split()))
    clauses = [part.strip(" .;") for part in re.split(r"(?<=[.;]) ", text) if f"`{field.encode_name}`" in part]
    bounds = [f"at least {bound}".replace("-", "−") for bound in _bounds(field.type)]
    default = field.default
    plain = isinstance(default, str | int | float) and not field.required
    defaults = [f"default `{msgspec.json.encode(default).decode()}`"] if plain else []
    return "; ".join([*clauses, *bounds, *defaults]).replace("|", "\\|")


def _bounds(kind: shape.Type) -> list[int]:
    if isinstance(kind, shape.UnionType):
        return [bound for one in kind.types for bound in _bounds(one)]
    return [kind.ge] if isinstance(kind, shape.IntType) and kind.ge is not None else []


def _endings() -> Iterator[str]:
    yield "## Turn ends\n\nThe `kind` of a turn's `reason`. The set is open: a plugin's kind is legal.\n"
    rows = ((f"`{name}`", f"`{row.payload}`" if row.payload else "", row.meaning) for name, row in TURN_ENDS.items())
    yield from _table(("kind", "carries", "meaning"), rows)


def _errors() -> Iterator[str]:
    yield "## Errors\n"
    yield "An error has one of JSON-RPC's codes, or −31000, whose `data.kind` says which it is.\n"
    yield from _table(("code", "meaning"), ((str(getattr(errors, name)), text) for name, text in _CODES.items()))
    yield "`data.retryable` says whether the same call may succeed later. The kinds, which name the errors of turns too:\n"
    rows = ((f"`{kind}`", text, "yes" if kind in RETRYABLE_KINDS else "") for kind, text in KINDS.items())
    yield from _table(("kind", "meaning", "retryable"), rows)


def _table(heads: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |\n|{' --- |' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""


def _example(text: str) -> Iterator[str]:
    yield f"```json\n{text.rstrip()}\n```\n"


def _info(kind: Any) -> shape.StructType:
    info = shape.type_info(kind)
    assert isinstance(info, shape.StructType)
    return info


def main() -> None:
    """Write the documents anew."""
    DOCS.mkdir(exist_ok=True)
    TYPESCRIPT.write_text(declarations(METHODS), encoding="utf-8")
    CONFIGURATION.write_text(configuration_page(), encoding="utf-8")
    CONFIGURATION_SCHEMA.write_text(schema_text(), encoding="utf-8")
    PAGE.write_text(page(golden_messages()), encoding="utf-8")


_HEAD: Final = f"""# The native protocol

Of refold {VERSION}, protocol version {PROTOCOL_VERSION}. Generated by `make golden` from the method table and the golden files;
do not edit. JSON-RPC 2.0 in LSP framing (`Content-Length`) over the standard streams of `refold serve`. The same table is
[refold.d.ts](refold.d.ts) for TypeScript, and JSON Schema by `refold schema` or `daemon/schema`. The examples are messages as
they go over the wire: a request and its reply, one a line. Members that are not required are absent rather than null.
"""

_WALK: Final = {
    "initialize": "Start `refold serve` and say who you are. The reply tells limits and features. It comes first.",
    "initialized": "Say that you have read it. From now on everything may be sent, also before replies came.",
    "session/open": "Begin a session with the folder that its tools work in, or open one by its id. Keep `session` and `tail`.",
    "event/subscribe": "Follow its log from the last event that you have, −1 for all. Do it before you ask anything.",
    "turn/start": "Send a prompt. The reply comes when it is on disk; with a `key` it can be sent again after a lost reply.",
    "session/events": "What happens comes as events, in order and without a gap. `durable` is the last one that no crash takes "
    "back. Show `assistant/chunk` as it comes, `assistant/message` when it is whole, and stop at `turn/end`.",
    "approval/request": "A call that changes something asks you, as a request of the daemon's. Show the whole subject, take no "
    "focus, let nothing that is typed elsewhere be the answer, and reply with the id of an option.",
    "turn/interrupt": "Stop a turn. What was said stays, and the turn ends.",
    "session/close": "Give the session back, so that another client can go on with it.",
    "shutdown": "Say that you are done; then send the notification `exit`. A client that just goes away loses nothing either: "
    "the next one subscribes with the last seq that it had.",
}
"""The messages of a first client, in their order, each with what it is for."""

_DIRECTIONS: Final = {"to-daemon": "Client to daemon", "to-client": "Daemon to client", "both": "Both directions"}

_CODES: Final = {
    "PARSE_ERROR": "broken JSON",
    "INVALID_REQUEST": "not a request, or not now",
    "METHOD_NOT_FOUND": "no such method",
    "INVALID_PARAMS": "wrong params; `data.path` says where",
    "INTERNAL_ERROR": "a bug; `data.diagnostics` is the id under which its traceback is logged",
    "SERVER_NOT_INITIALIZED": "a request before `initialize`",
    "REQUEST_CANCELLED": "cancelled by `$/cancelRequest`",
    "APPLICATION_ERROR": "refold's own; `data.kind` says which",
}

if __name__ == "__main__":
    main()
