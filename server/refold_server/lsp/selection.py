"""Owns what a selection is once it was resolved, and the prompt that asks about it.

A command names a document and a range. The text is taken from the document when the prompt is accepted, and stands in it, so
what the model saw does not depend on what the document became. Pure.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Final

from msgspec import Struct

from refold_protocol.json_text import repair_surrogates
from refold_protocol.rpc.commands import SelectionParams
from refold_protocol.rpc.errors import ErrorObject, WireError, bad_param
from refold_protocol.rpc.language import EDIT, EXPLAIN, FIX
from refold_protocol.session.messages import TextBlock
from refold_server.lsp.documents import OpenDocument
from refold_server.lsp.positions import position_of, span_of
from refold_server.lsp.replacement import FORMAT, fenced

CONTENT_MODIFIED: Final = -32801
"""LSP's code for an answer that would be about a text that is gone."""

ASKED: Final = {
    EXPLAIN: "Explain the selected text.",
    FIX: "Fix what is wrong in the selected text.",
    EDIT: "Edit the selected text.",
}
"""What each command asks for."""

NO_INSTRUCTION: Final = "Do what comments and notes in it ask for; if there are none, improve it without changing what it does."
"""What is asked for by an edit without an instruction."""


class Selection(Struct, frozen=True):
    """A selection as of one moment: from the place `start` to before `end` of a document's text, never empty."""

    document: OpenDocument
    start: int
    end: int

    @property
    def text(self) -> str:
        """The selected text."""
        return self.document.text[self.start : self.end]

    @property
    def lines(self) -> str:
        """The lines, counted from 1, for people: `3` or `3-5`."""
        first, last = self._ends()
        return str(first[0]) if first[0] == last[0] else f"{first[0]}-{last[0]}"

    @property
    def range(self) -> str:
        """The range for the model: lines and columns in characters, counted from 1."""
        first, last = self._ends()
        return f"line {first[0]} column {first[1]} to line {last[0]} column {last[1]}"

    def _ends(self) -> tuple[tuple[int, int], tuple[int, int]]:
        first, last = (position_of(self.document.text, place, "utf-32") for place in (self.start, self.end))
        return (first.line + 1, first.character + 1), (last.line + 1, last.character + 1)


def resolve(command: str, params: SelectionParams, document: OpenDocument | None, encoding: str) -> Selection:
    """Take the selection from the document as it is now. Raises WireError: −32602 where nothing is selected, −32801 where the
    document has another version than the one for which the range was computed."""
    if document is None:
        raise WireError(bad_param(command, "$.arguments[0].uri", f"no open document has the URI {params.uri}"))
    if params.version is not None and params.version != document.version:
        changed = f"{command}: the document has version {document.version} now, not {params.version}; select again"
        raise WireError(ErrorObject(CONTENT_MODIFIED, changed))
    start, end = span_of(document.text, params.range, encoding)
    if start == end:
        raise WireError(bad_param(command, "$.arguments[0].range", "nothing is selected"))
    return Selection(document, start, end)


def shown_path(path: str, folder: str) -> str:
    """Give a file's path below `folder`, or the whole path where it lies elsewhere."""
    pure = PurePath(path)
    return str(pure.relative_to(folder)) if pure.is_relative_to(folder) else path


def prompt(command: str, params: SelectionParams, selection: Selection, path: str) -> tuple[TextBlock, TextBlock]:
    """Give what is asked and, as a block of its own, the reference with the text that it stood for."""
    asked = [ASKED[command]]
    if params.instruction and params.instruction.strip():
        asked.append(params.instruction)
    elif command == EDIT:
        asked.append(NO_INSTRUCTION)
    if params.diagnostics:
        asked.append("\n".join(("The editor reports:", *(f"- {one}" for one in params.diagnostics))))
    if command != EXPLAIN:
        asked.append(FORMAT)
    reference = f"The selection is {path}, {selection.range}, as it is open in the editor:\n\n{fenced(selection.text)}"
    return TextBlock(repair_surrogates("\n\n".join(asked))), TextBlock(repair_surrogates(reference))
