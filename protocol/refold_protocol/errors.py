"""Tree of errors that cross refold's layers, and the kinds by which clients tell them apart.

    RefoldError                      kind            whose doing
    ├─ InvalidJsonError              invariant       theirs: text that is not lossless JSON
    ├─ InvalidEventError             invariant       ours: an event that the log's grammar does not allow
    ├─ InvariantError                invariant       ours: what must never happen, happened
    ├─ ConfigError                   config.invalid  theirs: a setting, named by its key
    ├─ SessionError
    │  ├─ SessionNotFoundError           session.unknown
    │  ├─ SessionAlreadyExistsError      session.exists
    │  ├─ SessionBusyError               session.busy
    │  ├─ SessionAlreadyOwnedError       session.owned
    │  ├─ SessionReadOnlyError           session.readOnly
    │  ├─ SessionHandleClosedError       session.unknown
    │  ├─ SessionFormatUnsupportedError  session.format
    │  └─ SessionCorruptionError         session.corrupt
    ├─ LogError
    │  ├─ CursorAheadError               cursor.ahead
    │  ├─ CursorDivergedError            cursor.diverged
    │  ├─ SeqRangeError                  seq.range
    │  ├─ DigestMismatchError            digest.mismatch
    │  ├─ LogUnwritableError             log.unwritable
    │  ├─ StorageFullError               log.full
    │  ├─ LogBusyError                   log.busy
    │  └─ BlobUnknownError               blob.unknown
    ├─ TurnMismatchError             turn.mismatch
    ├─ InputUnknownError             input.unknown
    ├─ InputPendingError             input.pending
    ├─ ApprovalSettledError          approval.settled
    ├─ PluginError                   plugin.failed   theirs: a plugin, named with its seam
    └─ ProviderError                 provider.*, model.unconfigured

The kinds are those of the native protocol; the same words name the errors of turns. Nothing here knows JSON-RPC codes:
`rpc/errors.py` turns kinds into those, in one place. TokenMeterError stands with its codes in `session/meter_profile.py`.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

KINDS: Final[dict[str, str]] = {
    "session.unknown": "no such session, or a handle that was closed",
    "session.exists": "a session of that id exists",
    "session.busy": "a turn is running",
    "session.owned": "another process writes this session",
    "session.readOnly": "the session was opened for reading",
    "session.format": "the store or the log has a format that this release does not read",
    "session.corrupt": "the log does not agree with itself",
    "cursor.ahead": "the cursor lies past the end of the log",
    "cursor.diverged": "the cursor names events of a writer that did not live to keep them",
    "seq.range": "no such range of events",
    "digest.mismatch": "a recorded digest differs from the one computed",
    "log.unwritable": "the log cannot be written",
    "log.full": "no space left for the log",
    "log.busy": "another process holds the write lock",
    "blob.unknown": "no bytes with that digest",
    "turn.mismatch": "no such turn, or not the running one",
    "input.unknown": "no such pending input",
    "input.pending": "the input waits since an earlier process, and runs only when it is started",
    "approval.settled": "the approval was decided before",
    "tool.exists": "a tool of that name exists",
    "interrupted": "the process ended before the work did",
    "invariant": "a rule of refold itself was broken",
    "overloaded": "too many replies wait to be read",
    "frame.tooLarge": "a message above the size limit",
    "provider.auth": "the provider refused the credentials, or there are none",
    "provider.rejected": "the provider refused the request",
    "provider.unreachable": "the provider could not be reached",
    "provider.rateLimited": "the provider asks to slow down",
    "provider.overloaded": "the provider has a fault or no capacity",
    "provider.contextOverflow": "the request does not fit the model's window",
    "provider.badStream": "the provider's answer could not be read or was cut off",
    "provider.timeout": "the provider did not answer in time",
    "provider.filtered": "the provider filtered the answer",
    "provider.refused": "the model refused to answer",
    "plugin.failed": "a plugin broke where the turn cannot go on without it",
    "compaction.failed": "the history could not be compacted, and is what it was",
    "model.unconfigured": "no provider is configured for that model",
    "config.invalid": "a setting is wrong",
}
"""Every kind of error that a client can meet, with what it means. The one table of kinds."""


class RefoldError(Exception):
    """Base of all errors that refold raises on purpose. `kind` is stable; the message is for people."""

    kind: ClassVar[str] = "invariant"

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details: dict[str, Any] = {name: value for name, value in details.items() if value is not None}
        """Extra members of the error's `data` on the wire, in camelCase (`seq`, `tail`, `holder`, …)."""

    @property
    def error_kind(self) -> str:
        """The kind of this very error; equals the class's `kind` except where one class serves several."""
        return self.kind


class InvalidJsonError(RefoldError):
    """Text that is not lossless JSON. The message says what is wrong and where."""


class InvalidEventError(RefoldError):
    """An append that the log's grammar does not allow. Nothing was accepted."""


class InvariantError(RefoldError):
    """Something that must never happen did. The message is for a bug report."""


class ConfigError(RefoldError):
    """A wrong setting. `key` is its path, `reason` says what is wrong with it, `line` is its line in the file where one
    search finds it."""

    kind = "config.invalid"

    def __init__(self, key: str, reason: str, *, file: str | None = None, line: int | None = None) -> None:
        place = "" if file is None else f" ({file}{'' if line is None else f', line {line}'})"
        super().__init__(f"{key}: {reason}{place}", key=key, file=file, line=line)
        self.key = key
        self.reason = reason


class SessionError(RefoldError):
    """Base of errors about one session."""


class SessionNotFoundError(SessionError):
    """No session of that id is in the store."""

    kind = "session.unknown"


class SessionAlreadyExistsError(SessionError):
    """A session of that id is in the store already."""

    kind = "session.exists"


class SessionBusyError(SessionError):
    """A turn runs in this session, and the call cannot wait for it."""

    kind = "session.busy"


class SessionAlreadyOwnedError(SessionError):
    """Another process has the session open for writing; `details` has `pid` and `since` of the holder where known."""

    kind = "session.owned"


class SessionReadOnlyError(SessionError):
    """A write through a handle that was opened for reading."""

    kind = "session.readOnly"


class SessionHandleClosedError(SessionError):
    """A call on a handle after its `close`."""

    kind = "session.unknown"


class SessionFormatUnsupportedError(SessionError):
    """The store or the log has another format version, or an event that this release does not know and may not skip."""

    kind = "session.format"


class SessionCorruptionError(SessionError):
    """The stored log does not agree with itself; `details` has the `seq` where it stops being right."""

    kind = "session.corrupt"


class LogError(RefoldError):
    """Base of errors about positions in a log and about writing it."""


class CursorAheadError(LogError):
    """A subscription starts past the tail; `details` has `tail`."""

    kind = "cursor.ahead"


class CursorDivergedError(LogError):
    """A subscription's cursor lies beyond what its writer made durable; `details` has `durable`."""

    kind = "cursor.diverged"


class SeqRangeError(LogError):
    """A seq that the log does not have."""

    kind = "seq.range"


class DigestMismatchError(LogError):
    """A recorded digest differs from the computed one."""

    kind = "digest.mismatch"


class LogUnwritableError(LogError):
    """A commit failed for another reason than space; the environment stays closed until the process ends."""

    kind = "log.unwritable"


class StorageFullError(LogError):
    """The disk or the configured map is full. Accepted events stay in memory; the commit is tried again."""

    kind = "log.full"


class LogBusyError(LogError):
    """A flush did not get the store's write lock in time; `details` has the `holder` where known."""

    kind = "log.busy"


class BlobUnknownError(LogError):
    """No bytes are stored under that digest."""

    kind = "blob.unknown"


class TurnMismatchError(RefoldError):
    """The named turn never was, or is not the running one."""

    kind = "turn.mismatch"


class InputUnknownError(RefoldError):
    """The named input is not waiting in this session."""

    kind = "input.unknown"


class InputPendingError(RefoldError):
    """The input waits since an earlier process. Nothing runs it by itself: `turn/start` with it does, `input/withdraw` takes it
    back."""

    kind = "input.pending"


class ApprovalSettledError(RefoldError):
    """The question was answered before, or was never asked."""

    kind = "approval.settled"


class PluginError(RefoldError):
    """A plugin failed at a seam where the turn cannot go on without it. The message names plugin and seam."""

    kind = "plugin.failed"


class ProviderError(RefoldError):
    """A model provider failed. `error_kind` is one of the `provider.*` kinds or `model.unconfigured`; `lasting` tells that it
    stays so until somebody changes something here."""

    kind = "provider.rejected"

    def __init__(
        self,
        kind: str,
        message: str,
        *,
        status: int | None = None,
        retry_after_ms: int | None = None,
        request_id: str | None = None,
        lasting: bool = False,
    ) -> None:
        super().__init__(message, status=status, retryAfterMs=retry_after_ms, requestId=request_id)
        self._kind = kind
        self.status = status
        self.retry_after_ms = retry_after_ms
        self.request_id = request_id
        self.lasting = lasting

    @property
    def error_kind(self) -> str:
        """The kind that this failure was given."""
        return self._kind


RETRYABLE_KINDS: Final[frozenset[str]] = frozenset(
    {
        "session.busy",
        "session.owned",
        "log.full",
        "log.busy",
        "overloaded",
        "provider.unreachable",
        "provider.rateLimited",
        "provider.overloaded",
        "provider.badStream",
        "provider.timeout",
    }
)
"""Kinds for which the same call may succeed later without a change of the caller's."""
