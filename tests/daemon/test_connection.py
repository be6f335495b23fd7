"""The connection as a whole process over real pipes: exit codes, framing, stray output, clients that leave or never read.

Cases D-01 to D-05, with the daemon of tests/support/toy_daemon.py behind the real boot, transport and endpoint.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from refold_protocol.rpc.framing import encode_frame
from tests.support.daemons import SERVE, Place
from tests.support.processes import TOY, Process

BODY = '{"jsonrpc":"2.0","id":"d","method":"toy/echo","params":{"t":"é世🙂"}}'.encode()
SIZE = b"%d" % len(BODY)


def begun(process: Process, **params: Any) -> Process:
    process.initialize(**params)
    return process


@pytest.mark.parametrize(("shut_down", "expected"), [(True, 0), (False, 1)])
@pytest.mark.parametrize("by", ["exit", "end of input"])
def test_d04_the_exit_code_is_0_after_shutdown_and_1_without(by: str, shut_down: bool, expected: int) -> None:
    with Process() as process:
        begun(process)
        if shut_down:
            assert process.call("shutdown") is None
        if by == "exit":
            process.notify("exit")
        else:
            process.close_input()
        assert process.wait() == expected
        process.read_to_end()
        assert process.messages == []


def test_d04_exit_as_the_first_message_gives_1() -> None:
    with Process() as process:
        process.notify("exit")
        assert process.wait() == 1


def test_d04_a_request_before_initialize_is_refused_and_initialize_still_works() -> None:
    with Process() as process:
        assert process.call("toy/echo", {})["code"] == -32002
        assert "capabilities" in process.initialize()
        assert process.call("toy/echo", {"now": 1}) == {"now": 1}


def test_an_initialize_that_is_refused_by_the_daemon_may_be_tried_again() -> None:
    with Process() as process:
        assert process.call("initialize", {"processId": "x"})["code"] == -32602
        assert "capabilities" in process.initialize()


@pytest.mark.parametrize(
    "pieces",
    [
        [bytes([byte]) for byte in encode_frame(BODY)],
        [b"content-length:   " + SIZE + b"\r\n\r\n" + BODY],
        [b"Content-Type: application/vscode-jsonrpc; charset=utf8\r\nContent-Length: " + SIZE + b"\r\n\r\n" + BODY],
        [b"X-Unknown: 1\r\nContent-Length: " + SIZE + b"\r\n\r\n" + BODY],
        [b"\r\n" + encode_frame(BODY)],
    ],
    ids=["byte by byte", "lower case", "content type first", "unknown header", "empty line first"],
)
def test_d03_a_frame_is_answered_however_it_is_written(pieces: list[bytes]) -> None:
    with Process() as process:
        begun(process)
        for piece in pieces:
            process.write(piece)
        assert process.reply("d")["result"] == {"t": "é世🙂"}


def test_d03_two_frames_in_one_write_and_one_and_a_half_are_answered() -> None:
    with Process() as process:
        begun(process)
        frame = encode_frame(BODY)
        process.write(frame + frame.replace(b'"d"', b'"e"') + frame.replace(b'"d"', b'"f"')[:40])
        assert [process.reply(name)["id"] for name in "de"] == ["d", "e"]
        process.write(frame[40:].replace(b'"d"', b'"f"'))
        assert process.reply("f")["result"] == {"t": "é世🙂"}


def test_d03_a_body_of_20_mib_is_answered() -> None:
    with Process() as process:
        begun(process)
        text = "é" * (10 << 20)
        assert process.call("toy/echo", {"t": text}) == {"t": text}


@pytest.mark.parametrize("header", [b"Content-Length: -5", b"Content-Length: abc", b"X-None: at all"])
@pytest.mark.parametrize("initialized", [True, False])
def test_d03_a_broken_header_gives_one_error_and_an_orderly_end(header: bytes, initialized: bool) -> None:
    with Process() as process:
        if initialized:
            begun(process)
        process.write(header + b"\r\n\r\n" + BODY)
        process.read_to_end()
        assert [(message["id"], message["error"]["code"]) for message in process.messages] == [(None, -32700)]
        assert process.wait() == 1


def test_d02_what_writes_to_standard_output_never_reaches_the_frames() -> None:
    with Process() as process:
        begun(process)
        assert process.call("toy/stray") is None
        process.call("shutdown")
        process.notify("exit")
        assert process.wait() == 0
        process.read_to_end()
        assert process.messages == []
        for stray in (b"print", b"write", b"warning", b"child", b"original"):
            assert b"stray " + stray in process.errors


def test_d01_a_closed_input_ends_the_daemon_and_what_runs_is_answered() -> None:
    with Process() as process:
        waiting = process_with_a_wait(process)
        process.request("toy/release")
        process.close_input()
        assert process.wait() == 1
        assert process.reply(waiting)["result"] == "released"
        assert b"end: inputEnded" in process.errors


def test_d01_the_input_may_end_inside_a_frame() -> None:
    with Process() as process:
        begun(process)
        process.write(encode_frame(BODY)[:40])
        process.close_input()
        assert process.wait() == 1
        assert b"the input ended inside a frame" in process.errors


def test_d01_a_client_that_closes_both_reading_ends_ends_the_daemon() -> None:
    with Process() as process:
        begun(process)
        assert process.popen.stdout is not None
        assert process.popen.stderr is not None
        process.popen.stdout.close()
        process.popen.stderr.close()
        process.request("toy/bug")
        process.request("toy/stray")
        assert process.popen.wait() == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_d01_a_signal_ends_the_daemon_in_good_order(number: signal.Signals) -> None:
    with Process() as process:
        waiting = process_with_a_wait(process)
        process.popen.send_signal(number)
        assert process.reply(waiting)["error"]["code"] == -32800
        assert process.wait() == 1
        assert b"end: terminated" in process.errors


EDITOR = "import subprocess, sys; sys.exit(subprocess.Popen(sys.argv[1:]).wait())"


def test_d01_the_death_of_the_editor_is_seen_although_its_pipe_stays_open() -> None:
    with Process([sys.executable, "-c", EDITOR, *TOY]) as editor:
        begun(editor, processId=editor.popen.pid)
        editor.popen.kill()
        editor.error_line(b"end: parentGone")
        editor.read_to_end()


def test_a_process_that_is_no_ancestor_is_not_taken_for_the_editor() -> None:
    with Process(["cat"]) as stranger, Process() as process:
        begun(process, processId=stranger.popen.pid)
        stranger.popen.kill()
        stranger.popen.wait()
        assert process.call("toy/echo", {"still": "here"}) == {"still": "here"}


def process_with_a_wait(process: Process) -> int:
    begun(process)
    waiting = process.request("toy/wait")
    assert process.call("toy/seen")["began"] == ["wait"]
    return waiting


def peak_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def test_a_client_that_never_reads_costs_bounded_memory_is_heard_and_loses_nothing() -> None:
    """200 MB of replies are asked for and not read; a cancel is served meanwhile; then every reply is there."""
    count, size = 20_000, 10_000
    with Process() as process:
        waiting = process_with_a_wait(process)
        before = peak_bytes(process.popen.pid)
        large = {"jsonrpc": "2.0", "method": "toy/large", "params": {"text": "x", "times": size}}
        process.put(*(large | {"id": f"n{number}"} for number in range(count)))
        process.notify("$/cancelRequest", {"id": waiting})
        process.error_line(b"cancelled")
        for number in range(count):
            assert len(process.reply(f"n{number}")["result"]) == size
        assert process.reply(waiting)["error"]["code"] == -32800
        assert process.messages == []
        assert peak_bytes(process.popen.pid) - before < 80_000_000


def test_d01_a_client_that_never_reads_can_still_end_the_connection() -> None:
    with Process() as process:
        begun(process)
        large = {"jsonrpc": "2.0", "method": "toy/large", "params": {"text": "x", "times": 1_000_000}}
        process.put(*(large | {"id": f"n{number}"} for number in range(100)))
        process.close_input()
        assert process.wait() == 1


@pytest.mark.parametrize("closed", ["<&-", ">&-"])
def test_without_standard_input_or_output_there_is_one_sentence(closed: str) -> None:
    command = f'exec "$0" -m tests.support.toy_daemon {closed}'
    done = subprocess.run(["sh", "-c", command, sys.executable], capture_output=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(b"refold serve needs a standard input and a standard output")


def test_without_standard_error_it_serves_all_the_same() -> None:
    with Process(["sh", "-c", 'exec "$0" -m tests.support.toy_daemon 2>&-', sys.executable]) as process:
        begun(process)
        assert process.call("toy/bug")["code"] == -32603
        assert process.call("toy/stray") is None
        process.close_input()
        assert process.popen.wait() == 1


def test_files_serve_as_input_and_output(tmp_path: Path) -> None:
    messages = b"".join(
        encode_frame(body)
        for body in (
            b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}',
            BODY,
            b'{"jsonrpc":"2.0","id":2,"method":"shutdown"}',
            b'{"jsonrpc":"2.0","method":"exit"}',
        )
    )
    (tmp_path / "in").write_bytes(messages)
    with (tmp_path / "in").open("rb") as given, (tmp_path / "out").open("wb") as taken:
        done = subprocess.run(TOY, stdin=given, stdout=taken, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 0
    assert (tmp_path / "out").read_bytes().count(b'"jsonrpc":"2.0"') == 3


def test_children_inherit_neither_end_of_the_connection() -> None:
    """A child that lives on must not keep the client's pipes open: nothing but the three standard descriptors is passed."""
    with Process() as process:
        begun(process)
        inherited = process.call("toy/child_descriptors")
        assert [number for number, _ in inherited][:3] == ["0", "1", "2"]
        pipes = {os.readlink(f"/proc/self/fd/{pipe.fileno()}") for pipe in (process.popen.stdin, process.popen.stdout) if pipe}
        assert not pipes & {target for _, target in inherited}


def test_a_client_that_never_reads_standard_error_is_served_however_much_is_logged(place: Place) -> None:
    place.configure('[log]\nlevel = "info"\n')
    with Process(SERVE, place.daemon_env) as process:
        process.initialize()
        for _ in range(5_000):
            process.notify("acme/unheard")
        assert "version" in process.call("daemon/health")
        assert process.call("shutdown") is None
        process.notify("exit")
        process.read_to_end()
        assert process.popen.wait() == 0
