"""The process in which regular expressions of models run: one that can be killed.

`re` holds the interpreter's lock while it matches, and a pattern like `(a+)+$` can take for ever on thirty characters: in a
thread of the daemon nothing could stop it, and nothing else would run meanwhile. So this file is run as a program, by its
path, without site packages: it imports the standard library only and nothing of refold.

It reads frames from standard input and answers each on standard output. Frame: length, u32 big-endian, then that many
bytes. The first frame is the pattern (UTF-8), answered by an empty frame or by what is wrong with it. Each further frame
is a limit, u32 big-endian, and a file's bytes, answered by a JSON list of at most `limit` rows `[line, column]`: the first
match of each line that has one, lines from 1, columns in characters from 0. The end of input ends the process. A frame
that takes longer than the seconds named as first argument ends it by the system's alarm, whatever became of the parent.
"""

from __future__ import annotations

import json
import re
import signal
import struct
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import BinaryIO

LENGTH = struct.Struct(">I")


def main(source: BinaryIO, sink: BinaryIO, seconds: int) -> None:
    """Serve under the system's alarm, which ends the process without any Python code having to be reached."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
    serve(source, sink, lambda working: signal.alarm(seconds if working else 0))


def serve(source: BinaryIO, sink: BinaryIO, arm: Callable[[bool], object]) -> None:
    """Answer frames until the input ends. `arm` is called with True before work on a frame, with False after it."""
    frames = read_frames(source)
    first = next(frames, b"")
    arm(True)
    pattern, fault = compile_pattern(first.decode())
    arm(False)
    write_frame(sink, fault.encode("utf-8", "replace"))
    if pattern is None:
        return
    for frame in frames:
        arm(True)
        (limit,) = LENGTH.unpack_from(frame)
        rows = find_rows(pattern, frame[LENGTH.size :], limit)
        arm(False)
        write_frame(sink, json.dumps(rows).encode())


def compile_pattern(text: str) -> tuple[re.Pattern[str] | None, str]:
    """Give the pattern and an empty text, or None and what is wrong with it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return re.compile(text), ""
    except (re.error, RecursionError, OverflowError, ValueError) as error:
        return None, str(error) or type(error).__name__


def find_rows(pattern: re.Pattern[str], data: bytes, limit: int) -> list[tuple[int, int]]:
    """Give line and column of the first match in each line that has one, `limit` rows at most."""
    rows: list[tuple[int, int]] = []
    for number, line in enumerate(data.decode("utf-8", "replace").split("\n"), 1):
        if len(rows) >= limit:
            break
        found = pattern.search(line.removesuffix("\r"))
        if found is not None:
            rows.append((number, found.start()))
    return rows


def read_frames(source: BinaryIO) -> Iterator[bytes]:
    """Give the payloads of frames until the input ends; a frame that was cut is not given."""
    while len(head := source.read(LENGTH.size)) == LENGTH.size:
        (size,) = LENGTH.unpack(head)
        payload = source.read(size)
        if len(payload) < size:
            return
        yield payload


def write_frame(sink: BinaryIO, payload: bytes) -> None:
    """Write one frame and flush it."""
    sink.write(LENGTH.pack(len(payload)) + payload)
    sink.flush()


if __name__ == "__main__":
    main(sys.stdin.buffer, sys.stdout.buffer, int(sys.argv[1]))
