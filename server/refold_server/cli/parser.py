"""Owns the command line's grammar: the commands, their arguments and options. What help says about it is `help.py`'s."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias

from refold_server import __version__
from refold_server.cli.argument_types import count, request_place, unicode_text
from refold_server.cli.help import DESCRIPTIONS, PROGRAM, SUMMARIES, defaults_text, exits_text
from refold_server.cli.keeping_grammar import add_keeping
from refold_server.cli.people import printable
from refold_server.cli.screen import Screen

VIEWS: Final = ("transcript", "surface", "events", "header")
"""Views that `refold log` shows."""

MODES: Final = ("ask", "allow", "deny")
"""Permission modes."""

SHELLS: Final = ("bash", "zsh", "fish")
"""Shells that `refold completion` writes for."""


class Parser(argparse.ArgumentParser):
    """A parser whose complaints cannot steer a terminal, and whose help names the defaults and exit codes of a command.

    What takes time to find out is found out only for a help that is asked for. Options are never abbreviated: an
    abbreviation would change its meaning when an option is added.
    """

    def __init__(self, command: str | None = None, prog: str = "refold") -> None:
        super().__init__(
            prog=prog,
            description=DESCRIPTIONS[command] if command else PROGRAM,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        self._command = command

    def format_help(self) -> str:
        """Give the help."""
        defaults = f"\n{defaults_text()}" if "--store" in self._option_string_actions else ""
        return f"{super().format_help()}{defaults}\n{exits_text(self._command)}"

    def arguments(self) -> tuple[argparse.Action, ...]:
        """Give the options and arguments, in the order of the help."""
        return tuple(self._actions)

    def error(self, message: str) -> NoReturn:
        """End with usage and a complaint."""
        super().error(f"{printable(message)}\nTry '{self.prog} --help'.")

    def _print_message(self, message: str, file: object = None) -> None:
        """Print help, version or complaint. argparse's own method hides that the output is lost."""
        vital = file is sys.stdout
        Screen(sys.stdout if vital else sys.stderr, vital=vital).put(message, now=True)


if TYPE_CHECKING:
    Commands: TypeAlias = argparse._SubParsersAction[Parser]  # pyright: ignore[reportPrivateUsage] - it has no public name


def build_parser() -> Parser:
    """Give the whole grammar."""
    parser = Parser()
    parser.add_argument("--version", action="version", version=f"refold {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands", parser_class=Parser)
    reading = (_add_log, _add_rebuild, _add_cache, _add_verify, _add_doctor)
    for add in (_add_serve, _add_run, _add_sessions, *reading, _add_compact, _add_demo):
        add(commands)
    add_keeping(lambda command: _with_places(_add(commands, command)))
    _add_prefix(commands)
    _add_meter(commands)
    _add_config(commands)
    _add_schema(commands)
    _add_completion(commands)
    return parser


def _add(commands: Commands, command: str) -> Parser:
    return commands.add_parser(command, help=SUMMARIES[command], command=command)


def _add_serve(commands: Commands) -> None:
    _add_places(_add(commands, "serve"))


def _add_run(commands: Commands) -> None:
    one = _add(commands, "run")
    _add_what_runs(one.add_mutually_exclusive_group(required=True))
    one.add_argument(
        "--session",
        metavar="ID",
        type=unicode_text,
        help="go on with this session, in the folder where it began (default: a new one)",
    )
    one.add_argument(
        "--model", metavar="PROVIDER/MODEL", type=unicode_text, help="model of a new session (default: the configuration's)"
    )
    one.add_argument(
        "--permissions",
        choices=MODES,
        help="whether calls that change something run; the session keeps it (default: its own, else the configuration's); "
        "ask: on a terminal, denied without one",
    )
    one.add_argument(
        "--json",
        action="store_true",
        help='print {"session": ID} first, then each event of the turn as it is stored, one a line',
    )
    _add_places(one)


def _add_what_runs(what: argparse._MutuallyExclusiveGroup) -> None:  # pyright: ignore[reportPrivateUsage] - it has no public name
    what.add_argument(
        "prompt",
        metavar="PROMPT",
        nargs="?",
        type=unicode_text,
        help="what to ask, in one argument; - reads it from standard input (UTF-8); one that begins with - stands behind --",
    )
    what.add_argument(
        "--pending",
        action="store_true",
        help="in place of a prompt, run the oldest input of --session that waits, since its process ended before it ran",
    )
    what.add_argument("--withdraw", action="store_true", help="run nothing, and take back all inputs of --session that wait")


def _add_sessions(commands: Commands) -> None:
    sessions = _add(commands, "sessions")
    which = sessions.add_mutually_exclusive_group()
    which.add_argument("--cwd", metavar="FOLDER", type=unicode_text, help="sessions of this folder (default: the current one)")
    which.add_argument("--all", action="store_true", help="sessions of every folder")
    sessions.add_argument("--text", metavar="TEXT", type=unicode_text, help="only those that say this, in title or prompts")
    sessions.add_argument("--archived", action="store_true", help="archived ones too")
    sessions.add_argument("--limit", metavar="NUMBER", type=count, default=20, help="how many at most (default: 20)")
    sessions.add_argument("--json", action="store_true", help="one JSON object a session, one a line")
    _add_places(sessions)


def _add_doctor(commands: Commands) -> None:
    doctor = _add(commands, "doctor")
    doctor.add_argument("--json", action="store_true", help="print everything as one JSON object")
    _add_places(doctor)


def _add_config(commands: Commands) -> None:
    config = _add(commands, "config")
    form = config.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print everything as one JSON object; of a fault its fields")
    form.add_argument("--schema", action="store_true", help="print the JSON Schema of the file instead, for editors")
    _add_places(config)


def _add_schema(commands: Commands) -> None:
    schema = _add(commands, "schema")
    schema.add_argument("--typescript", action="store_true", help="as TypeScript declarations (default: JSON Schema)")


def _add_completion(commands: Commands) -> None:
    completion = _add(commands, "completion")
    completion.add_argument("shell", metavar="SHELL", choices=SHELLS, help=f"which one: {', '.join(SHELLS)}")


def _add_log(commands: Commands) -> None:
    log = _add(commands, "log")
    _add_session(log)
    log.add_argument(
        "--view",
        choices=VIEWS,
        default="transcript",
        help="transcript: as a person read it (default); surface: as the model sees it now; events: every event that is "
        "recorded; header: config, system text and tools in force",
    )
    log.add_argument("--json", action="store_true", help="one JSON value a line; events are printed exactly as stored")
    _add_places(log)


def _add_rebuild(commands: Commands) -> None:
    rebuild = _add(commands, "rebuild")
    _add_session(rebuild)
    rebuild.add_argument(
        "place",
        metavar="TURN.STEP",
        type=request_place,
        help="which request, for example 1.2; compact:SEQ for the one of a compaction, whose compact/start is event SEQ",
    )
    _add_places(rebuild)


def _add_compact(commands: Commands) -> None:
    compact = _add(commands, "compact")
    _add_session(compact)
    compact.add_argument(
        "--instructions", metavar="TEXT", type=unicode_text, help="what the summary should hold besides, in your words"
    )
    compact.add_argument("--json", action="store_true", help="print what was done as one JSON object")
    _add_places(compact)


def _add_cache(commands: Commands) -> None:
    cache = _add(commands, "cache")
    _add_session(cache)
    cache.add_argument("--json", action="store_true", help="one JSON object a request, as request/explain gives it, one a line")
    _add_places(cache)


def _add_meter(commands: Commands) -> None:
    meter = _add(commands, "meter")
    _add_session(meter)
    meter.add_argument(
        "--model",
        metavar="PROVIDER/MODEL",
        type=unicode_text,
        help="meter every request as if it went to this model (default: to the one that it went to)",
    )
    how = meter.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="one JSON object a request, one a line")
    how.add_argument("--plot", action="store_true", help="draw the pressure of the requests")
    _add_places(meter)


def _add_prefix(commands: Commands) -> None:
    prefix = _add(commands, "prefix")
    which = prefix.add_mutually_exclusive_group()
    which.add_argument("session", metavar="SESSION", nargs="?", type=unicode_text, help="the id of a session")
    which.add_argument(
        "--cwd", metavar="FOLDER", type=unicode_text, help="a session that would begin there (default: the current folder)"
    )
    prefix.add_argument("--show", action="store_true", help="print the messages themselves")
    prefix.add_argument("--json", action="store_true", help="print everything as one JSON object, as prefix/compose gives it")
    _add_places(prefix)


def _add_verify(commands: Commands) -> None:
    verify = _add(commands, "verify")
    which = verify.add_mutually_exclusive_group(required=True)
    which.add_argument("session", metavar="SESSION", nargs="?", type=unicode_text, help="the id of a session")
    which.add_argument("--all", action="store_true", help="every session of the store")
    verify.add_argument(
        "--strict",
        action="store_true",
        help="count a request whose encoder this release does not have as a difference (default: report it)",
    )
    verify.add_argument("--json", action="store_true", help="one JSON object a session, one a line")
    _add_places(verify)


def _add_demo(commands: Commands) -> None:
    demo = _add(commands, "demo")
    demo.add_argument(
        "prompt",
        metavar="PROMPT",
        nargs="?",
        type=unicode_text,
        help="what to ask about the current folder (default: a question about refold's own source)",
    )
    _add_places(demo)


def _add_session(command: argparse.ArgumentParser) -> None:
    command.add_argument("session", metavar="SESSION", type=unicode_text, help="the id of a session, as `refold run` names it")


def _add_places(command: argparse.ArgumentParser) -> None:
    command.add_argument("--store", metavar="FOLDER", help="where sessions are kept; goes before REFOLD_STORE")
    command.add_argument("--config", metavar="FILE", help="the configuration file; goes before REFOLD_CONFIG")


def _with_places(command: Parser) -> Parser:
    _add_places(command)
    return command
