"""The shapes of LSP 3.17 by which the daemon speaks of a client's documents: places, edits, actions, messages.

Written as LSP has them. What clients send about documents is read by pygls; from these the daemon builds what it says.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

Count: TypeAlias = Annotated[int, Meta(ge=0, le=2**31 - 1)]
"""A line or a column, from 0."""


class Position(Struct, frozen=True, gc=False):
    """A place between two characters. `character` counts in the units that `initialize` chose."""

    line: Count
    character: Count


class Range(Struct, frozen=True, gc=False):
    """From a place to a place; the end is exclusive."""

    start: Position
    end: Position


class TextEdit(Struct, frozen=True, gc=False, rename="camel"):
    """A range and what takes its place."""

    range: Range
    new_text: str


class VersionedDocument(Struct, frozen=True, gc=False):
    """A document and the version that an edit is for."""

    uri: str
    version: int | None


class DocumentEdit(Struct, frozen=True, gc=False, rename="camel"):
    """The edits of one document, none of which overlaps another."""

    text_document: VersionedDocument
    edits: tuple[TextEdit, ...]


class WorkspaceEdit(Struct, frozen=True, gc=False, rename="camel"):
    """Edits of documents: `document_changes` for clients that check versions, else `changes`, an object of TextEdits by URI."""

    document_changes: tuple[DocumentEdit, ...] | UnsetType = UNSET
    changes: Raw | UnsetType = UNSET


class ApplyEditParams(Struct, frozen=True, gc=False):
    """`workspace/applyEdit`; `label` names the edit in the client's undo list."""

    label: str
    edit: WorkspaceEdit


class ApplyEditResult(Struct, frozen=True, gc=False, rename="camel"):
    """Its result."""

    applied: bool
    failure_reason: str | None = None


class Command(Struct, frozen=True, gc=False):
    """A command for `workspace/executeCommand`, with its title and its arguments."""

    title: str
    command: str
    arguments: tuple[Raw, ...]


class CodeAction(Struct, frozen=True, gc=False):
    """An action that runs a command."""

    title: str
    kind: str
    command: Command


class Registration(Struct, frozen=True, gc=False, rename="camel"):
    """A capability that is registered later."""

    id: str
    method: str
    register_options: Raw


class RegistrationParams(Struct, frozen=True, gc=False):
    """`client/registerCapability`."""

    registrations: tuple[Registration, ...]


class CreateProgressParams(Struct, frozen=True, gc=False):
    """`window/workDoneProgress/create`."""

    token: int | str


class ShowMessageParams(Struct, frozen=True, gc=False):
    """`window/showMessage`; `type` is 1 for an error, 2 for a warning, 3 for information."""

    type: Literal[1, 2, 3]
    message: str
