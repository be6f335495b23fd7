"""Owns what `--help` says: what each command does, the defaults of this machine, and what each exit code means."""

from __future__ import annotations

import textwrap
from typing import Final

from refold_server.cli.exits import COMPLETED, FAILED, INTERNAL, INTERRUPTED, MEANINGS, UNWRITABLE, USAGE
from refold_server.cli.people import printable

WIDTH: Final = 78
"""Columns of the texts here."""

SUMMARIES: Final[dict[str, str]] = {
    "serve": "serve one editor or program over standard input and output (JSON-RPC, LSP framing)",
    "run": "run one turn and print the reply",
    "sessions": "list sessions, the latest active first",
    "log": "show a session's log",
    "rebuild": "print the exact body of a request, rebuilt from the log",
    "cache": "show what each request shares with the one before, and what broke it",
    "verify": "prove that logs are whole and that each request follows from them",
    "doctor": "look for what is wrong with store, configuration and providers",
    "fork": "begin a session with the events of another",
    "archive": "leave sessions out of lists, or bring them back",
    "delete": "delete sessions for good",
    "export": "write a session as JSON Lines",
    "import": "read a session that was exported",
    "store": "compact the store, count anew what lists show, or accept an old copy",
    "compact": "sum up a session's history, so that the model has room again",
    "demo": "run a turn with tools on the current folder, offline, and prove it",
    "prefix": "show what stands before a session's history, and who says it",
    "meter": "show how full the model's window was at each request",
    "config": "show the configuration in force, and where each value comes from",
    "schema": "print the protocol's methods and types, for programs in other languages",
    "completion": "print a script that completes refold's commands in a shell",
}
"""Every command with what it does, in one line."""


def _filled(*paragraphs: str) -> str:
    return "\n\n".join(textwrap.fill(" ".join(text.split()), WIDTH) for text in paragraphs)


PROGRAM: Final = _filled("Hosts sessions with language models for editors and scripts, and can prove what the model saw.")

DESCRIPTIONS: Final[dict[str, str]] = {
    "serve": _filled(
        """Serve one client over standard input and output: JSON-RPC 2.0 in LSP framing. For editors and programs; it waits
        for their first message. Standard output carries the protocol and nothing else."""
    ),
    "run": _filled(
        """Run one turn in the current folder and stream the reply to standard output, whose last line names the session.
        Thinking, tool calls and a bad end of the turn are told on standard error.""",
        """The first SIGINT (Ctrl-C), SIGTERM or SIGHUP interrupts the turn and waits until its end is in the log; a second one
        leaves at once, which costs nothing that was recorded. A reader of the output that leaves interrupts the turn too.""",
        """What was accepted and did not run, because its process ended first, waits in its session and never runs by itself:
        it is named when the session is gone on with, --pending runs the oldest of it, --withdraw takes all of it back.""",
    ),
    "sessions": _filled(
        """List the sessions that began in the current folder, the latest active first: title, last activity, turns, model,
        status and id. A narrow terminal shows fewer columns. A session that another process has open shows as running."""
    ),
    "log": _filled(
        """Show a session's log, also while another process writes it. Where a turn was cut off by a crash, transcript and
        surface show it as the next turn will find it; the events view shows what is recorded. Writes nothing.""",
    ),
    "rebuild": _filled(
        """Print the exact body of the request of a step, rebuilt from the log, without a line break behind it: piped into
        an HTTP client it is the request that was sent."""
    ),
    "cache": _filled(
        """Show for each request how many of its bytes it shares with the one before, and how many tokens the provider says
        it read from its cache. A request whose body does not begin with the one before is a break: below it stand the
        events that caused it and the first byte that differs. Where the bytes are kept and clearly fewer tokens are
        reported as cached than the provider had read, the provider has lost them; "as far as bytes tell" is said where
        its figures do not tell. Reads the log alone and asks no provider."""
    ),
    "verify": _filled(
        """Check that a log is whole (each event's digest follows from the one before), that its events make sense in their
        order, and that each request which it says was sent follows from the events before it, byte for byte. Logs that
        other processes write are checked as far as they are recorded. On a terminal, long logs show how far the check is."""
    ),
    "doctor": _filled(
        """Look at the store (format, sizes, who writes, who reads), the configuration in force, the providers, the disk and
        the versions, and say what is wrong and what to do about it. Keys are looked for and never shown. Changes nothing."""
    ),
    "fork": _filled(
        """Begin a session with the events of another, up to any of them, and print its id. Nothing is copied. A turn that is
        cut in the middle is closed when the fork is opened first; what waits in the parent does not wait in the fork. Of a
        session that another process writes, what is on disk can be forked."""
    ),
    "archive": _filled(
        """Leave sessions out of lists that do not ask for archived ones; nothing else changes. With --undo, bring them back."""
    ),
    "delete": _filled(
        """Delete sessions for good, after asking on the terminal. Forks of them keep what they inherited. A session that
        another process has open for writing is not deleted. Their bytes stay in the store's file until they are
        overwritten, or until `refold store compact`."""
    ),
    "export": _filled(
        """Write a session as JSON Lines: the first line is the record of the session, each other one an event, exactly as it is
        stored. Works while another process writes the session. A damaged log is written up to the damage."""
    ),
    "import": _filled(
        """Read a session from a file that `refold export` wrote, and print its id. It has the same events, byte for byte, and
        the same digests. A file that was changed or cut off is refused with the line that is wrong, and nothing is imported.
        What the session lets run without a question is told."""
    ),
    "store": _filled(
        """Take care of the store as a whole. `compact` writes its file anew without what is free, so that it shrinks and what
        was deleted is gone from it; it needs as much free space as the store holds, and nobody may have the store open.
        `rebuild` counts titles, totals and last activities anew from the logs."""
    ),
    "compact": _filled(
        """Ask the session's model (or the one that compaction.summary_model names) for a summary of the whole history, which
        stands in its place for the model from then on. Nothing is lost: people see the history as before, and the log keeps
        it. Where the summary cannot be had, or would not be shorter, nothing changes. A signal stops it and changes nothing."""
    ),
    "demo": _filled(
        """Run a turn with tools on the current folder with the embedded provider, which needs no network and no key; then
        rebuild and compare each of its requests in another process, and say where the log is."""
    ),
    "prefix": _filled(
        """Show what each request of a session begins with, before anything that was said in it: the project's instructions, the
        list of skills, an outline of the workspace, what plugins add. It is put together when a session is opened and stays
        as it is until it is opened again. What another process has in force is in `refold log SESSION --view header`."""
    ),
    "meter": _filled(
        """Show for each request how many tokens its prompt was expected to take just before it was sent, and of how large a
        window. "usage at SEQ": the provider counted an earlier request of the same model and header, whose reply is event
        SEQ, and only what came since is estimated. "estimate": all of it is, by the number of characters. Beside it stand the
        estimate of the whole request, the tokens that the provider reported afterwards, and how far the first figure was off.
        Windows and densities are those of the configuration now. Reads the log alone and asks no provider."""
    ),
    "config": _filled(
        """Check the configuration and show each setting with its value and where that comes from: built-in, the file, the
        environment or an option. The first fault is told with the key, what is wrong, and the line. Keys and what else may
        be a secret are never shown. Reaches no network, opens no store and loads no plugin."""
    ),
    "schema": _filled(
        """Print the methods of the native protocol with the types of their params and results: as one JSON object of `methods`
        and `types` in JSON Schema, or as TypeScript declarations, which have the types of events as well."""
    ),
    "completion": _filled(
        """Print a script for a shell that completes refold's commands, options and session ids. For bash:
        eval "$(refold completion bash)" in ~/.bashrc; for zsh the same in ~/.zshrc, behind compinit; for fish:
        refold completion fish > ~/.config/fish/completions/refold.fish"""
    ),
}
"""What each command does, in full."""

_READING: Final = {code: MEANINGS[code] for code in (COMPLETED, INTERNAL, USAGE, INTERRUPTED, UNWRITABLE)}
_PRINTING: Final = {code: MEANINGS[code] for code in (COMPLETED, INTERNAL, USAGE, INTERRUPTED)}

EXITS: Final[dict[str, dict[int, str]]] = {
    "serve": {
        COMPLETED: "ended by `shutdown` and `exit`",
        INTERNAL: "ended in any other way",
        USAGE: MEANINGS[USAGE],
        UNWRITABLE: MEANINGS[UNWRITABLE],
    },
    "run": MEANINGS,
    "sessions": _READING,
    "log": _READING,
    "rebuild": _READING | {INTERNAL: "the body differs from what was sent; or internal error, output that cannot be written"},
    "cache": _READING,
    "verify": _READING
    | {COMPLETED: "nothing differs", INTERNAL: "something differs, or a log cannot be read; or an internal error"},
    "doctor": _READING | {COMPLETED: "nothing is wrong", INTERNAL: "something is wrong; or an internal error"},
    "fork": _READING,
    "archive": _READING,
    "delete": _READING
    | {INTERRUPTED: f"whoever was asked did not say yes, and nothing was deleted; or {MEANINGS[INTERRUPTED]}"},
    "export": _READING | {INTERNAL: "the session is damaged, and was exported up to there; or internal error, or output lost"},
    "import": _READING | {INTERNAL: "the file is damaged or no export, and nothing was imported; or an internal error"},
    "store": _READING | {INTERNAL: "a session could not be counted; or an internal error"},
    "compact": MEANINGS | {FAILED: "the history could not be compacted, and is what it was"},
    "demo": MEANINGS,
    "prefix": _READING,
    "meter": _READING,
    "config": _PRINTING | {COMPLETED: "the configuration is valid"},
    "schema": _PRINTING,
    "completion": _PRINTING,
}
"""The exit codes of each command."""


def exits_text(command: str | None) -> str:
    """Give the exit codes of a command, or of all."""
    rows = MEANINGS if command is None else EXITS[command]
    return "exit codes:\n" + "".join(f"  {code}  {meaning}\n" for code, meaning in rows.items())


def defaults_text() -> str:
    """Give what holds on this machine where neither an option nor the environment says anything. Imports what finds it."""
    from refold_server.config_file import default_config_path, default_store_path

    config, store = printable(str(default_config_path())), printable(str(default_store_path()))
    return (
        "where neither option nor environment say anything:\n"
        f"  --store   store.path of the configuration, else {store}\n"
        f"  --config  {config}, if it is there\n"
    )
