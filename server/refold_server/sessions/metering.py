"""What is told of a session's meter: its pressure now, and that of each request that it sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import anyio.lowlevel
from msgspec import Struct

from refold_protocol.rpc.metering import MeterAnchor, MeterNode, MeterReadResult
from refold_protocol.session.codec import decode_at, decode_event, line_type
from refold_protocol.session.events import RequestHeader, RequestHeaderDelta
from refold_protocol.session.meter import Anchor
from refold_protocol.session.meter_profile import MeterProfile, TokenMeterError
from refold_protocol.session.meter_rows import PressureRow, PressureRows, route_of
from refold_protocol.session.session_state import SessionState
from refold_server.config import Config
from refold_server.meters import MeteredLog, Meters
from refold_storage.interface import Handle, SessionRecord
from refold_storage.slices import read_slices


class Metered(Struct, frozen=True):
    """The pressure of each request of a log, oldest first, and why some models have no meter."""

    rows: tuple[PressureRow, ...]
    unmetered: tuple[TokenMeterError, ...]


class LoadedLog:
    """A log that was loaded to be metered. `folds` is its state."""

    def __init__(self, handle: Handle, folds: SessionState) -> None:
        self.handle = handle
        self.folds = folds


async def read_meter(
    meters: Meters, config: Config, log: MeteredLog, record: SessionRecord, model: str | None
) -> MeterReadResult:
    """Measure a log for `model`, by default the one that it used or was given last. Raises TokenMeterError and what
    metering raises."""
    meter = meters.meter_for(record.summary.model or config.model if model is None else model)
    await meter.catch_up(log)
    found, prices = meter.measure(log), meter.measure_surface(log)
    return MeterReadResult(
        found.model,
        found.tokens,
        found.window,
        round(found.ratio, 6),
        found.header,
        found.surface,
        tuple(MeterNode(node.seq, node.tokens) for node in prices.nodes),
        found.log_revision,
        _told(found.anchor),
    )


async def request_pressures(
    meters: Meters, handle: Handle, model: str | None, progress: Callable[[int, int], None] | None = None
) -> Metered:
    """Meter each request of a log, for its own model or for `model`. `progress` gets done and all, in events. Raises
    TokenMeterError for a `model` without a meter, and what metering raises."""
    tail = handle.tail
    profiles, unmetered = [meters.profile(model)] if model is not None else [], list[TokenMeterError]()
    if model is None:
        for name in await _routes(handle, tail):
            try:
                profiles.append(meters.profile(name))
            except TokenMeterError as error:  # its requests are shown without figures, and why is told
                unmetered.append(error)
    return Metered(await _rows(handle, tail, profiles, model, progress), tuple(unmetered))


async def _rows(
    handle: Handle,
    tail: int,
    profiles: list[MeterProfile],
    model: str | None,
    progress: Callable[[int, int], None] | None,
) -> tuple[PressureRow, ...]:
    gathered = PressureRows(profiles, lambda cited: handle.read(*cited), model)
    done = 0
    for lines in read_slices(handle, 0, tail):
        for seq, line in enumerate(lines, done):
            gathered.feed(decode_at(line, seq))
        done += len(lines)
        await anyio.lowlevel.checkpoint()
        if progress is not None:
            progress(done, tail + 1)
    return tuple(gathered.rows)


async def _routes(handle: Handle, tail: int) -> list[str]:
    """Give the models that requests of a log went to, in the order in which they came."""
    names: dict[str, None] = {}
    for lines in read_slices(handle, 0, tail, chunks=False):
        names.update(dict.fromkeys(_named(lines)))
        await anyio.lowlevel.checkpoint()
    return list(names)


def _named(lines: list[bytes]) -> Iterator[str]:
    for line in lines:
        if line_type(line).startswith("request/header"):
            data = decode_event(line).data
            if isinstance(data, RequestHeader | RequestHeaderDelta) and (route := route_of(data)) is not None:
                yield route


def _told(anchor: Anchor | None) -> MeterAnchor | None:
    return None if anchor is None else MeterAnchor(anchor.turn, anchor.step, anchor.seq, anchor.tokens)
