"""Owns the results of the methods that list things and tell how the daemon is: sessions, models, tools, health, schema.

Shapes only. Counts are numbers of things, sizes are in bytes, durations in milliseconds, times in Unix epoch milliseconds.
"""

from __future__ import annotations

from msgspec import Raw, Struct

from refold_protocol.ids import SessionId
from refold_protocol.rpc.results import ForkOrigin
from refold_protocol.session.events import SessionSettings
from refold_protocol.session.session_totals import UsageTotals


class SessionRow(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """A session in a list. `status` is a word of Status; `usage` is in tokens."""

    session: SessionId
    cwd: str
    created_at: int
    last_activity: int
    tail: int
    turns: int
    status: str
    title: str | None = None
    model: str | None = None
    usage: UsageTotals = UsageTotals()
    parent: ForkOrigin | None = None
    archived: bool = False


class SessionListResult(Struct, frozen=True, gc=False, omit_defaults=True):
    """`session/list`: `next` is the cursor of the next page, absent on the last."""

    sessions: tuple[SessionRow, ...]
    next: str | None = None


class SessionConfigureResult(Struct, frozen=True, gc=False):
    """`session/configure`: the settings in force, and the seq of their record."""

    settings: SessionSettings
    seq: int


class SeqResult(Struct, frozen=True, gc=False):
    """A change that is recorded, durably, at `seq`."""

    seq: int


class InputResult(Struct, frozen=True, gc=False, omit_defaults=True):
    """An input that is durable at `seq`; `turn` is there when it made a turn of its own."""

    input: str
    seq: int
    turn: int | None = None


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


class ModelListResult(Struct, frozen=True, gc=False):
    """`model/list`: the models that the configuration names, and the providers behind them, both in its order."""

    models: tuple[ModelRow, ...]
    providers: tuple[ProviderRow, ...]


class ToolRow(Struct, frozen=True, gc=False, rename="camel"):
    """A tool as models are told of it. `parameters` is its JSON Schema; `source` is `builtin`, or `plugin:NAME`."""

    name: str
    description: str
    parameters: Raw
    read_only: bool
    source: str


class ToolListResult(Struct, frozen=True, gc=False):
    """`tool/list`: in the order in which models are told of them."""

    tools: tuple[ToolRow, ...]


class StoreHealth(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """The store: its format version, the size of its data file, of its map and of what is used of it, in bytes."""

    path: str
    format: int
    file_bytes: int
    map_bytes: int
    used_bytes: int
    sessions: int
    readers: int


class LiveHealth(Struct, frozen=True, gc=False, omit_defaults=True):
    """A session that this daemon has open for writing. `trouble` says why its log cannot be written."""

    session: SessionId
    status: str
    tail: int
    durable: int
    trouble: str | None = None


class SeamTally(Struct, frozen=True, gc=False, rename="camel"):
    """What a plugin did at one seam since the daemon began: calls of its handlers there, failures among them, and their own
    time in milliseconds, without what they waited for the rest of a chain."""

    seam: str
    calls: int
    failures: int
    total_ms: float
    slowest_ms: float


class PluginHealth(Struct, frozen=True, gc=False, rename="camel"):
    """A plugin that is loaded: where it comes from, the tools and event types that it brought, its seams in the order of a
    turn. What comes with refold is the plugin `refold`."""

    plugin: str
    origin: str
    tools: tuple[str, ...]
    event_types: tuple[str, ...]
    seams: tuple[SeamTally, ...]


class DaemonHealthResult(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """`daemon/health`. `plugins` are in the order in which they were loaded; `unsent` counts replies and requests that the
    client has not read."""

    version: str
    pid: int
    uptime_ms: int
    store: StoreHealth
    sessions: tuple[LiveHealth, ...]
    plugins: tuple[PluginHealth, ...] = ()
    unsent: int = 0
    unsent_bytes: int = 0


class DaemonSchemaResult(Struct, frozen=True, gc=False):
    """`daemon/schema`: the method table as JSON Schema, and its digest."""

    digest: str
    schema: Raw
