"""Exit codes: what each end of a turn and each error leads to."""

from __future__ import annotations

import pytest

from refold_protocol.errors import (
    KINDS,
    ConfigError,
    InvalidEventError,
    LogBusyError,
    LogUnwritableError,
    ProviderError,
    RefoldError,
    SeqRangeError,
    SessionAlreadyOwnedError,
    SessionCorruptionError,
    SessionFormatUnsupportedError,
    SessionNotFoundError,
    StorageFullError,
    TurnMismatchError,
)
from refold_protocol.session.event_data import TURN_ENDS, aborted, blocked, failed
from refold_protocol.session.events import AbortCause, TurnEndReason, TurnError
from refold_server.cli.exit_codes import MEANINGS, exit_code_of_error, exit_code_of_turn


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (TurnEndReason("completed"), 0),
        (failed(TurnError("invariant", "a bug")), 1),
        (failed(TurnError("provider.auth", "no key")), 3),
        (failed(TurnError("provider.badStream", "cut")), 4),
        (failed(TurnError("model.unconfigured", "gone")), 4),
        (blocked("not allowed"), 4),
        (TurnEndReason("weather"), 4),
        (TurnEndReason("max-tokens"), 5),
        (TurnEndReason("max-steps"), 5),
        (aborted(AbortCause("user")), 6),
        (TurnEndReason("interrupted"), 6),
        (failed(TurnError("log.full", "no space")), 7),
        (failed(TurnError("log.unwritable", "no")), 7),
    ],
)
def test_each_end_of_a_turn_has_its_exit_code(reason: TurnEndReason, code: int) -> None:
    assert exit_code_of_turn(reason) == code


@pytest.mark.parametrize("kind", [*TURN_ENDS, "of a plugin"])
def test_only_a_completed_turn_ends_with_zero(kind: str) -> None:
    assert (exit_code_of_turn(TurnEndReason(kind)) == 0) == (kind == "completed")


@pytest.mark.parametrize("kind", KINDS)
def test_no_error_of_a_turn_ends_with_zero_or_counts_as_wrong_usage(kind: str) -> None:
    assert exit_code_of_turn(failed(TurnError(kind, "because"))) in MEANINGS.keys() - {0, 2}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidEventError("a bug"), 1),
        (RefoldError("a bug"), 1),
        (ConfigError("model", "wrong"), 2),
        (SessionNotFoundError("none"), 2),
        (TurnMismatchError("none"), 2),
        (SeqRangeError("none"), 2),
        (ProviderError("model.unconfigured", "none"), 2),
        (ProviderError("provider.auth", "none"), 3),
        (ProviderError("provider.timeout", "late"), 4),
        (SessionAlreadyOwnedError("owned"), 7),
        (SessionCorruptionError("damaged"), 7),
        (SessionFormatUnsupportedError("later"), 7),
        (StorageFullError("full"), 7),
        (LogUnwritableError("no"), 7),
        (LogBusyError("busy"), 7),
    ],
)
def test_each_error_outside_a_turn_has_its_exit_code(error: RefoldError, code: int) -> None:
    assert exit_code_of_error(error) == code


def test_the_codes_are_those_that_scripts_were_promised() -> None:
    assert list(MEANINGS) == list(range(9))
