"""Params that say when a session's history is summed up, and what the log records of them. Shapes only.

Whether the figures go with the window of the session's model is not known here: the server checks that.

Params and result of making room in a session's history. Shapes only.

Handlers that change a session from outside its turns: configure, rename, inject, withdraw.

Each reply is sent after what it names is durable.

Handler of `session/compact`. It is answered when the summary is in place on disk, or nothing was changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from refold_protocol.ids import InputId, SessionId
from refold_protocol.rpc.wire_errors import WireError, request_cancelled
from refold_protocol.session.events import CompactionSettings, LimitSettings, PermissionSettings, SessionSettings
from refold_protocol.session.messages import Source
from refold_server.compaction.compaction_run import CompactionOutcome
from refold_server.rpc.dispatch import Handler, refuse_blank
from refold_server.rpc.method import (
    Counting,
    ProgressToken,
    SeqResult,
    TextInput,
    input_content,
    request_row,
)
from refold_server.rpc.progress import Progress
from refold_server.sessions.session_registry import Sessions, compact_session
from refold_server.sessions.session_settings import SettingsPatch


class CompactionParams(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel", forbid_unknown_fields=True):
    """When the history is summed up; an absent member stays as it is. `auto`: without being asked to. `threshold_ratio` is the
    share of the window at which that begins, above 0 and below 1; `retain_tokens` at the end stay as they are."""

    auto: bool | None = None
    threshold_ratio: Annotated[float, Meta(gt=0, lt=1)] | None = None
    retain_tokens: Annotated[int, Meta(ge=1)] | None = None

    def __post_init__(self) -> None:
        if (self.auto, self.threshold_ratio, self.retain_tokens) == (None,) * 3:
            raise ValueError("say what of compaction is set: auto, thresholdRatio or retainTokens")


def compaction_settings(params: CompactionParams | None) -> CompactionSettings | None:
    """Give settings of compaction as the log records them."""
    return None if params is None else CompactionSettings(params.auto, params.threshold_ratio, params.retain_tokens)


class SessionCompactParams(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel", forbid_unknown_fields=True):
    """`session/compact`: sum up the whole history for the model; refused while a turn runs. `instructions` say what the
    summary should hold besides. `work_done_token` asks for `$/progress`; cancelling either stops it."""

    session: SessionId
    instructions: Annotated[str, Meta(max_length=20_000)] | None = None
    work_done_token: ProgressToken | None = None


class SessionCompactResult(Struct, frozen=True, gc=False, rename="camel"):
    """`session/compact`: `seq` is that of the message that stands for the history now; `tokens` is what it costs and
    `shadowed_tokens` what that had cost, in tokens as the session's meter estimates them."""

    seq: int
    tokens: int
    shadowed_tokens: int


class SessionConfigureResult(Struct, frozen=True, gc=False):
    """`session/configure`: the settings in force, and the seq of their record."""

    settings: SessionSettings
    seq: int


class InputResult(Struct, frozen=True, gc=False, omit_defaults=True):
    """An input that is durable at `seq`; `turn` is there when it made a turn of its own."""

    input: str
    seq: int
    turn: int | None = None


class PermissionParams(Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """What becomes of tools that change something: a person is asked, they run, they do not run."""

    mode: Literal["ask", "allow", "deny"]


class LimitParams(Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """Bounds of one turn; `steps` is the largest number of model calls."""

    steps: Counting


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
    """What to change; an absent member stays as it is. `revoke` names tools that were allowed for the session and are asked
    about again from the next call on. `model` is `provider/model`. Another permission mode is told to the
    model as context and holds for calls from then on: a question that is open stays open. `tools: now` lets new and changed
    tools join with the next request, which pays its history anew."""

    model: str | None = None
    effort: str | None = None
    permissions: PermissionParams | None = None
    limits: LimitParams | None = None
    tools: Literal["now"] | None = None
    compaction: CompactionParams | None = None
    revoke: Annotated[tuple[str, ...], Meta(min_length=1)] | None = None

    def __post_init__(self) -> None:
        if (self.model, self.effort, self.permissions, self.limits, self.tools, self.compaction, self.revoke) == (None,) * 7:
            raise ValueError("a patch changes something: model, effort, permissions, revoke, limits, tools or compaction")


class SessionConfigureParams(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """`session/configure`."""

    session: SessionId
    patch: ConfigurePatch


class SessionRenameParams(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """`session/rename`."""

    session: SessionId
    title: Annotated[str, Meta(min_length=1, max_length=200)]


class ChangeMethods:
    """The changes that one connection makes. `source` is who they come from."""

    def __init__(self, sessions: Sessions, source: Source, progress: Progress) -> None:
        self._sessions = sessions
        self._source = source
        self._progress = progress

    def handlers(self) -> Mapping[str, Handler]:
        """Give the handlers by method name."""
        return {
            "session/compact": self.compact,
            "session/configure": self.configure,
            "session/rename": self.rename,
            "session/inject": self.inject,
            "input/withdraw": self.withdraw,
        }

    async def compact(self, params: SessionCompactParams) -> SessionCompactResult:
        """session/compact."""
        session, token = self._sessions.writable(params.session), params.work_done_token
        if token is None:
            return _result(await compact_session(session, params.instructions))
        landed: list[CompactionOutcome] = []
        with self._progress.task(token, "session/compact", session):
            landed.append(await compact_session(session, params.instructions))
        if not landed:  # it was cancelled by its token
            raise WireError(request_cancelled("session/compact"))
        return _result(landed[0])

    async def configure(self, params: SessionConfigureParams) -> SessionConfigureResult:
        """session/configure."""
        patch = params.patch
        limits = None if patch.limits is None else LimitSettings(patch.limits.steps)
        permissions = None if patch.permissions is None else PermissionSettings(patch.permissions.mode)
        compaction = compaction_settings(patch.compaction)
        wanted = SettingsPatch(
            patch.model, patch.effort, permissions, limits, compaction, patch.revoke, tools_now=patch.tools == "now"
        )
        settings, seq = await self._sessions.writable(params.session).configure(wanted)
        return SessionConfigureResult(settings, seq)

    async def rename(self, params: SessionRenameParams) -> SeqResult:
        """session/rename."""
        return SeqResult(await self._sessions.writable(params.session).rename(params.title, self._source))

    async def inject(self, params: SessionInjectParams) -> InputResult:
        """session/inject."""
        refuse_blank("session/inject", params.content)
        source = Source(params.source.kind, params.source.name)
        accepted = await self._sessions.writable(params.session).inject(input_content(params.content), source)
        return InputResult(accepted.input, accepted.seq, accepted.turn)

    async def withdraw(self, params: InputWithdrawParams) -> SeqResult:
        """input/withdraw."""
        return SeqResult(await self._sessions.writable(params.session).withdraw(params.input))


def _result(landed: CompactionOutcome) -> SessionCompactResult:
    return SessionCompactResult(landed.seq, landed.tokens, landed.shadowed)


METHODS: Final = (
    request_row("session/compact", SessionCompactParams, SessionCompactResult, "Sum up the history."),
    request_row("session/configure", SessionConfigureParams, SessionConfigureResult, "Change settings."),
    request_row("session/rename", SessionRenameParams, SeqResult, "Give a session a title."),
    request_row("session/inject", SessionInjectParams, InputResult, "Tell the model something; asks nothing."),
    request_row("input/withdraw", InputWithdrawParams, SeqResult, "Take back an input that waits."),
)
"""The methods of this family."""
