"""What is told of a session's meter: its pressure now, and that of each request that it sent.

What can be said of a session's prefix: the one in force, or the one that an instance that began now would have.

A composition that is only looked at is made like any other, but recorded nowhere; nor are its failures.

What can be said of configured models and providers without asking any provider.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from hashlib import sha256

import anyio.lowlevel
import msgspec
from msgspec import Struct

from refold_protocol.ids import SessionId
from refold_protocol.session.codec import decode_at, decode_event, line_type
from refold_protocol.session.events import ModelWindow, RequestHeader, RequestHeaderDelta
from refold_protocol.session.header import header_step
from refold_protocol.session.messages import Message
from refold_protocol.session.meter import Anchor, PressureRow, PressureRows
from refold_protocol.session.model_windows import Windows, window_of, with_told
from refold_protocol.session.request_rows import route_of
from refold_protocol.session.session_state import SessionState
from refold_protocol.session.token_estimate import MeterProfile, TokenMeterError, estimate_messages
from refold_server.config import Config, ModelConfig, ProviderConfig
from refold_server.plugins.hook_runner import PluginFailure
from refold_server.plugins.session_hooks import Composition, Contribution, SessionHooks
from refold_server.requests.session_meters import MeteredLog, Meters
from refold_server.sessions.session_registry import Sessions
from refold_server.sessions.session_views import folded, reading, recorded
from refold_storage.interface import Handle, SessionRecord
from refold_storage.reader import read_slices


class MeterAnchor(Struct, frozen=True, gc=False):
    """A call that the provider counted: its step, the seq of its reply, and the `tokens` of its prompt and output; after a
    compaction of its prompt alone, where it is the first call that was counted."""

    turn: int
    step: int
    seq: int
    tokens: int


class MeterNode(Struct, frozen=True, gc=False):
    """A node of the surface by its seq, and its estimated tokens; 0 for one that the model does not see."""

    seq: int
    tokens: int


class MeterReadResult(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """`meter/read`: the `tokens` of the next request's prompt, the model's whole `window`, and the share of it, `ratio`.

    With an `anchor`, tokens are what the provider counted then and, by estimate, what the surface gained or lost since; without
    one they are `header` (system text, tools, prefix) and `surface`, both estimated. `nodes` are the prices of the surface, in
    its order. `logRevision` counts the events that were consumed: the next event's seq.
    """

    model: str
    tokens: int
    window: int
    ratio: float
    header: int
    surface: int
    nodes: tuple[MeterNode, ...]
    log_revision: int
    anchor: MeterAnchor | None = None


class PrefixContribution(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What one contributor of a plugin says; without messages it says nothing, and has no digest. `removed` counts messages
    of contributors behind it that it left out."""

    plugin: str
    contributor: str
    messages: tuple[Message, ...] = ()
    bytes: int = 0
    tokens: int = 0
    sha256: str | None = None
    removed: int = 0


class PrefixComposeResult(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """`prefix/compose`: `composed` tells that this is in force in the live session; else it is what an instance that began
    now would have. `contributors` stand in the order of the wire, those without a word last. `recorded` tells whether the
    last recorded request has this very prefix; absent where there is none. `failures` are sentences."""

    cwd: str
    composed: bool
    contributors: tuple[PrefixContribution, ...]
    bytes: int = 0
    tokens: int = 0
    sha256: str | None = None
    recorded: bool | None = None
    failures: tuple[str, ...] = ()


class ModelRow(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """A model that the configuration names. Window and output are in tokens, absent where nothing is configured."""

    model: str
    provider: str
    dialect: str
    is_default: bool = False
    context_window: int | None = None
    max_output: int | None = None


class ProviderRow(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """A configured provider: any of its models can be named as `provider/model`. `credentials` says where its key comes
    from and whether it is there: `none`, `present` or `missing`; `command` where a command gives it."""

    provider: str
    dialect: str
    credentials: str
    base_url: str | None = None


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
    name = record.summary.model or config.model if model is None else model
    meter = meters.meter_for(name, window_of(log.folds.windows, name))
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
    profiles, unmetered = list[MeterProfile](), list[TokenMeterError]()
    names, told = await _routes(handle, tail)
    if model is not None:
        profiles.append(meters.profile(model, window_of(told, model)))
    else:
        for name in names:
            try:
                profiles.append(meters.profile(name, window_of(told, name)))
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


async def _routes(handle: Handle, tail: int) -> tuple[list[str], Windows]:
    """Give the models that requests of a log went to, in the order in which they came, and what servers told of windows."""
    names: dict[str, None] = {}
    told: Windows = ()
    for lines in read_slices(handle, 0, tail, chunks=False):
        for data in _routing(lines):
            if isinstance(data, ModelWindow):
                told = with_told(told, data)
            elif (route := route_of(data)) is not None:
                names[route] = None
        await anyio.lowlevel.checkpoint()
    return list(names), told


def _routing(lines: list[bytes]) -> Iterator[RequestHeader | RequestHeaderDelta | ModelWindow]:
    for line in lines:
        if line_type(line) in ("request/header", "request/header-delta", "model/window"):
            data = decode_event(line).data
            if isinstance(data, RequestHeader | RequestHeaderDelta | ModelWindow):
                yield data


def _told(anchor: Anchor | None) -> MeterAnchor | None:
    return None if anchor is None else MeterAnchor(anchor.turn, anchor.step, anchor.seq, anchor.tokens)


async def compose_session(sessions: Sessions, session: SessionId) -> PrefixComposeResult:
    """Tell of a session's prefix. Raises SessionError."""
    live = sessions.live(session)
    async with reading(sessions, session) as (handle, _):
        cwd = handle.record.cwd
        header = await folded(recorded(handle, handle.tail), header_step, None)
        in_force = None if live is None else live.instance.model.composition
        if in_force is None:
            result = await compose_anew(sessions.hooks(session, cwd))
        else:
            result = _segments_told(in_force, cwd, composed=True)
    if header is None:
        return result
    last = _sha256(header.message_prefix or ())
    return msgspec.structs.replace(result, recorded=last == result.sha256)


async def compose_anew(hooks: SessionHooks) -> PrefixComposeResult:
    """Tell of the prefix that an instance with these seams would have. `hooks` must belong to nobody else."""
    failures: list[PluginFailure] = []
    hooks.report = failures.append
    place = hooks.place(1, 1)
    composed = await hooks.session_prefix(place)
    result = _segments_told(composed, place.cwd, composed=False)
    return msgspec.structs.replace(result, failures=tuple(failure.sentence for failure in failures))


def _segments_told(composition: Composition, cwd: str, *, composed: bool) -> PrefixComposeResult:
    messages = composition.messages
    rows = tuple(_row(one) for one in composition.contributions)
    return PrefixComposeResult(cwd, composed, rows, _bytes(messages), estimate_messages(messages), _sha256(messages))


def _row(one: Contribution) -> PrefixContribution:
    messages = one.messages
    size, tokens, digest = _bytes(messages), estimate_messages(messages), _sha256(messages)
    return PrefixContribution(one.plugin, one.contributor, messages, size, tokens, digest, one.removed)


def _bytes(messages: tuple[Message, ...]) -> int:
    return len(msgspec.json.encode(messages)) if messages else 0


def _sha256(messages: tuple[Message, ...]) -> str | None:
    return sha256(msgspec.json.encode(messages)).hexdigest() if messages else None


def model_rows(config: Config) -> tuple[ModelRow, ...]:
    """Give the default model first, then the other models that have a row in the configuration, in its order."""
    named = [config.model, *(row.name for row in config.models if row.name != config.model)]
    rows = (_model_row(config, config.profile(name)) for name in named)
    return tuple(row for row in rows if row is not None)


def provider_rows(config: Config, env: Mapping[str, str], logins: Container[str] = ()) -> tuple[ProviderRow, ...]:
    """Give the providers; `logins` are those with a key from `refold login`. Keys are looked for, and never shown."""
    return tuple(ProviderRow(row.name, row.dialect, _credentials(row, env, logins), row.base_url) for row in config.providers)


def _model_row(config: Config, profile: ModelConfig) -> ModelRow | None:
    provider = config.provider(profile.name.partition("/")[0])
    if provider is None:
        return None
    is_default = profile.name == config.model
    return ModelRow(profile.name, provider.name, provider.dialect, is_default, profile.context_window, profile.max_output)


def _credentials(provider: ProviderConfig, env: Mapping[str, str], logins: Container[str]) -> str:
    if provider.key_command is not None:
        return "command"
    if provider.name in logins or (provider.key_env is not None and env.get(provider.key_env, "").strip()):
        return "present"
    return "none" if provider.key_env is None else "missing"
