"""What a session learns of windows: from servers that tell, and from counts that cannot be."""

from __future__ import annotations

import pytest

from refold_protocol.session.events import ModelWindow
from refold_protocol.session.messages import Usage
from refold_protocol.session.model_windows import LearnedWindow, window_of
from refold_protocol.session.token_estimate import MeterProfile
from tests.support.logs import Log, spoken
from tests.support.metering import Metering

BIG = "word and another word, line after line\n" * 1_200
CHAIN = MeterProfile("engine/chain", 32_768)
MODEL = CHAIN.model


def learned(*turns: tuple[str, int]) -> LearnedWindow:
    """Give what is learned from turns of a prompt and the count that the server gave of its request."""
    log = Log()
    for prompt, tokens in turns:
        ask(log, prompt, tokens)
    return window_of(Metering(CHAIN, log.events).state.windows, MODEL)


def ask(log: Log, prompt: str, tokens: int) -> int:
    """Write a turn of one step whose request the server counted as `tokens`; give the seq of its reply."""
    log.turn(prompt)
    log.step()
    log.stream(*spoken("Because."))
    seq = log.reply("Because.", usage=Usage(tokens, 5)).seq
    log.end_step()
    log.end_turn()
    return seq


@pytest.mark.parametrize(
    "turns",
    [
        [("hi", 300), (BIG, 2_051)],  # half of a window of 4,096, and 3
        [("hi", 300), ("more of it", 3_900), (BIG, 2_051)],
        [(BIG, 1_900)],
        [("a" * 12_000, 3_900), ("b" * 2_400, 2_051)],  # fewer than before, and more than was added
    ],
)
def test_a_count_that_cannot_be_shows_the_window(turns: list[tuple[str, int]]) -> None:
    found = learned(*turns)
    assert (found.read, found.shown) == (turns[-1][1], 2 * turns[-1][1])


@pytest.mark.parametrize(
    "turns",
    [
        [("hi", 300), (BIG, 12_500)],
        [("hi", 300), ("x" * 6_000, 600)],  # long words
        [("hi", 300), (" " * 6_000, 560)],  # white space
        [("hi", 300), ("日本語のテキスト" * 500, 4_500)],
        [("hi", 300), ("y", 12)],  # a server that counts what it had not cached
        [("a" * 12_000, 3_000), ("b" * 3_300, 1_001)],  # the same, with a longer prompt
        [("hi", 7), (BIG, 7)],  # a server that counts nothing
    ],
)
def test_an_honest_server_is_not_accused(turns: list[tuple[str, int]]) -> None:
    assert learned(*turns) == LearnedWindow(MODEL)


def test_a_count_that_cannot_be_is_no_anchor() -> None:
    log = Log()
    ask(log, "hi", 300)
    ask(log, BIG, 2_051)
    pressure = Metering(CHAIN, log.events).measure()
    assert pressure.anchor is not None
    assert pressure.anchor.tokens == 305
    assert pressure.tokens > 10_000


def test_what_a_server_tells_is_taken_and_a_larger_count_disproves_what_was_shown() -> None:
    log = Log()
    log.add(ModelWindow("engine", "chain", 4_096, "models"))
    ask(log, "hi", 300)
    reply = ask(log, BIG, 2_051)
    assert window_of(Metering(CHAIN, log.events).state.windows, MODEL) == LearnedWindow(MODEL, 4_096, 4_102, 2_051, reply)
    ask(log, "more", 12_600)
    assert window_of(Metering(CHAIN, log.events).state.windows, MODEL).shown is None
    log.add(ModelWindow("engine", "chain", 32_768, "models"))
    assert window_of(Metering(CHAIN, log.events).state.windows, MODEL).told == 32_768
