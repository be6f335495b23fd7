"""Reading what `strace` wrote of a daemon: which thread made which call, what it waited for, and the store's commits.

Calls are placed by the lines at which they began and ended: strace sees a call end before it sees what another thread does
because of that, so an order of lines is an order in time.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

HOW_TO_GET_STRACE = (
    "strace is not here, or may not trace; on Debian: apt-get install strace, in a container: --cap-add SYS_PTRACE"
)

WATCHED = "fdatasync,fsync,msync,sync_file_range,pwrite64,pwritev,write,writev,sendto,sendmsg,read,recvfrom,openat"


class Call(Struct, frozen=True):
    """A system call: its thread, its name, its arguments and result as strace writes them, and the lines of the trace at
    which it began and ended."""

    thread: int
    name: str
    text: str
    began: int
    ended: int


class Commit(Struct, frozen=True):
    """A commit of the store: from the first write of a page to the end of the synchronous write that makes them count."""

    thread: int
    began: int
    ended: int


def can_trace() -> bool:
    """Tell whether there is an strace that works here."""
    if shutil.which("strace") is None:
        return False
    return subprocess.run(["strace", "-qq", "-o", "/dev/null", "true"], capture_output=True, check=False).returncode == 0


def traced(command: Sequence[str], trace: Path) -> list[str]:
    """Give the command that runs `command` as the same process, watched from outside, its calls written to `trace`."""
    return ["strace", "-D", "-f", "-yy", "-s", "100000", "-e", f"trace={WATCHED}", "-o", str(trace), *command]


def read_calls(trace: str) -> list[Call]:
    """Read a trace: its calls in the order in which they began. One that never ended is left out."""
    calls: list[Call] = []
    unfinished: dict[int, tuple[str, str, int]] = {}
    for number, line in enumerate(trace.split("\n")):
        if begun := _BEGUN.match(line):
            thread, name, text = int(begun[1]), begun[2], begun[3]
            if text.endswith(_UNFINISHED):
                unfinished[thread] = name, text.removesuffix(_UNFINISHED), number
            else:
                calls.append(Call(thread, name, text, number, number))
        elif (resumed := _RESUMED.match(line)) and int(resumed[1]) in unfinished:
            name, text, began = unfinished.pop(int(resumed[1]))
            calls.append(Call(int(resumed[1]), name, text + resumed[2], began, number))
    return sorted(calls, key=lambda call: call.began)


def syncs(calls: Sequence[Call]) -> list[Call]:
    """Give the calls that wait for a disk: syncs, and writes to files that were opened as synchronous."""
    synchronous: set[str] = set()
    waiting: list[Call] = []
    for call in calls:
        if call.name == "openat":
            opened = call.text.rpartition(" = ")[2]
            (synchronous.add if "O_DSYNC" in call.text or "O_SYNC" in call.text else synchronous.discard)(opened)
        elif call.name in _SYNCS or (call.name in _WRITES and _descriptor(call) in synchronous):
            waiting.append(call)
    return waiting


def commits(calls: Sequence[Call]) -> list[Commit]:
    """Give the commits of the store, in their order: pages are written to the data file, it is synced, and one page more is
    written synchronously, all by the same thread."""
    found: list[Commit] = []
    began: dict[int, int] = {}
    synced: set[int] = set()
    waiting = syncs(calls)
    for call in calls:
        if call.name not in _SYNCS | _WRITES or "data.mdb>" not in _descriptor(call):
            continue
        first = began.setdefault(call.thread, call.began)
        if call.name in _SYNCS:
            synced.add(call.thread)
        elif call.thread in synced and call in waiting:
            found.append(Commit(call.thread, first, call.ended))
            synced.remove(call.thread)
            del began[call.thread]
    return found


def _descriptor(call: Call) -> str:
    return call.text.partition(",")[0].partition(")")[0]


_BEGUN = re.compile(r"^(\d+) +(\w+)\((.*)$")
_RESUMED = re.compile(r"^(\d+) +<\.\.\. \w+ resumed>(.*)$")
_UNFINISHED = " <unfinished ...>"
_SYNCS = frozenset({"fdatasync", "fsync", "msync", "sync_file_range"})
_WRITES = frozenset({"pwrite64", "pwritev", "write", "writev"})
