"""One loop instance: what lives as long as a session stays open for writing, outside its log.

Puts the parts of the loop together and gives each what it needs; knows how an instance begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from refold_protocol.errors import RefoldError
from refold_protocol.session.events import ClientInfo, Draft, Event, InstanceStart, PluginFailed, TurnEndReason
from refold_protocol.session.session_state import PendingInput
from refold_server.compaction.compaction_trigger import CompactionTrigger
from refold_server.compaction.result_cuts import readable
from refold_server.loop.approvals import Approvals
from refold_server.loop.tool_calls import ToolCalls, ToolHost
from refold_server.loop.turn import TurnControl, run_turn
from refold_server.plugins.hook_runner import PluginFailure
from refold_server.plugins.session_hooks import SessionHooks
from refold_server.requests.session_log import LoggedResults, SessionLog
from refold_server.requests.session_model import Models, SessionModel
from refold_server.tools.tool import PastResults


class Host(Models, ToolHost, Protocol):
    """What a session finds around it: models and tools."""

    def attach(self, results: PastResults) -> None:
        """Say where the session's earlier results are read."""
        ...


class Instance:
    """One loop instance. `number` counts those of its session from 1; it is taken whether or not its start is in the log."""

    def __init__(
        self, session_log: SessionLog, host: Host, hooks: SessionHooks, system: str, client: ClientInfo | None = None
    ) -> None:
        self.session_log = session_log
        self.host = host
        self.hooks = hooks
        self.model = SessionModel(session_log, host, system)
        self.approvals = Approvals(session_log)
        self.tools = ToolCalls(session_log, host, hooks, self.approvals)
        self.trigger = CompactionTrigger(session_log, self.model, hooks)
        self.number = session_log.folds.work.instance + 1
        self._client = client
        self._fresh = session_log.handle.tail < 0
        host.attach(LoggedResults(session_log, self._readable))
        hooks.report = self._record_failure
        if hooks.observes:
            session_log.handle.observe(self._observed)
            session_log.handle.watch_durable(hooks.flushed)

    def opening(self) -> tuple[Draft, ...]:
        """Give what must stand before this instance's first own event: its start, once."""
        if self.session_log.folds.work.instance >= self.number:
            return ()
        reason = "new" if self._fresh else "fork" if self.session_log.inherited else "resume"
        return (Draft(InstanceStart(self.number, reason, self._client)),)

    async def run_turn(self, given: PendingInput, control: TurnControl) -> TurnEndReason:
        """Run one turn; see `loop/turn.py`."""
        return await run_turn(self.session_log, self.model, self.tools, self.hooks, self.trigger, given, control)

    def _readable(self, text: str) -> int:
        """Give how many characters of a text fit the session's window; all of them where nobody stated it."""
        try:
            return readable(text, self.model.meter().profile)
        except RefoldError:  # whoever asks the model says what is wrong with it
            return len(text)

    def _record_failure(self, failure: PluginFailure) -> None:
        work = self.session_log.folds.work
        self.session_log.append(Draft(PluginFailed(failure.plugin, failure.hook, failure.message, work.turn, work.step)))

    def _observed(self, events: Sequence[Event]) -> None:
        for event in events:
            self.hooks.observe(event)
