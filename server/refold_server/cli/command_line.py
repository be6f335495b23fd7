"""The command line: finds the commands, parses the arguments, runs one command and gives its exit code.

A command NAME is the module `cli_NAME` of this package, and nothing else names it. Its top imports nothing that takes time,
so that help is quick: stores, event loops and sessions are imported by `run`. The only place where exceptions end.
"""

from __future__ import annotations

import argparse
import inspect
import pkgutil
import re
import sys
import textwrap
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final, NoReturn, Protocol, cast

import refold_server.cli
from refold_server import __version__
from refold_server.cli.exit_codes import COMPLETED, INTERRUPTED, MEANINGS, USAGE, report_error
from refold_server.cli.formatting import printable
from refold_server.cli.terminal import OutputStream, prepare_streams, standard_error, standard_output

WIDTH: Final = 78
"""Columns of descriptions."""


class CommandModule(Protocol):
    """What a module `cli_NAME` declares."""

    SUMMARY: str
    """What the command does, in one line."""
    DESCRIPTION: str
    """What it does in full; paragraphs have empty lines between them."""
    EXIT_CODES: Mapping[int, str]
    """Every exit code that it gives, with its meaning."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Add the arguments and options, in the order of the help."""

    @staticmethod
    def run(options: argparse.Namespace) -> int | Coroutine[Any, Any, int]:
        """Run the command and give its exit code. A coroutine function is ended by the first signal, wherever it is; a plain
        function handles signals itself."""
        ...


class Parser(argparse.ArgumentParser):
    """A parser whose complaints cannot steer a terminal, and whose help names the defaults and the exit codes.

    Options are never abbreviated: an abbreviation would change its meaning when an option is added.
    """

    def __init__(self, prog: str = "refold", description: str = "", exit_codes: Mapping[int, str] = MEANINGS) -> None:
        paragraphs = (textwrap.fill(" ".join(text.split()), WIDTH) for text in description.split("\n\n"))
        super().__init__(
            prog=prog,
            description="\n\n".join(paragraphs),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        self._exit_codes = exit_codes

    def format_help(self) -> str:
        """Give the help. What holds on this machine is found out only now, since that takes time."""
        defaults = f"\n{_defaults()}" if "--store" in self._option_string_actions else ""
        codes = "".join(f"  {code}  {meaning}\n" for code, meaning in self._exit_codes.items())
        return f"{super().format_help()}{defaults}\nexit codes:\n{codes}"

    def arguments(self) -> tuple[argparse.Action, ...]:
        """Give the options and arguments, in the order of the help."""
        return tuple(self._actions)

    def all_parsers(self) -> list[Parser]:
        """Give this parser and those of its commands."""
        commands = (action.choices for action in self._actions if action.dest == "command")
        return [self, *(one for parsers in commands for one in cast("Mapping[str, Parser]", parsers).values())]

    def error(self, message: str) -> NoReturn:
        """End with usage and a complaint."""
        super().error(f"{printable(message)}\nTry '{self.prog} --help'.")

    def _print_message(self, message: str, file: object = None) -> None:
        """Print help, version or complaint. argparse's own method hides that the output is lost."""
        stream = standard_output() if file is sys.stdout else standard_error()
        stream.put(message, now=True)


def run(arguments: Sequence[str]) -> int:
    """Parse `arguments`, run the command, and give its exit code. Errors are told on standard error in a sentence."""
    prepare_streams()
    try:
        code = _run(arguments)
        OutputStream(sys.stdout).flush()
    except KeyboardInterrupt:  # a signal before anything was begun, or in a command that only reads
        code = INTERRUPTED
    except Exception as error:  # noqa: BLE001 - this is where errors are told
        code = report_error(error)
    return code


def command_names() -> list[str]:
    """Give the names of all commands, in the order of the alphabet."""
    modules = pkgutil.iter_modules(refold_server.cli.__path__)
    return sorted(module.name.removeprefix("cli_") for module in modules if module.name.startswith("cli_"))


def command_module(name: str) -> CommandModule:
    """Import a command."""
    return cast("CommandModule", import_module(f"refold_server.cli.cli_{name}"))


def build_parser(names: Iterable[str]) -> Parser:
    """Give the parser of the commands `names`."""
    parser = Parser(
        description="Hosts sessions with language models for editors and scripts, and can prove what the model saw."
    )
    parser.add_argument("--version", action="version", version=f"refold {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands", parser_class=Parser)
    for name in names:
        module = command_module(name)
        one = commands.add_parser(name, help=module.SUMMARY, description=module.DESCRIPTION, exit_codes=module.EXIT_CODES)
        module.add_arguments(one)
    return parser


def add_session(parser: argparse.ArgumentParser) -> None:
    """Add the argument that names a session."""
    parser.add_argument("session", metavar="SESSION", type=unicode_text, help="the id of a session, as `refold run` names it")


def add_sessions(parser: argparse.ArgumentParser) -> None:
    """Add the argument that names one or more sessions."""
    parser.add_argument("sessions", metavar="SESSION", nargs="+", type=unicode_text, help="ids of sessions")


def add_json(parser: argparse.ArgumentParser, text: str = "print what was done as one JSON object") -> None:
    """Add the option for output that programs read."""
    parser.add_argument("--json", action="store_true", help=text)


def add_store(parser: argparse.ArgumentParser) -> None:
    """Add the options that name a store and a configuration."""
    parser.add_argument("--store", metavar="FOLDER", help="where sessions are kept; goes before REFOLD_STORE")
    parser.add_argument("--config", metavar="FILE", help="the configuration file; goes before REFOLD_CONFIG")


def add_folder(parser: argparse.ArgumentParser, text: str) -> None:
    """Add the option that names a folder, which may be relative."""
    parser.add_argument("--cwd", metavar="FOLDER", type=unicode_text, help=text)


def add_session_settings(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which folder and which settings a session has. --session is the command's own."""
    parser.add_argument(
        "--model",
        metavar="PROVIDER/MODEL",
        type=unicode_text,
        help="the session's model from now on (default: its own, else the configuration's)",
    )
    parser.add_argument(
        "--effort",
        metavar="TEXT",
        type=unicode_text,
        help="how much the model thinks, in the provider's own word; the session keeps it",
    )
    parser.add_argument(
        "--permissions",
        choices=("ask", "allow", "deny"),
        help="whether calls that change something run; the session keeps it (default: its own, else the configuration's); "
        "ask: on a terminal, denied without one",
    )
    parser.add_argument("--title", metavar="TEXT", type=title_text, help="what the session is called from now on")
    add_folder(
        parser,
        "the session's folder from now on (default: its own, or, where that is gone and for a new one, the current folder)",
    )


def unicode_text(text: str) -> str:
    """Take text that the log can hold. Raises ArgumentTypeError for bytes that are not UTF-8."""
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise argparse.ArgumentTypeError(f"{text!r} is not UTF-8")
    return text


def title_text(text: str) -> str:
    """Take a session's title. Raises ArgumentTypeError."""
    if not 1 <= len(unicode_text(text)) <= 200:
        raise argparse.ArgumentTypeError("a title has 1 to 200 characters")
    return text


def key_text(text: str) -> str:
    """Take a prompt's key. Raises ArgumentTypeError."""
    if not 1 <= len(unicode_text(text)) <= 200:
        raise argparse.ArgumentTypeError("a key has 1 to 200 characters")
    return text


def add_after(parser: argparse.ArgumentParser) -> None:
    """Add the options that say from which event on, and whether those that come are given too."""
    parser.add_argument("--after", metavar="SEQ", type=seq, help="only what lies behind this event")
    parser.add_argument(
        "--follow", action="store_true", help="go on with what comes, from whatever process, until a signal ends it"
    )


def seq(text: str) -> int:
    """Read an event's seq. Raises ArgumentTypeError."""
    if re.fullmatch(r"\d{1,18}", text, re.ASCII) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not the number of an event, from 0 on")
    return int(text)


def _run(arguments: Sequence[str]) -> int:
    names = command_names()
    parser = build_parser(arguments[:1] if arguments and arguments[0] in names else names)
    try:
        options = parser.parse_args(arguments)
    except SystemExit as end:  # argparse has printed its help or its complaint
        return COMPLETED if end.code in (None, 0) else USAGE
    if options.command is None:
        standard_error().put(parser.format_help())
        return USAGE
    command = command_module(options.command).run
    if not inspect.iscoroutinefunction(command):
        return cast("int", command(options))
    from refold_server.cli.command_context import run_until_signal

    return run_until_signal(lambda: command(options))


def _defaults() -> str:
    """Say what holds on this machine where neither an option nor the environment says anything."""
    from refold_protocol.errors import ConfigError
    from refold_server.config_file import default_config_path, default_store_path

    try:
        config, store = printable(str(default_config_path())), printable(str(default_store_path()))
    except ConfigError as error:
        return f"where neither option nor environment say anything:\n  {error.reason}\n"
    return (
        "where neither option nor environment say anything:\n"
        f"  --store   store.path of the configuration, else {store}\n"
        f"  --config  {config}, if it is there\n"
    )
