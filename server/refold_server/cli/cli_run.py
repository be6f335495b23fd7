"""The command `refold run`."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from refold_protocol.errors import ConfigError
from refold_server.cli.command_line import add_json, add_session_settings, add_store, key_text, unicode_text
from refold_server.cli.exit_codes import MEANINGS
from refold_server.cli.terminal import AsyncOutputStream

if TYPE_CHECKING:
    from refold_server.cli.command_context import Interrupts

SUMMARY = "run one turn and print the reply"
DESCRIPTION = """Run one turn in the current folder and stream the reply to standard output, whose last line names the session.
Thinking, tool calls and a bad end of the turn are told on standard error.

The first SIGINT (Ctrl-C), SIGTERM or SIGHUP interrupts the turn and waits until its end is in the log; a second one leaves at
once, which costs nothing that was recorded. A reader of the output that leaves interrupts the turn too.

What was accepted and did not run, because its process ended first, waits in its session and never runs by itself: it is named
when the session is continued, --pending runs the oldest of it, --withdraw takes all of it back."""
EXIT_CODES = MEANINGS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "prompt",
        metavar="PROMPT",
        nargs="*",
        default=[],
        type=unicode_text,
        help="what to ask, in one or more words; - reads it from standard input (UTF-8); put -- before one that begins with -; "
        "@PATH goes with it as --file does",
    )
    parser.add_argument(
        "--file", metavar="PATH", action="append", default=[], type=unicode_text, help="send this file's text with the prompt"
    )
    what.add_argument(
        "--pending",
        action="store_true",
        help="in place of a prompt, run the oldest input of --session that waits, since its process ended before it ran",
    )
    what.add_argument("--withdraw", action="store_true", help="run nothing, and take back all inputs of --session that wait")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--session",
        metavar="ID",
        type=unicode_text,
        help="continue this session, in its folder (default: a new one); the beginning of an id will do, or latest",
    )
    which.add_argument(
        "-c", "--continue", dest="continued", action="store_true", help="continue the latest session of this folder"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="print the answer alone, and what is wrong")
    add_session_settings(parser)
    _add_for_scripts(parser)
    add_json(parser, 'print {"session": ID} first, then each event of the turn as it is stored, one a line')
    add_store(parser)


def _add_for_scripts(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--permissions-file",
        metavar="FILE",
        help="TOML rules that answer whether a call may run, the first that matches; what none decides is asked or denied",
    )
    parser.add_argument(
        "--fail-on-denied", action="store_true", help="end with the exit code 8 where the turn completed and calls were denied"
    )
    parser.add_argument(
        "--key",
        metavar="TEXT",
        type=key_text,
        help="a name of this prompt in its session: given again with the same prompt, that is not asked twice",
    )
    parser.add_argument(
        "--record",
        metavar="FOLDER",
        type=unicode_text,
        help="keep the raw replies of the server there, without keys, for refold replay",
    )


def run(options: argparse.Namespace) -> int:
    """Run one turn and give the exit code of its end."""
    from refold_server.cli.command_context import Interrupts

    interrupts = Interrupts()
    with interrupts.installed():
        _check(options)
        prompt = _prompt(options) if options.prompt else None
        return interrupts.run(partial(_run, options, prompt, interrupts))


def _prompt(options: argparse.Namespace) -> str:
    """Give the prompt with what goes with it; what was taken is told, except to who wants the answer alone."""
    from refold_server.cli.attachments import mentioned_files, named_files, piped_input, with_attachments
    from refold_server.cli.prompted_turn import FROM_STDIN, read_prompt
    from refold_server.cli.terminal import standard_error

    words = " ".join(options.prompt)
    prompt, err = read_prompt(words), standard_error()
    attachments = named_files(options.file)
    if words != FROM_STDIN:  # what others may have written into a pipe names no files
        attachments += mentioned_files(prompt)
        if (piped := piped_input(err.terminal)) is not None:
            attachments.append(piped)
    for one in () if options.quiet else attachments:
        err.line(f"(with {one.told})")
    return with_attachments(prompt, attachments)


def _check(options: argparse.Namespace) -> None:
    """Refuse options that do not go together. Raises ConfigError."""
    for name in ("pending", "withdraw"):
        if getattr(options, name) and options.session is None and not options.continued:
            raise ConfigError(f"--{name}", "needs --session, which says where an input waits")
    if options.quiet and options.json:
        raise ConfigError("--quiet", "does not go with --json")
    if options.key is not None and not options.prompt:
        raise ConfigError("--key", "is for a new prompt; what waits has its own")
    if options.withdraw and options.permissions is not None:
        raise ConfigError("--withdraw", "runs no turn, and --permissions is for one")


async def _run(options: argparse.Namespace, prompt: str | None, interrupts: Interrupts) -> int:
    from refold_server.call_config import resolve_model
    from refold_server.cli.chosen_session import latest_in, open_session, stand_in, wishes_of
    from refold_server.cli.command_context import named_folder, open_context, read_config
    from refold_server.cli.permission_rules import read_rules
    from refold_server.cli.prompted_turn import TurnWishes, oldest_waiting, run_prompt, withdraw_waiting
    from refold_server.cli.turn_output import TurnPrinter

    config = read_config(options, model=options.model)
    is_new = options.session is None and not options.continued
    if is_new:
        named_folder(options.cwd)
        resolve_model(config, config.model)  # told before a store is made
    rules = None if options.permissions_file is None else read_rules(options.permissions_file)
    printer = TurnPrinter(
        AsyncOutputStream(sys.stdout),
        AsyncOutputStream(sys.stderr, best_effort=True),
        as_json=options.json,
        quiet=options.quiet,
    )
    if is_new and (told := stand_in(options, config)) is not None and not (options.quiet or options.json):
        await printer.note(told)
    if options.record is not None:
        from refold_server.providers.provider_registry import record_replies

        record_replies(Path(options.record))
    async with open_context(config, create=is_new, turns=True) as context:
        if options.continued:
            options.session = latest_in(context, named_folder(options.cwd))
        if options.withdraw:
            name = context.session(str(options.session))
            return await withdraw_waiting(await context.sessions.open(name), printer)
        session = await open_session(context, wishes_of(options))
        given = oldest_waiting(session) if prompt is None else prompt
        wishes = TurnWishes(options.key, rules, options.fail_on_denied)
        return await run_prompt(session, given, printer, interrupts, wishes)
