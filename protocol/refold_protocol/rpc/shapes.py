"""Owns what msgspec's structs do not say about their own JSON: what stands in places that hold text of JSON, and which words
a member takes whose set is a table of its own. Generated artefacts read it; a test holds that no place is missing.
"""

from __future__ import annotations

from inspect import getdoc
from typing import Final

from msgspec.inspect import StructType

SPLICED: Final[dict[tuple[str, str], str]] = {
    ("SessionEventsNotice", "events"): "Event[]",
    ("SessionReadResult", "events"): "Event[]",
    ("TurnInterruptResult", "reason"): "TurnEndReason | null",
    ("ToolRow", "parameters"): "object",
    ("DaemonSchemaResult", "schema"): "{ methods: object; types: object }",
    ("ClientCapabilities", "text_document"): "object",
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
