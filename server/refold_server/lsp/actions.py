"""Owns which code actions are offered for a selection. Each runs one of our commands; none does anything by itself.

They are offered for selections of files only: a plain cursor gets none, so that editors show no lamp on every line. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Raw

from refold_protocol.rpc.commands import SelectionParams
from refold_protocol.rpc.documents import CodeAction, Command
from refold_protocol.rpc.language import ACTION_KINDS, EDIT, EXPLAIN, FIX
from refold_server.lsp.documents import OpenDocument, document_named, path_of_uri
from refold_server.lsp.mounted import Asked

TITLES: Final = {EXPLAIN: "refold: explain selection", FIX: "refold: fix selection", EDIT: "refold: edit selection"}
"""The title of each command's action, in the order in which they are offered."""

MAX_DIAGNOSTICS: Final = 20
"""So many diagnostics are handed on."""


def offered(asked: Asked, documents: Sequence[OpenDocument], *, literals: bool) -> tuple[CodeAction, ...] | tuple[Command, ...]:
    """Give the actions for what was asked; commands alone where the client does not take actions (`literals`)."""
    if asked.range.start == asked.range.end or path_of_uri(asked.uri) is None:
        return ()
    names = [name for name in TITLES if _is_wanted(ACTION_KINDS[name], asked.only)]
    document = document_named(documents, asked.uri)
    commands = [_command(name, asked, None if document is None else document.version) for name in names]
    if not literals:
        return tuple(commands)
    return tuple(CodeAction(one.title, ACTION_KINDS[one.command], one) for one in commands)


def _command(name: str, asked: Asked, version: int | None) -> Command:
    reported = asked.diagnostics[:MAX_DIAGNOSTICS] if name == FIX else ()
    params = SelectionParams(asked.uri, asked.range, version, diagnostics=reported)
    return Command(TITLES[name], name, (Raw(msgspec.json.encode(params)),))


def _is_wanted(kind: str, only: tuple[str, ...] | None) -> bool:
    """Tell whether a kind is one of `only` or below one; LSP's empty kind stands for all."""
    return only is None or any(wanted in ("", kind) or kind.startswith(f"{wanted}.") for wanted in only)
