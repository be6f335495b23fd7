"""The bundle of folds is each fold by itself: what it passes by changes nothing there."""

from __future__ import annotations

from hypothesis import given

from refold_protocol.session.granted import fold_granted
from refold_protocol.session.pending import fold_pending
from refold_protocol.session.rebuild import NOTHING_SEEN, horizon_step
from refold_protocol.session.settings import NO_SETTINGS, settings_step
from refold_protocol.session.work import fold_work
from refold_server.loop.folds import Folds, fold_all
from tests.support.log_strategies import logs
from tests.support.logs import Log


@given(logs())
def test_all_folds_at_once_are_each_of_them_by_itself(log: Log) -> None:
    horizon, settings = NOTHING_SEEN, NO_SETTINGS
    for event in log.events:
        horizon, settings = horizon_step(horizon, event), settings_step(settings, event)
    alone = Folds(fold_work(log.events), horizon, fold_pending(log.events), settings, fold_granted(log.events))
    assert fold_all(log.events) == alone
