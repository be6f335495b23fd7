"""Owns what the commands of `workspace/executeCommand` take and give: explain, fix or edit a selection.

Each command takes one argument, a SelectionParams, and gives a CommandResult. The selection is a reference: its text is
taken from the open document when the command runs, not when it was offered. Unknown members are refused with their path.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from refold_protocol.ids import InputId, SessionId
from refold_protocol.rpc.documents import Range


class SelectionParams(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel", forbid_unknown_fields=True):
    """A selection of an open document, and what to do with it.

    `version` is that of the document for which `range` was computed. `session` is the session to ask in; without it a new
    one is begun for the workspace folder of the document. `instruction` says what is wanted, `diagnostics` what the editor
    reports about the selection. With `wait` the reply comes at the turn's end and has an outcome; without it, the reply
    comes when the prompt is on disk, and the outcome is told by `window/showMessage`.
    """

    uri: str
    range: Range
    version: int | None = None
    session: SessionId | None = None
    instruction: Annotated[str, Meta(max_length=100_000)] | None = None
    diagnostics: Annotated[tuple[str, ...], Meta(max_length=100)] = ()
    wait: bool = False


class EditOutcome(Struct, frozen=True, gc=False, omit_defaults=True):
    """A document that was edited. `unsaved`: in the editor only, because it had unsaved changes there; else on disk.
    `version` is that of the open document on which the edit was made."""

    path: str
    unsaved: bool
    version: int | None = None


class CommandOutcome(Struct, frozen=True, gc=False):
    """How a command ended: the `reason` object of the turn's end, the text of its last reply, the edit that was made, or
    in a sentence why none was."""

    reason: Raw
    text: str
    edit: EditOutcome | UnsetType = UNSET
    problem: str | UnsetType = UNSET


class CommandResult(Struct, frozen=True, gc=False):
    """What a command started: the input is durable at `seq`, and `turn` is its turn."""

    session: SessionId
    input: InputId
    turn: int
    seq: int
    outcome: CommandOutcome | UnsetType = UNSET
