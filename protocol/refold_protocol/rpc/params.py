"""Owns the params of the methods, as the wire has them. `initialize.py` has those of `initialize`.

A parameter that a method does not take (yet) is refused with its path, never silently ignored; so is a value that this
release cannot honour. These are wire types: content and settings become those of the log by the functions at the end.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

from refold_protocol.ids import InputId, SessionId, WriterId
from refold_protocol.rpc.settings_params import CompactionParams, compaction_settings
from refold_protocol.rpc.wire_errors import RpcId
from refold_protocol.session.events import LimitSettings, PermissionSettings, SessionSettings
from refold_protocol.session.messages import InputBlock, TextBlock

Seq: TypeAlias = Annotated[int, Meta(ge=0)]
"""The position of an event."""

Cursor: TypeAlias = Annotated[int, Meta(ge=-1)]
"""The position of the last event that one has; −1 for none."""

ProgressToken: TypeAlias = int | str
"""Names the progress of one piece of work; the client's choice."""

Counting: TypeAlias = Annotated[int, Meta(ge=1)]
"""A number that is at least 1: turns, steps, sizes."""


class NoParams(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """The params of a method that takes none."""


class CancelParams(Struct, frozen=True, gc=False):
    """`$/cancelRequest`: the request to cancel."""

    id: RpcId


class PermissionParams(Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """What becomes of tools that change something: a person is asked, they run, they do not run."""

    mode: Literal["ask", "allow", "deny"]


class LimitParams(Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """Bounds of one turn; `steps` is the largest number of model calls."""

    steps: Counting


class SessionOpenParams(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel", forbid_unknown_fields=True):
    """`session/open`: `session` opens one that exists; `cwd` (an absolute path or a `file:` URI) begins a new one, with
    the other settings as its first. A new one is always opened for writing."""

    session: SessionId | None = None
    mode: Literal["write", "read"] = "write"
    cwd: str | None = None
    title: str | None = None
    model: str | None = None
    permissions: PermissionParams | None = None
    limits: LimitParams | None = None
    compaction: CompactionParams | None = None

    def __post_init__(self) -> None:
        fresh = (self.title, self.model, self.permissions, self.limits, self.compaction)
        if (self.session is None) == (self.cwd is None):
            raise ValueError("give either `session`, to open one, or `cwd`, to begin one")
        if self.session is not None and any(value is not None for value in fresh):
            raise ValueError("title, model, permissions, limits and compaction are for a new session only")
        if self.cwd is not None and self.mode == "read":
            raise ValueError("a new session cannot be opened for reading")


class Page(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel", forbid_unknown_fields=True):
    """Which part of a view: what lies behind `after` and before `before` (seqs, both exclusive), at most `limit` items
    and `max_bytes` bytes, but at least one item where there is one."""

    after: Cursor | None = None
    before: Seq | None = None
    limit: Counting | None = None
    max_bytes: Counting | None = None


class SessionReadParams(Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """`session/read`: a view of the events 0…`at`; of all events where there is no `at`."""

    session: SessionId
    view: Literal["events", "transcript", "surface", "header", "status"]
    at: Cursor | None = None
    page: Page | None = None


class SessionCloseParams(Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """`session/close`: with `cancel`, a running turn is cancelled first."""

    session: SessionId
    cancel: bool = False


class SessionFlushParams(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel", forbid_unknown_fields=True):
    """`session/flush`: wait until the events up to `up_to` are durable; all accepted ones where it is absent."""

    session: SessionId
    up_to: Cursor | None = None


class TextInput(Struct, frozen=True, gc=False, tag="text", forbid_unknown_fields=True):
    """Text of a prompt. The only kind of content that can be sent yet."""

    text: str


class TurnStartParams(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel", forbid_unknown_fields=True):
    """`turn/start`: with new `content`, or with an `input` that waits since an earlier instance. While a turn runs, content is
    refused, queued behind it, or steers it. `work_done_token` asks for `$/progress` of the turn. A `key` that the session has
    seen gives the first reply again and starts nothing, so a request whose reply was lost can be sent once more."""

    session: SessionId
    content: Annotated[tuple[TextInput, ...], Meta(min_length=1)] | None = None
    input: InputId | None = None
    if_running: Literal["error", "queue", "steer"] = "error"
    key: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    work_done_token: ProgressToken | None = None

    def __post_init__(self) -> None:
        if (self.content is None) == (self.input is None):
            raise ValueError("give either `content` or `input`")
        if self.input is not None and self.if_running != "error":
            raise ValueError("an `input` that waits is started on an idle session; ifRunning is for new content")
        if self.input is not None and self.key is not None:
            raise ValueError("an `input` that waits has its own key; `key` is for new content")


class TurnWaitParams(Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """`turn/wait`: for the end of a turn, or of the turn that an input starts. Answered with an error as soon as that can no
    longer come: `input.unknown` when the input was withdrawn or has joined a turn, `input.pending` when it waits since an
    earlier process, `session.readOnly` when the session was closed or deleted while the input still waited."""

    session: SessionId
    turn: Counting | None = None
    input: InputId | None = None

    def __post_init__(self) -> None:
        if (self.turn is None) == (self.input is None):
            raise ValueError("give either `turn` or `input`")


class TurnInterruptParams(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel", forbid_unknown_fields=True):
    """`turn/interrupt`: with `withdraw_queued`, what waits behind the turn is taken back as well. It does not wait behind
    a long queue of other requests, so send it once the turn is known to run."""

    session: SessionId
    turn: Counting
    withdraw_queued: bool = False


class InputWithdrawParams(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """`input/withdraw`: take back an input that waits."""

    session: SessionId
    input: InputId


class InjectSource(Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """Who tells the model something; the model sees `KIND:NAME`."""

    kind: Literal["client", "file", "plugin", "tool"]
    name: str | None = None


class SessionInjectParams(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """`session/inject`: tell the model something without asking anything."""

    session: SessionId
    content: Annotated[tuple[TextInput, ...], Meta(min_length=1)]
    source: InjectSource


class ConfigurePatch(Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """What to change; an absent member stays as it is. `model` is `provider/model`. Another permission mode is told to the
    model as context and holds for calls from then on: a question that is open stays open. `tools: now` lets new and changed
    tools join with the next request, which pays its history anew."""

    model: str | None = None
    effort: str | None = None
    permissions: PermissionParams | None = None
    limits: LimitParams | None = None
    tools: Literal["now"] | None = None
    compaction: CompactionParams | None = None

    def __post_init__(self) -> None:
        if (self.model, self.effort, self.permissions, self.limits, self.tools, self.compaction) == (None,) * 6:
            raise ValueError("a patch changes something: model, effort, permissions, limits, tools or compaction")


class SessionConfigureParams(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """`session/configure`."""

    session: SessionId
    patch: ConfigurePatch


class SessionRenameParams(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """`session/rename`."""

    session: SessionId
    title: Annotated[str, Meta(min_length=1, max_length=200)]


class SessionListParams(Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """`session/list`: the most recently active first, `limit` at most, going on behind `cursor` (the `next` of the page
    before). `cwd` keeps the sessions of one folder, `text` those in whose title or prompts it stands, whatever its case. A page
    may be short, even empty, and have a next one: it looks at so many sessions, and reads so much of their logs, only."""

    limit: Annotated[int, Meta(ge=1, le=1_000)]
    cwd: str | None = None
    text: str | None = None
    archived: bool = False
    cursor: str | None = None


class SetTraceParams(Struct, frozen=True, gc=False):
    """`$/setTrace`: how much the client wants to hear of what the daemon does."""

    value: Literal["off", "messages", "verbose"]


class ProgressCancelParams(Struct, frozen=True, gc=False):
    """`window/workDoneProgress/cancel`."""

    token: ProgressToken


class EventSubscribeParams(Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """`event/subscribe`: what comes after the event `after` (−1: from the start; `tail`: from now on). `writer` is the
    one under which the client learnt of `after`. `chunks`: all of them; while the client keeps up (`live`: those whose
    message is there already are left out); none."""

    session: SessionId
    after: Cursor | Literal["tail"]
    writer: WriterId | None = None
    chunks: Literal["all", "live", "none"] = "all"


class EventUnsubscribeParams(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """`event/unsubscribe`."""

    subscription: int


class RequestRebuildParams(Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """`request/rebuild`: the request of one step, or of the compaction whose `compact/start` has the seq `compact`."""

    session: SessionId
    turn: Counting | None = None
    step: Counting | None = None
    compact: Seq | None = None

    def __post_init__(self) -> None:
        if (self.turn is None) != (self.step is None) or (self.turn is None) == (self.compact is None):
            raise ValueError("give either `turn` and `step`, or `compact`")


class LogVerifyParams(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """`log/verify`: the whole log."""

    session: SessionId


def input_content(content: tuple[TextInput, ...]) -> tuple[InputBlock, ...]:
    """Give a prompt's content as the log records it."""
    return tuple(TextBlock(block.text) for block in content)


def first_settings(params: SessionOpenParams) -> SessionSettings:
    """Give the settings that a new session begins with."""
    permissions = None if params.permissions is None else PermissionSettings(params.permissions.mode)
    limits = None if params.limits is None else LimitSettings(params.limits.steps)
    return SessionSettings(params.model, None, permissions, limits, compaction_settings(params.compaction))
