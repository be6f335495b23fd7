"""The meters of a process: stable handles, the configuration's figures, and reading that goes on where it stopped."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold_protocol.errors import SessionCorruptionError
from refold_protocol.session.codec import CHUNK
from refold_protocol.session.density import Density
from refold_protocol.session.events import Draft, StepEnd
from refold_protocol.session.messages import Message, Usage, text_content
from refold_protocol.session.meter import MeterState, fold_meter, measure, measure_surface
from refold_protocol.session.meter_profile import TokenMeterError
from refold_server.config import Config, ModelConfig, StoreConfig
from refold_server.meters import Meters
from refold_storage.memory import MemoryStore
from tests.support.log_strategies import logs
from tests.support.logs import HEADER, Log, spoken
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


class LogOnPaper:
    """A log that grows, and what was read of it."""

    def __init__(self, log: Log) -> None:
        self._lines = log.lines
        self.shown = 0
        self.read: list[int] = []

    @property
    def tail(self) -> int:
        """Seq of the last event that is shown."""
        return self.shown - 1

    def lines(self, first: int, last: int | None = None, *, max_bytes: int | None = None, chunks: bool = True) -> list[bytes]:
        """Give one line or two: as few as a reader must be able to go on from."""
        assert max_bytes
        end = min(self.shown, first + 2) if last is None else min(last + 1, first + 2)
        self.read.extend(range(first, end))
        lines = self._lines[first:end]
        return lines if chunks else [CHUNK if line.startswith(CHUNK) else line for line in lines]

    def spoil(self, place: int, line: bytes) -> None:
        """Put another line there."""
        self._lines[place] = line


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


def test_a_read_costs_what_is_new_and_no_more() -> None:
    log = LogOnPaper(conversation())
    meter = Meters(CONFIG).meter_for("engine/chain")
    for shown in range(20):
        log.shown = shown
        meter.measure(log)
        meter.measure_surface(log)
        meter.measure(log, HEADER)
        assert log.read == list(range(shown))


@given(logs(), st.data())
def test_whoever_asks_whenever_and_however_often_a_log_is_opened_gets_the_same_answers(log: Log, data: st.DataObject) -> None:
    paper = LogOnPaper(log)
    names = ("engine/chain", "engine/random")
    meters = Meters(CONFIG)
    for shown in sorted(data.draw(st.lists(st.integers(0, len(log.events)), max_size=6))):
        paper.shown = shown
        for name in data.draw(st.permutations(names))[: data.draw(st.integers(0, 2))]:
            meters.meter_for(name).measure(paper)
    paper.shown = len(log.events)
    reopened = LogOnPaper(log)
    reopened.shown = paper.shown
    for name in data.draw(st.permutations(names)):
        state = fold_meter(log.events, MeterState(meters.profile(name)))
        for source, here in ((paper, meters), (reopened, meters), (paper, Meters(CONFIG))):
            meter = here.meter_for(name)
            assert meter.measure(source) == measure(state)
            assert meter.measure_surface(source) == measure_surface(state)


@pytest.mark.parametrize("line", [b"{", b'{"type":"step/end","seq":7,"time":1,"data":{"turn":9,"step":9}}'])
def test_a_malformed_event_is_refused_the_same_way_on_each_retry_and_what_stands_before_it_is_not_read_again(
    line: bytes,
) -> None:
    log = LogOnPaper(conversation())
    log.spoil(7, line)
    log.shown = 7
    meter = Meters(CONFIG).meter_for("engine/chain")
    before = meter.measure(log)
    log.shown = 12
    said: list[str] = []
    for _ in range(3):
        log.read.clear()
        with pytest.raises(SessionCorruptionError) as caught:
            meter.measure(log)
        assert caught.value.details["seq"] == 7
        assert log.read[0] == 7
        said.append(caught.value.message)
    assert len(set(said)) == 1
    log.shown = 7
    assert meter.measure(log) == before


@pytest.mark.anyio
async def test_what_is_accepted_is_metered_before_it_is_durable() -> None:
    store = MemoryStore(clock=lambda: 1_000)
    handle = await store.create(NEW)
    meter = Meters(CONFIG).meter_for("engine/chain")
    log = conversation()
    handle.append([Draft(e.data, e.surface_op, e.sources, e.ignorable) for e in log.events])
    assert handle.durable < handle.tail
    assert meter.measure(handle) == measure(fold_meter(log.events, MeterState(meter.profile)))
    handle.append([Draft(StepEnd(9, 9))])
    with pytest.raises(SessionCorruptionError, match=r"names step 9\.9") as caught:
        meter.measure(handle)
    assert caught.value.details["seq"] == len(log.events)


@pytest.mark.anyio
async def test_catching_up_in_slices_gives_what_reading_at_once_gives() -> None:
    log = LogOnPaper(conversation())
    log.shown = len(conversation().events)
    meter = Meters(CONFIG).meter_for("engine/chain")
    await meter.catch_up(log)
    assert log.read == [*range(log.shown), *range(15, 19)]  # the chunks of the last reply once more
    assert meter.measure(log) == measure(fold_meter(conversation().events, MeterState(meter.profile)))
    log.read.clear()
    await meter.catch_up(log)
    assert log.read == []


@pytest.mark.anyio
async def test_a_log_that_is_refused_is_refused_at_the_same_event_however_it_is_read() -> None:
    log = LogOnPaper(conversation())
    log.spoil(7, b"{")
    log.shown = 12
    meter = Meters(CONFIG).meter_for("engine/chain")
    for _ in range(2):
        with pytest.raises(SessionCorruptionError) as caught:
            await meter.catch_up(log)
        assert caught.value.details["seq"] == 7
    with pytest.raises(SessionCorruptionError) as caught:
        meter.measure(log)
    assert caught.value.details["seq"] == 7
