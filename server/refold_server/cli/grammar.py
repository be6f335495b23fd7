"""Owns the command line's grammar as plain data, read off the parser: what completion scripts are made from. Pure."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Final, Literal, TypeAlias, cast

from msgspec import Struct

from refold_server.cli.help import SUMMARIES
from refold_server.cli.parser import Parser

Takes: TypeAlias = Literal["nothing", "choice", "session", "folder", "file", "text"]
"""What stands behind an option, or in an argument's place."""


class Word(Struct, frozen=True):
    """An option, with its `flags`, or an argument in its place, which has none. `choices` are those of `choice`; `meaning`
    is its help, cut to a clause."""

    flags: tuple[str, ...]
    takes: Takes
    meaning: str
    choices: tuple[str, ...] = ()


class Grammar(Struct, frozen=True):
    """A command; `name` is empty for what goes before any. Arguments are in the order in which they are given."""

    name: str
    meaning: str
    options: tuple[Word, ...]
    arguments: tuple[Word, ...]


def grammars(parser: Parser) -> tuple[Grammar, ...]:
    """Give the grammar: what goes before any command first, whose only argument is the command; then each command."""
    rows = [_grammar("", parser)]
    for action in parser.arguments():
        if action.dest == "command":
            commands = cast("Mapping[str, Parser]", action.choices)
            rows += [_grammar(name, command) for name, command in commands.items()]
    return tuple(rows)


def _grammar(name: str, parser: Parser) -> Grammar:
    words = list(_words(parser))
    options = tuple(word for word in words if word.flags)
    return Grammar(name, SUMMARIES.get(name, ""), options, tuple(word for word in words if not word.flags))


def _words(parser: Parser) -> Iterator[Word]:
    for action in parser.arguments():
        choices = tuple(str(choice) for choice in action.choices or ())
        yield Word(tuple(action.option_strings), _takes(action, choices), _clause(action.help or ""), choices)


def _takes(action: argparse.Action, choices: tuple[str, ...]) -> Takes:
    if choices:
        return "choice"
    if action.nargs == 0:
        return "nothing"
    return _BY_METAVAR.get(str(action.metavar), "text")


def _clause(text: str) -> str:
    """The help up to its first pause, of plain letters: completion scripts quote it in three ways."""
    for pause in (";", ":", "(", ","):
        text = text.partition(pause)[0]
    return "".join(letter for letter in text if letter.isalnum() or letter in " -./").strip()


_BY_METAVAR: Final[dict[str, Takes]] = {"SESSION": "session", "ID": "session", "FOLDER": "folder", "FILE": "file"}
