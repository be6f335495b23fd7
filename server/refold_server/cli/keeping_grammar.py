"""Owns the grammar of the commands that keep sessions: fork, archive, delete, export, import, and what is done to the store."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from refold_server.cli.argument_types import seq, title, unicode_text

if TYPE_CHECKING:
    from refold_server.cli.parser import Parser

    Add: TypeAlias = Callable[[str], Parser]
    """Adds a command, with the options that say where things are."""

WORKS: Final = ("compact", "rebuild", "accept")
"""What `refold store` does."""


def add_keeping(add: Add) -> None:
    """Add these commands to the grammar."""
    _fork(add("fork"))
    _archive(add("archive"))
    _delete(add("delete"))
    _export(add("export"))
    _import(add("import"))
    store = add("store")
    store.add_argument(
        "work",
        metavar="WORK",
        choices=WORKS,
        help="compact: give free space back to the file system and let deleted bytes vanish, with nobody using the store; "
        "rebuild: count anew what lists of sessions show; accept: go on with an old copy that was restored on purpose",
    )
    _json(store)


def _fork(fork: Parser) -> None:
    fork.add_argument("session", metavar="SESSION", type=unicode_text, help="the id of the session to begin with")
    fork.add_argument("--at", metavar="SEQ", type=seq, help="its last event that the fork has (default: the last there is)")
    fork.add_argument("--title", metavar="TEXT", type=title, help="the fork's title (default: what its parent is called)")
    _json(fork)


def _archive(archive: Parser) -> None:
    archive.add_argument("sessions", metavar="SESSION", nargs="+", type=unicode_text, help="ids of sessions")
    archive.add_argument("--undo", action="store_true", help="bring them back into lists")
    _json(archive)


def _delete(delete: Parser) -> None:
    delete.add_argument("sessions", metavar="SESSION", nargs="+", type=unicode_text, help="ids of sessions")
    delete.add_argument("--yes", action="store_true", help="ask nobody; needed where there is no terminal")
    _json(delete)


def _export(export: Parser) -> None:
    export.add_argument("session", metavar="SESSION", type=unicode_text, help="the id of a session")
    export.add_argument(
        "-o", "--output", metavar="FILE", help="where to; it appears whole or not at all (default: standard output)"
    )
    export.add_argument("--at", metavar="SEQ", type=seq, help="the last event to export (default: the last there is)")
    export.add_argument("--json", action="store_true", help="print what was written as one JSON object; needs --output")


def _import(one: Parser) -> None:
    one.add_argument("file", metavar="FILE", help="an export; - reads standard input")
    one.add_argument("--new-id", action="store_true", help="give the session an id of its own, made now (default: the file's)")
    _json(one)


def _json(command: Parser) -> None:
    command.add_argument("--json", action="store_true", help="print what was done as one JSON object")
