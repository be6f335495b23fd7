"""Process's standard descriptors: it moves the real ones away, so that frames and nothing else reach the client.

Afterwards a stray `print`, a library's warning or a child's output goes to standard error, and whoever reads standard
input (a child) finds it empty. Imported before the answer to `initialize`: nothing here may bring asyncio along.

What the boot hands to the daemon: descriptors, what was read and not yet treated, and how far life has come.

Imported before the answer to `initialize`: nothing here may bring asyncio along.

Look at the process that `initialize` names: is it there, and is it ours to watch?

Imported before the answer to `initialize`: nothing here may bring asyncio along, and the look is taken before that answer
leaves, because an editor may die right after it.
"""

from __future__ import annotations

import fcntl
import os
import sys
from pathlib import Path
from typing import Final

from msgspec import Raw, Struct

from refold_protocol.rpc.connection_state import Lifecycle
from refold_protocol.rpc.framing import FrameEvent, FrameReader
from refold_protocol.rpc.initialize import InitializeParams

READ_BYTES: Final = 65_536
"""How much is read at once: what a pipe holds."""


class Descriptors(Struct, frozen=True, gc=False):
    """The private ends of the connection. Neither is inherited by children."""

    reading: int
    writing: int


def take_stdio() -> Descriptors:
    """Move standard input and output to private descriptors; put /dev/null and standard error in their places.

    Call it once, before anything is read or written. Raises OSError where the process was started without them.
    """
    reading, writing = _moved(0), _moved(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    try:
        os.dup2(2, 1)
    except OSError:  # started without standard error: what would go there is lost, but not into the frames
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
    os.close(nothing)
    sys.stdout = sys.stderr
    return Descriptors(reading, writing)


def _moved(descriptor: int) -> int:
    """Give a private copy above the three standard numbers, one of which may be free: a plain `dup` would take that."""
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)


def read_some(descriptor: int, size: int) -> bytes:
    """Wait for bytes and give at most `size` of them; `b""` at the end of the stream, also at a broken one."""
    while True:
        try:
            return os.read(descriptor, size)
        except BlockingIOError:  # the client gave us a non-blocking descriptor
            os.set_blocking(descriptor, True)
        except OSError:  # reset, or a terminal that is gone: no more will come
            return b""


def write_all(descriptor: int, data: bytes) -> bool:
    """Write all of `data`, waiting as long as it takes. False when nobody can read it any more."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            os.set_blocking(descriptor, True)
        except OSError:  # the reading end is closed, or a disk is full: the client cannot follow any further
            return False
    return True


def make_stderr_harmless() -> None:
    """Write out what standard error still holds; where nobody reads it, throw it away.

    Without this the interpreter's own flush at its end would turn the exit code into 120.
    """
    if sys.stderr is None:  # pyright: ignore[reportUnnecessaryComparison]  # so it is where descriptor 2 was closed
        return
    try:
        sys.stderr.flush()
    except (OSError, ValueError):  # its reader is gone, or it was closed
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 2)
        os.close(nothing)


class Handover(Struct, frozen=True, gc=False):
    """A connection on its way from the boot to the daemon.

    `initialize` holds the params where the boot has answered, `raw_params` the same as they came (the language-server
    wing reads more of them). `frames` is the reader in the middle of the stream, `pending_writes` what it gave and nobody
    treated yet, `ended` says that the stream is over already. `editor` is a descriptor of the process that `initialize`
    named, where that is ours to watch. `arguments` are those of the command line.
    """

    descriptors: Descriptors
    arguments: tuple[str, ...]
    frames: FrameReader
    lifecycle: Lifecycle
    pending_writes: tuple[FrameEvent, ...] = ()
    ended: bool = False
    initialize: InitializeParams | None = None
    raw_params: Raw | None = None
    editor: int | None = None


def open_ancestor(pid: int | None) -> int | None:
    """Give a descriptor that becomes readable when the process `pid` ends. Not inherited; the caller closes it.

    None unless the process exists and is our parent or an ancestor of ours: in a container an editor's number may be
    anybody's. None also where the kernel has no such descriptors (macOS): there the end of standard input is the only
    sign. The first process of all needs no watching: nobody outlives it.
    """
    if pid is None or pid <= 1 or not hasattr(os, "pidfd_open"):
        return None
    try:
        descriptor = os.pidfd_open(pid)
    except (OSError, OverflowError):  # no such process, or no such number
        return None
    if _is_ancestor(pid):  # looked at after the descriptor was got, so that it is not a later process of that number
        return descriptor
    os.close(descriptor)
    return None


def _is_ancestor(pid: int) -> bool:
    ancestor = os.getppid()
    while ancestor > 1 and ancestor != pid:
        ancestor = _parent_of(ancestor)
    return ancestor == pid


def _parent_of(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:  # it ended meanwhile, or there is no /proc: only our own parent is known
        return 0
    return int(status.rpartition(")")[2].split()[1])
