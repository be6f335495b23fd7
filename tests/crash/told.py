"""What the clients of one store were told, over all lives of its daemons: the facts that no kill may take back.

A fact is a reply, or an event whose seq is not above a `durable` that was told. Events that were told before they were durable
are kept apart: they may be missing, but where they are there they must be the same. Fed with the pipe of each life.
"""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from refold_protocol.session.codec import line_type
from refold_server.rpc.notices import SessionEventsNotice
from tests.crash.pipe import whole_lines
from tests.support.notices import TOLD_WHEN_DURABLE


class Reply(Struct, frozen=True):
    """A request that was answered, with the exact text of its result."""

    method: str
    params: dict[str, Any]
    raw: bytes

    @property
    def result(self) -> Any:
        """The result."""
        return json.loads(self.raw)


NOTHING: Final = Raw()


class _Message(Struct, frozen=True):
    id: int | None = None
    method: str | None = None
    params: Raw = NOTHING
    result: Raw = NOTHING
    error: Raw = NOTHING


class Told:
    """The facts, by session; `gone` are deleted ones, `total` counts every fact once. What was sent, accepted, told before it
    was durable, or is under way, is of the last life only."""

    def __init__(self) -> None:
        self.lines: dict[str, dict[int, bytes]] = {}
        self.durable: dict[str, int] = {}
        self.replies: dict[str, list[Reply]] = {}
        self.archived: dict[str, bool | None] = {}
        self.gone: set[str] = set()
        self._keys: dict[tuple[str, str], str] = {}
        self.heads: dict[str, tuple[int, str]] = {}
        self.faults: list[str] = []
        self.total = 0
        self.begin()

    def begin(self) -> None:
        """Another life begins."""
        self.loose: dict[str, dict[int, bytes]] = {}
        self.accepted: dict[str, list[tuple[int, int]]] = {}
        self.sent: set[str] = set()
        self.gone_now: set[str] = set()
        self.hit: tuple[str, int] | None = None
        self._left: list[tuple[str, dict[str, Any]]] = []
        self._archivers: dict[str, int] = {}
        self._connection = 0
        self._asked: dict[int, tuple[str, dict[str, Any]]] = {}

    def _connect(self) -> None:
        """Another connection of the same life begins: what it asks and follows has numbers of its own."""
        self._connection += 1
        self.loose = {}  # who goes on with a session need not have what its dead owner had accepted
        self._left += self._asked.values()
        self._asked = {}
        self._followed: dict[int, str] = {}
        self._open: set[str] = set()
        self._tails: dict[str, int] = {}

    def under_way(self, method: str) -> set[str]:
        """The sessions about which such a request was not answered: what it asks for may have happened."""
        return {params.get("session", "") for name, params in (*self._left, *self._asked.values()) if name == method}

    def settle(self, heads: dict[str, tuple[int, str]]) -> None:
        """A look found these logs: what was on disk once never changes, and what was to be deleted is gone or not."""
        self.heads = heads
        for session in self.under_way("session/delete") - set(heads) - self.gone:
            self._forget(session)

    def hear(self, data: bytes) -> None:
        """Take in what came through the pipe of one child of a life; of several, in the order in which they died."""
        self._connect()
        for mark, text in whole_lines(data):
            match mark:
                case ">":
                    self._ask(msgspec.json.decode(text, type=_Message))
                case "<":
                    self._tell(msgspec.json.decode(text, type=_Message))
                case "b":
                    self.sent.add(text.decode())
                    self.total += 1
                case "+":
                    session, tail, ms = text.decode().split()
                    self.accepted.setdefault(session, []).append((int(tail), int(ms)))
                    self._tails[session] = int(tail)
                case "*":
                    ms, _, name = text.decode().partition(" ")
                    self.hit = name, int(ms)
                case _:
                    raise AssertionError(f"no line begins with {mark}")

    def _ask(self, message: _Message) -> None:
        if message.id is None or message.method is None:
            return
        params = json.loads(bytes(message.params) or b"{}")
        session = params.get("session", "")
        if message.method == "session/archive":  # of two at one time nobody knows which was last
            self.archived[session] = None
            self._archivers.setdefault(session, self._connection)
        self._asked[message.id] = message.method, params

    def _tell(self, message: _Message) -> None:
        if message.method is None:
            assert message.id is not None
            method, params = self._asked.pop(message.id)
            if not bytes(message.error):
                self._reply(Reply(method, params, bytes(message.result)))
            return
        params = bytes(message.params) or b"{}"
        if message.method == "session/events":
            self._events(msgspec.json.decode(params, type=SessionEventsNotice))
        elif message.method == "sessions/changed":
            changed = json.loads(params)
            self._rise(changed["session"], changed["tail"])
        elif message.method == "session/trouble":
            trouble = json.loads(params)
            self._rise(trouble["session"], trouble["durable"])

    def _events(self, notice: SessionEventsNotice) -> None:
        session = self._followed[notice.subscription]
        kept, loose = self.lines.setdefault(session, {}), self.loose.setdefault(session, {})
        for place, raw in enumerate(notice.events):
            seq, line = notice.prev + 1 + place, bytes(raw)
            if kept.get(seq, line) != line:
                self.faults.append(f"session {session}: event {seq} was told in two ways")
            if seq > max(notice.durable, self.durable.get(session, -1)) and line_type(line) in TOLD_WHEN_DURABLE:
                self.faults.append(f"session {session}: event {seq} was told before it was durable: {line.decode()}")
            if seq not in kept:
                loose[seq] = line
        self._rise(session, notice.durable)

    def _rise(self, session: str, durable: int) -> None:
        """Somebody was told that the events of a session up to `durable` are durable."""
        if session in self.gone:  # it was deleted meanwhile
            return
        self.durable[session] = durable = max(durable, self.durable.get(session, -1))
        loose = self.loose.get(session, {})
        for seq in [seq for seq in loose if seq <= durable]:
            self.lines.setdefault(session, {})[seq] = loose.pop(seq)
            self.total += 1

    def _reply(self, reply: Reply) -> None:
        session, result = reply.params.get("session", ""), reply.result
        match reply.method:
            case "session/open":
                self._opened(reply, result)
            case "event/subscribe":
                self._rise(session, result["durable"])
                self._followed[result["subscription"]] = session
            case "session/fork":
                self._forked(session, result["session"], result["tail"])
                self._add(result["session"], reply)
            case "session/delete":
                self.total += 1
                self._forget(session)
            case "session/archive":
                if session not in self.under_way("session/archive") and self._archivers[session] == self._connection:
                    self.archived[session] = reply.params["archived"]
            case "session/close":
                self._open.discard(session)
                self._rise(session, self._tails.get(session, -1))
            case "session/flush":
                self._rise(session, result["durable"])
                self._add(session, reply)
            case (
                "turn/start" | "session/inject" | "session/rename" | "session/configure" | "input/withdraw" | "approval/answer"
            ):
                self._rise(session, result["seq"])
                self._add(session, reply)
            case "session/compact":
                self._rise(session, result["seq"] + 1)  # the end of the compaction follows its message
                self._add(session, reply)
            case "turn/wait" | "turn/interrupt":
                self._add(session, reply)
            case _:
                return

    def _opened(self, reply: Reply, result: Any) -> None:
        session = result["session"]
        self._rise(session, result["durable"])
        if "session" in reply.params:
            self._add(session, reply)
            if session not in self._open and result["tail"] != result["durable"]:
                self.faults.append(f"session {session}: it was opened before it was durable: {reply.raw.decode()}")
        self._open.add(session)

    def _add(self, session: str, reply: Reply) -> None:
        self.total += 1
        key = reply.params.get("key")
        if key is not None:
            first = self._keys.setdefault((session, key), reply.result["input"])
            if first != reply.result["input"]:
                self.faults.append(f"session {session}: the key {key!r} was answered with {first}, then {reply.raw.decode()}")
        if session not in self.gone:
            self.replies.setdefault(session, []).append(reply)

    def _forked(self, parent: str, fork: str, tail: int) -> None:
        """A fork begins with what was told of its parent. Who died first may have deleted it: that one is heard first."""
        if fork in self.gone:
            return
        inherited = self.lines.get(parent, {})
        self.lines[fork] = {seq: line for seq, line in inherited.items() if seq <= tail}
        self.durable[fork] = tail

    def _forget(self, session: str) -> None:
        self.gone.add(session)
        self.gone_now.add(session)
        for rows in (self.lines, self.durable, self.replies, self.archived, self.heads, self.loose, self.accepted):
            rows.pop(session, None)
