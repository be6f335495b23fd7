"""The boot answers `initialize` before anything heavy is loaded, and leaves everything else to the daemon untouched."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

from refold_protocol.rpc.connection_state import Stage
from refold_protocol.rpc.envelope import Response, decode_message
from refold_protocol.rpc.framing import Broken, Frame, FrameReader, TooLarge, encode_frame
from refold_server.boot import answer_first
from refold_server.rpc.descriptors import Descriptors, Handover
from tests.support.processes import Process

INITIALIZE = b'{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"processId":5,"rootUri":"file:///w"}}'
OTHER = b'{"jsonrpc":"2.0","id":1,"method":"session/open","params":{}}'


class Pipes:
    """The client's ends of a connection that the boot reads."""

    def __init__(self) -> None:
        theirs_in, self.writing = os.pipe()
        self.reading, theirs_out = os.pipe()
        self.theirs = Descriptors(theirs_in, theirs_out)

    def boot(self, *pieces: bytes, end: bool = False) -> Handover | None:
        """Write the pieces (they fit into a pipe) and let the boot run."""
        for piece in pieces:
            os.write(self.writing, piece)
        if end:
            os.close(self.writing)
            self.writing = -1
        return answer_first(self.theirs, ("--store", "x"))

    def answer(self) -> bytes:
        """Give what was written back."""
        os.close(self.theirs.writing)
        return os.read(self.reading, 65_536)


@pytest.fixture
def pipes() -> Iterator[Pipes]:
    made = Pipes()
    yield made
    for descriptor in (made.theirs.reading, made.theirs.writing, made.reading, made.writing):
        try:
            os.close(descriptor)
        except OSError:
            assert descriptor in (-1, made.theirs.writing)


def test_nothing_heavy_is_loaded_when_initialize_is_answered() -> None:
    program = "import sys; from refold_server import boot; sys.exit(boot.serve((), 'tests.support.module_list:serve'))"
    with Process([sys.executable, "-c", program]) as process:
        assert "capabilities" in process.initialize()
        assert process.wait() == 0
        assert process.errors == b"answered: []\n"


def test_a_good_initialize_is_answered_and_what_follows_is_handed_over(pipes: Pipes) -> None:
    handover = pipes.boot(encode_frame(INITIALIZE) + encode_frame(OTHER) + encode_frame(OTHER)[:30])
    assert handover is not None
    assert handover.pending_writes == (Frame(OTHER),)
    assert handover.frames.feed(encode_frame(OTHER)[30:]) == [Frame(OTHER)]
    assert handover.lifecycle.stage is Stage.RUNNING
    assert handover.initialize is not None
    assert handover.initialize.process_id == 5
    assert handover.raw_params is not None
    assert b"rootUri" in bytes(handover.raw_params)
    assert (handover.arguments, handover.ended) == (("--store", "x"), False)
    (frame,) = FrameReader().feed(pipes.answer())
    assert isinstance(frame, Frame)
    reply = decode_message(frame.body)
    assert isinstance(reply, Response)
    assert (reply.id, reply.error) == ("i", None)


@pytest.mark.parametrize(
    ("first", "event"),
    [
        (encode_frame(OTHER), Frame(OTHER)),
        (encode_frame(b"[]"), Frame(b"[]")),
        (encode_frame(INITIALIZE.replace(b'"id":"i",', b"")), Frame(INITIALIZE.replace(b'"id":"i",', b""))),
        (encode_frame(INITIALIZE.replace(b"5", b'"5"')), Frame(INITIALIZE.replace(b"5", b'"5"'))),
        (b"Content-Length: x\r\n\r\n", Broken("Content-Length: x is not a length")),
        (b"Content-Length: 99999999\r\n\r\n" + b"x" * 4096, TooLarge(99_999_999, b"x" * 4096)),
    ],
)
def test_any_other_beginning_is_left_to_the_daemon(pipes: Pipes, first: bytes, event: object) -> None:
    handover = pipes.boot(first, encode_frame(INITIALIZE))
    assert handover is not None
    assert handover.pending_writes[0] == event
    assert (handover.initialize, handover.lifecycle.stage) == (None, Stage.FRESH)
    assert pipes.answer() == b""


def test_the_end_right_after_initialize_is_handed_over_by_the_stream_itself(pipes: Pipes) -> None:
    handover = pipes.boot(encode_frame(INITIALIZE), end=True)
    assert handover is not None
    assert os.read(pipes.theirs.reading, 10) == b""


@pytest.mark.parametrize("beginning", [b"", b"Content-Length: 10\r\n\r\n{"])
def test_d01_a_client_that_goes_before_its_first_message_needs_no_daemon(pipes: Pipes, beginning: bytes) -> None:
    assert pipes.boot(beginning, end=True) is None


def test_a_client_that_does_not_take_the_answer_needs_no_daemon(pipes: Pipes) -> None:
    os.close(pipes.reading)
    handover = pipes.boot(encode_frame(INITIALIZE))
    pipes.reading = -1
    assert handover is None
