"""A command that prints a key: run without a shell, in a process group of its own, and ended with all its children.

The command answers as soon as it ends itself: a child that it leaves behind and that holds its output open is not waited for.
What it prints is bounded. Its standard error is thrown away: it may repeat the key.
"""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from typing import Final

import anyio
import anyio.abc

COMMAND_SECONDS: Final = 30.0
"""How long a command may take to print a key."""

OUTPUT_BYTES: Final = 64 * 1024
"""How much of its output is read: a key is on the first line."""

LEFT_SECONDS: Final = 0.1
"""How long what a command wrote before it ended is read, where a child of it keeps the output open."""


class KeyCommandError(Exception):
    """The command gave no key; the message says why, in the words "PROGRAM …"."""


async def printed_key(command: tuple[str, ...]) -> str:
    """Run a command and give its first line. Raises KeyCommandError. Whatever ends the wait ends its process group."""
    program = command[0]
    try:
        process = await anyio.open_process(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    except (OSError, ValueError) as error:  # the program is not there or may not run
        reason = error.strerror if isinstance(error, OSError) else "its name or an argument holds a NUL"
        raise KeyCommandError(f"{program} cannot be run: {reason}") from None
    try:
        with anyio.fail_after(COMMAND_SECONDS):
            output = await _output(process)
    except TimeoutError:
        raise KeyCommandError(f"{program} did not print the key within {COMMAND_SECONDS:g} s") from None
    finally:
        with suppress(ProcessLookupError, PermissionError):  # all of its group have ended
            os.killpg(process.pid, signal.SIGKILL)
        with anyio.CancelScope(shield=True):
            await process.wait()
            await process.aclose()
    if process.returncode != 0:
        raise KeyCommandError(f"{program} ended with exit code {process.returncode}")
    key = output.decode("utf-8", "replace").split("\n", 1)[0].strip()
    if not key:
        raise KeyCommandError(f"{program} printed nothing on its first line")
    return key


async def _output(process: anyio.abc.Process) -> bytes:
    """Read until the command ends or closes its output, and wait for its end."""
    pieces: list[bytes] = []
    stream = process.stdout
    assert stream is not None

    async def read() -> None:
        room = OUTPUT_BYTES
        with suppress(anyio.EndOfStream):
            while True:  # what is over the bound is read and thrown away: a full pipe would stop the command
                piece = await stream.receive()
                pieces.append(piece[:room])
                room -= len(pieces[-1])

    async with anyio.create_task_group() as tasks:

        async def end_with_process() -> None:
            await process.wait()
            await anyio.sleep(LEFT_SECONDS)
            tasks.cancel_scope.cancel()

        tasks.start_soon(end_with_process)
        await read()
        await process.wait()
        tasks.cancel_scope.cancel()
    return b"".join(pieces)
