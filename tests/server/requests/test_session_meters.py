"""The meters of a process: stable handles, the configuration's figures, and answers that depend on the log alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold_protocol.session.events import AssistantChunk, Draft, Event
from refold_protocol.session.messages import Message, Usage, text_content
from refold_protocol.session.session_state import fold, fold_all
from refold_protocol.session.token_estimate import Density, TokenMeterError
from refold_server.config import Config, ModelConfig, StoreConfig
from refold_server.requests.session_log import SessionLog
from refold_server.requests.session_meters import Meters
from tests.support.log_strategies import logs
from tests.support.logs import HEADER, Log, spoken
from tests.support.memory_store import MemoryStore
from tests.support.metering import Metering
from tests.support.stores import NEW

CONFIG = Config(
    model="engine/chain",
    store=StoreConfig(Path("/nowhere")),
    providers=(),
    models=(
        ModelConfig("engine/chain", context_window=8_192, chars_per_token=2.0),
        ModelConfig("engine/random", context_window=4_096, density="script"),
        ModelConfig("deepseek/deepseek-v4-pro", chars_per_token=3.0),
        ModelConfig("engine/windowless", max_output=100),
        ModelConfig("engine/wrong", context_window=0),
    ),
)


class OpenLog:
    """A log that is open: its state, a handle on it, and which events were read once more."""

    def __init__(self, log: Log, end: int | None = None) -> None:
        self._events = log.events if end is None else log.events[:end]
        self.folds = fold_all(self._events)
        self.again: list[int] = []

    @property
    def handle(self) -> OpenLog:
        """What gives its events."""
        return self

    def read(self, first: int, last: int | None = None) -> Iterator[Event]:
        """Iterate over events."""
        for event in self._events[first : None if last is None else last + 1]:
            self.again.append(event.seq)
            yield event

    def grow(self, event: Event) -> None:
        """Append an event."""
        self._events = [*self._events, event]
        self.folds = fold(self.folds, event)


def conversation() -> Log:
    """A log of two turns, counted by the provider."""
    log = Log()
    for number in (100, 200):
        log.turn()
        log.step()
        log.stream(*spoken("Because."))
        log.reply("Because.", usage=Usage(number, 10))
        log.end_step()
        log.end_turn()
    return log


def test_a_model_has_one_meter_with_the_configured_figures() -> None:
    meters = Meters(CONFIG)
    chain = meters.meter_for("engine/chain")
    assert chain is meters.meter_for("engine/chain")
    assert (chain.model, chain.profile.window, chain.profile.density) == ("engine/chain", 8_192, Density(2.0))
    assert meters.meter_for("engine/random").profile.density == Density(4.0, "script")
    assert meters.meter_for("deepseek/deepseek-v4-pro").profile.window == 128_000
    assert meters.meter_for("deepseek/deepseek-v4-pro").profile.density == Density(3.0)
    assert meters.meter_for("other/deepseek-v4-flash").profile.density == Density(4.0)


def test_a_meter_prices_what_belongs_to_no_session() -> None:
    meter = Meters(CONFIG).meter_for("engine/chain")
    assert meter.estimate_message(Message("user", text_content("abcd"))) == 2 + 4 + 4
    assert meter.estimate_header(HEADER) > meter.estimate_message(Message("user", ()))


@pytest.mark.parametrize(
    ("model", "code"),
    [
        ("engine/windowless", "TOKEN_METER_MODEL_UNCONFIGURED"),
        ("engine/never-heard-of", "TOKEN_METER_MODEL_UNCONFIGURED"),
        ("engine/wrong", "TOKEN_METER_INVALID_CONFIG"),
    ],
)
def test_a_model_that_cannot_be_metered_is_refused_each_time(model: str, code: str) -> None:
    meters = Meters(CONFIG)
    for _ in range(2):
        with pytest.raises(TokenMeterError) as caught:
            meters.meter_for(model)
        assert (caught.value.code, caught.value.model) == (code, model)


def test_the_chunks_of_a_counted_reply_are_read_once() -> None:
    log = conversation()
    opened = OpenLog(log, 0)
    meter = Meters(CONFIG).meter_for("engine/chain")
    for event in log.events:
        opened.grow(event)
        meter.measure(opened)
        meter.measure_surface(opened)
        meter.measure(opened, HEADER)
    assert opened.again == [event.seq for event in log.events if isinstance(event.data, AssistantChunk)]


@given(logs(), st.data())
def test_whoever_asks_whenever_and_however_often_a_log_is_opened_gets_the_same_answers(log: Log, data: st.DataObject) -> None:
    """Invariant: Who asks a meter, when, and how often a log was opened makes no difference; a read costs what is new."""
    names = ("engine/chain", "engine/random")
    meters, opened = Meters(CONFIG), OpenLog(log, 0)
    asked = data.draw(st.sets(st.integers(0, len(log.events)), max_size=6))
    for event in log.events:
        opened.grow(event)
        if event.seq in asked:
            meters.meter_for(data.draw(st.sampled_from(names))).measure(opened)
    reopened = OpenLog(log)
    for name in data.draw(st.permutations(names)):
        metering = Metering(meters.profile(name), log.events)
        for source, here in ((opened, meters), (reopened, meters), (opened, Meters(CONFIG))):
            meter = here.meter_for(name)
            assert meter.measure(source) == metering.measure()
            assert meter.measure_surface(source) == metering.measure_surface()


@pytest.mark.anyio
async def test_what_is_accepted_is_metered_before_it_is_durable() -> None:
    handle = await MemoryStore(clock=lambda: 1_000).create(NEW)
    session_log = SessionLog(handle)
    meter = Meters(CONFIG).meter_for("engine/chain")
    log = conversation()
    session_log.append(*(Draft(e.data, e.surface_op, e.sources, e.ignorable) for e in log.events))
    assert handle.durable < handle.tail
    assert meter.measure(session_log) == Metering(meter.profile, log.events).measure()


@pytest.mark.anyio
async def test_pricing_in_slices_gives_what_pricing_at_once_gives() -> None:
    opened = OpenLog(conversation())
    meter = Meters(CONFIG).meter_for("engine/chain")
    await meter.catch_up(opened)
    assert opened.again == []
    assert meter.measure(opened) == Metering(meter.profile, conversation().events).measure()
