"""The command `refold import`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from refold_protocol.errors import ConfigError, DigestMismatchError, SessionAlreadyExistsError, SessionCorruptionError
from refold_server.cli.command_line import add_folder, add_json, add_store
from refold_server.cli.exit_codes import COMPLETED, INTERNAL, STORE_CODES, report_error
from refold_server.cli.formatting import one_line
from refold_server.cli.terminal import OutputStream, show_progress, standard_error, standard_output

if TYPE_CHECKING:
    from refold_server.sessions.session_settings import StandingPermissions

SUMMARY = "read a session that was exported"
DESCRIPTION = """Read a session from a file that `refold export` wrote, and print its id. It has the same events, byte for byte,
and the same digests. A file that was changed or cut off is refused with the line that is wrong, and nothing is imported.
What the session lets run without a question is told. It lives in the folder that the file names, or in the current one where
there is no such folder here."""
EXIT_CODES = STORE_CODES | {INTERNAL: "the file is damaged or no export, and nothing was imported; or an internal error"}

SHOWN_CHARACTERS: Final = 200
"""How much is shown of what a file says."""

BLOCK_BYTES: Final = 256 * 1024
"""What is read of the file at a time."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("file", metavar="FILE", help="an export; - reads standard input")
    parser.add_argument(
        "--new-id", action="store_true", help="give the session an id of its own, made now (default: the file's)"
    )
    add_folder(parser, "the session's folder (default: the file's, or the current one where there is none such)")
    add_json(parser)
    add_store(parser)


def run(options: argparse.Namespace) -> int:
    """Import a session and print its id. A signal takes back what was read of a file. It may come while a pipe has nothing to
    read yet, which no event loop can wait for here: then what is on disk stays, unseen, until the store is compacted."""
    from refold_server.cli.command_context import Interrupts, run_until_signal

    if not os.path.isfile(options.file):  # noqa: PTH113 - a name may be any text
        return run_until_signal(partial(_import, options))
    interrupts = Interrupts()
    with interrupts.installed():
        return interrupts.run(partial(_import, options))


async def _import(options: argparse.Namespace) -> int:
    from refold_server.cli.command_context import open_context, read_config, standing_folder
    from refold_server.clock import epoch_ms, new_session_id
    from refold_server.sessions.session_settings import standing_permissions
    from refold_storage.interface import no_progress
    from refold_storage.session_file import Incoming

    out, err = standard_output(), standard_error()
    config = read_config(options)
    with _open_source(options.file) as file:
        try:
            incoming = Incoming(_blocks(file))
            folder = standing_folder(incoming.record.cwd, options.cwd)
            renamed = (new_session_id(), epoch_ms()) if options.new_id else None
            async with open_context(config, create=True, plugins=False) as context:
                with show_progress(err, incoming.record.tail + 1) as progress:
                    record = await incoming.land(context.store, renamed=renamed, cwd=folder, progress=progress or no_progress)
                if not options.json:
                    out.line(record.id)
                    out.flush()
                found = await standing_permissions(context.store, record.id)
                if options.json:
                    made = {"session": record.id, "cwd": record.cwd, "events": record.tail + 1}
                    out.put_json(made | {"permissions": found.mode, "grants": found.tools})
                    out.flush()
                _warn(err, record.cwd, found)
        except SessionAlreadyExistsError as error:
            raise SessionAlreadyExistsError(f"{error.message}; --new-id imports it under another one") from None
        except (SessionCorruptionError, DigestMismatchError) as error:  # the file is what is wrong, and nothing was done
            report_error(error)
            return INTERNAL
    return COMPLETED


def _warn(err: OutputStream, folder: str, found: StandingPermissions) -> None:
    """Say what runs without a question: who wrote the file allowed it, and may not be who reads it."""
    everything = found.mode == "allow"
    if everything or found.tools:
        what = "every tool" if everything else one_line(", ".join(found.tools), SHOWN_CHARACTERS)
        err.line(
            f"refold: note: as the file says, {what} may run in this session without a question, in "
            f"{one_line(folder, SHOWN_CHARACTERS)}; `refold permissions ID --revoke-all` takes that back, "
            "`refold run --session ID --permissions ask PROMPT` a mode that allows all"
        )


@contextmanager
def _open_source(name: str) -> Generator[BinaryIO]:
    """Give the file, or standard input for `-`. Raises ConfigError for one that cannot be read."""
    if name == "-":
        yield sys.stdin.buffer
        return
    try:
        with Path(name).open("rb") as file:
            yield file
    except OSError as error:
        raise ConfigError("FILE", f"{name} cannot be read: {error.strerror or error}") from error


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    while block := file.read(BLOCK_BYTES):
        yield block
