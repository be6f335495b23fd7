"""The log of one session as its single writer sees it: its state, appending, the inputs that wait, earlier results.

A batch is sealed, folded and only then accepted, so an event that the log's grammar forbids never enters it. An input belongs
to the instance that accepted it: its seq comes after the place at which the log was opened. Inputs of earlier instances are
only offered. An input joins once it is durable, because only then was it answered. Must not know of connections, clients or
providers.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from typing import Final

import anyio.lowlevel

from refold_protocol.ids import InputId
from refold_protocol.session.closers import closers_of, open_at_end
from refold_protocol.session.event_data import FORKED, INTERRUPTED
from refold_protocol.session.events import (
    AssistantMessage,
    ContextMessage,
    Draft,
    Event,
    InputAccepted,
    InputSettled,
    InstanceStart,
    Replace,
    SteeringMessage,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnStart,
)
from refold_protocol.session.grammar import TurnState
from refold_protocol.session.loading import Loading
from refold_protocol.session.messages import TextBlock, ToolCallBlock
from refold_protocol.session.projection import enclosed_content
from refold_protocol.session.session_state import NO_EVENTS, PendingInput, SessionState, fold_all
from refold_storage.interface import Handle, Parent
from refold_storage.pending_writes import same_error
from refold_storage.reader import read_slices


def load_slices(handle: Handle, last: int) -> Iterator[tuple[SessionState, list[Event]]]:
    """Load the state as of the event `last` in slices: after each the state so far, and the events that were folded since.
    Raises what `Loading` raises."""
    loading = Loading()
    for lines in read_slices(handle, 0, last, chunks=False):
        events = loading.take(lines)
        yield loading.state, events
    for lines in read_slices(handle, loading.revision, last):
        events = loading.finish(lines)
        yield loading.state, events


async def load(handle: Handle, last: int) -> SessionState:
    """Load the state as of the event `last`; the event loop gets a turn between two slices. Raises what `Loading` raises."""
    state = NO_EVENTS
    for now, _ in load_slices(handle, last):
        state = now
        await anyio.lowlevel.checkpoint()
    return state


def load_now(handle: Handle, last: int) -> SessionState:
    """Load the state as of the event `last` at once. Raises what `Loading` raises."""
    state = NO_EVENTS
    for now, _ in load_slices(handle, last):
        state = now
    return state


UNDURABLE: Final = "it could not be made durable"
"""Why an input was withdrawn whose flush failed."""


class SessionLog:
    """A write handle and everything that is known of its log. `folds` is as of the accepted tail."""

    def __init__(self, handle: Handle, *, read: bool = True) -> None:
        self.handle = handle
        self.opened_at: Final = handle.tail
        """The last seq of what was there already; −1 for a new session."""
        self.folds: SessionState = NO_EVENTS
        self._call_ids: set[str] = set()
        self._turn_of_input: dict[InputId, int] = {}
        self._end_of_turn: dict[int, int] = {}
        self._accepted_by_key: dict[str, Event] = {}
        self._last_end: Event | None = None
        if read:
            for self.folds, events in load_slices(handle, handle.tail):
                self._index(events)

    @classmethod
    async def opened(cls, handle: Handle) -> SessionLog:
        """Read the log in slices, so that an event loop stays alive beside a long one."""
        session_log = cls(handle, read=False)
        for session_log.folds, events in load_slices(handle, handle.tail):
            session_log._index(events)
            await anyio.lowlevel.checkpoint()
        return session_log

    @property
    def inherited(self) -> bool:
        """Whether this is a fork's log in which no instance began yet: all but closers comes from its parent."""
        return is_seed(self.handle.record.parent, self.folds.work)

    def append(self, *drafts: Draft, closing: bool = False) -> tuple[Event, ...]:
        """Seal a batch, fold it, accept it: whole or not at all. What is `closing`, because it ends what stands open, is
        accepted also where the memory for what waits is used up. Raises InvalidEventError and what the handle raises."""
        batch = self.handle.seal(drafts, closing=closing)
        state = fold_all(batch.events, self.folds)
        self.handle.accept(batch)
        self.folds = state
        self._index(batch.events)
        return batch.events

    def refuse_stalled(self) -> None:
        """Raise the LogError of the last commit, if that failed: nothing with an effect outside the log begins then."""
        if self.handle.trouble is not None:
            raise same_error(self.handle.trouble)

    async def flush(self) -> int:
        """Wait until everything accepted so far is durable; give the durable seq. Raises LogError."""
        return await self.handle.flush()

    async def repair(self) -> bool:
        """Append and flush what an interrupted turn still needs. Gives False, and writes nothing, when nothing is open."""
        if not open_at_end(self.folds.work):
            return False
        last = next(iter(self.handle.read(self.handle.tail)))
        self.append(*closers_of(self.folds.work, last.time, FORKED if self.inherited else INTERRUPTED))
        await self.flush()
        return True

    def is_used(self, call_id: str) -> bool:
        """Tell whether a call of this session has that id."""
        return call_id in self._call_ids

    def turn_of_input(self, given: InputId) -> int | None:
        """Give the number of the turn that an input started, None when it started none (yet)."""
        return self._turn_of_input.get(given)

    def accepted_by_key(self, key: str) -> Event | None:
        """Give the `input/accepted` of a client's key, None for one that this session has not seen. An input that could not be
        made durable was answered with an error: its key is free again."""
        return self._accepted_by_key.get(key)

    def turn_end(self, turn: int) -> Event | None:
        """Give the `turn/end` of a turn, None while it runs or when it never was. The last one can be asked for after the
        handle was closed: whoever waited for the turn may get to it after whoever waited to close the session."""
        seq = self._end_of_turn.get(turn)
        if seq is None or (self._last_end is not None and self._last_end.seq == seq):
            return None if seq is None else self._last_end
        return next(iter(self.handle.read(seq, seq)))

    def _index(self, events: Iterable[Event]) -> None:
        for event in events:
            if type(event.data) in _INDEXED:
                self._note(event)

    def _note(self, event: Event) -> None:
        data = event.data
        if isinstance(data, AssistantMessage):
            for block in data.content:
                if isinstance(block, ToolCallBlock):
                    self._call_ids.add(block.id)
        elif isinstance(data, ToolCall):
            self._call_ids.add(data.call_id)
        elif isinstance(data, TurnStart):
            if data.trigger.input is not None:
                self._turn_of_input[data.trigger.input] = data.turn
        elif isinstance(data, TurnEnd):
            self._end_of_turn[data.turn] = event.seq
            self._last_end = event
        elif isinstance(data, InputAccepted):
            if data.key is not None:
                self._accepted_by_key[data.key] = event
        elif isinstance(data, InputSettled) and data.reason == UNDURABLE:
            self._accepted_by_key = {key: one for key, one in self._accepted_by_key.items() if _input_of(one) != data.input}
        elif isinstance(data, InstanceStart) and data.reason == "fork":
            self._accepted_by_key = {}


_INDEXED: Final = frozenset((TurnStart, InputAccepted, InputSettled, InstanceStart, TurnEnd, AssistantMessage, ToolCall))


def is_seed(parent: Parent | None, work: TurnState) -> bool:
    """Tell whether a log with this fold is a fork's seed: what it inherited, closers at most after it, no instance."""
    return parent is not None and work.began <= parent.at


def _input_of(event: Event) -> InputId | None:
    return event.data.input if isinstance(event.data, InputAccepted) else None


def waiting(session_log: SessionLog, modes: Container[str]) -> list[PendingInput]:
    """Give the durable inputs of the running instance that wait in one of `modes`, in the order of acceptance."""
    opened_at, durable = session_log.opened_at, session_log.handle.durable
    return [one for one in session_log.folds.pending if one.mode in modes and opened_at < one.seq <= durable]


def join_before_step(session_log: SessionLog, turn: int) -> None:
    """Let what waits join the history before a step of `turn` starts: first steering, then injections."""
    steering = [
        Draft(SteeringMessage(turn, enclosed_content("steering", one.content), one.source, one.input), surface_op="append")
        for one in waiting(session_log, ("steer",))
    ]
    session_log.append(*steering, *joining_context(session_log))


def joining_context(session_log: SessionLog) -> list[Draft]:
    """Give the drafts by which waiting injections join the history: before a step, or at the end of a turn."""
    return [as_context(one) for one in waiting(session_log, ("inject",))]


def as_context(given: PendingInput) -> Draft:
    """Give the draft by which an injection joins the history."""
    content = enclosed_content("context", given.content)
    return Draft(ContextMessage(content, given.source, "context", given.input), surface_op="append")


class LoggedResults:
    """The results of one session; `readable` says how many characters of a text the model may be given at once."""

    def __init__(self, session_log: SessionLog, readable: Callable[[str], int]) -> None:
        self._log = session_log
        self._readable = readable
        self._looked = 0
        self._are_shortened = False

    @property
    def are_shortened(self) -> bool:
        """Whether the model sees one of them shortened. O(1), but for the first time after a replace."""
        surface = self._log.folds.request_state.surface
        if surface.replace_generation != self._looked:
            self._looked = surface.replace_generation
            shorter = (node for node in surface.nodes if isinstance(node.surface_op, Replace))
            self._are_shortened = any(isinstance(node.data, ToolResult) for node in shorter)
        return self._are_shortened

    def text(self, seq: int) -> str | None:
        """Give the text of the result with that seq, None where there is none."""
        handle = self._log.handle
        if not 0 <= seq <= handle.tail:
            return None
        data = next(iter(handle.read(seq, seq))).data
        if not isinstance(data, ToolResult):
            return None
        return "\n".join(block.text for block in data.content if isinstance(block, TextBlock))

    def readable(self, text: str) -> int:
        """Give how many of a text's first characters the model may be given at once."""
        return self._readable(text)
