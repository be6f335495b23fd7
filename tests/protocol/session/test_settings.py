"""The last settings are in force, whole: they are not merged with earlier ones."""

from __future__ import annotations

from refold_protocol.session.events import LimitSettings, SessionSettings
from refold_protocol.session.session_state import fold_all
from tests.support.logs import Log


def _in_force(log: Log) -> SessionSettings:
    return fold_all(log.events).settings


def test_without_settings_everything_is_left_to_the_configuration() -> None:
    log = Log()
    log.whole_turn()
    assert _in_force(log) == SessionSettings()


def test_the_last_settings_replace_all_earlier_ones() -> None:
    log = Log()
    log.add(SessionSettings("engine/chain", "low", limits=LimitSettings(3)))
    log.add(SessionSettings("engine/random"))
    log.instance("resume")
    log.whole_turn()
    assert _in_force(log) == SessionSettings("engine/random")
