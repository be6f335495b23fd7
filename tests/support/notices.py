"""Looking at `session/events` as they come over the wire, and the rules that hold for each of them whatever happens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio

from refold_client import Client
from tests.support.daemons import Json

TOLD_WHEN_DURABLE = {"input/accepted", "input/settled", "tool/call", "turn/end"}
"""Event types with an effect outside the log that this release has."""


class Notices:
    """All notifications of one subscription, checked as they come: in order, never too early, and without a gap where it
    asked for the whole."""

    def __init__(self, after: int, *, whole: bool = True) -> None:
        self.all: list[Json] = []
        self.events: list[Json] = []
        self.reply: Json = {}
        self.first = after
        self.last = after
        self.whole = whole
        self._fault: AssertionError | None = None
        self._news = anyio.Event()

    @property
    def durable(self) -> int:
        """What the last notification said of it; −1 before the first."""
        return self.all[-1]["durable"] if self.all else -1

    async def until(self, condition: Callable[[Notices], bool]) -> None:
        """Wait until something holds of what has come."""
        while not condition(self):
            if self._fault is not None:
                raise self._fault
            await self._news.wait()

    def take(self, notice: Json) -> None:
        """Take one, and check it against those before; `until` raises what is found wrong, too."""
        try:
            self._take(notice)
        except AssertionError as error:
            self._fault = error
            raise
        finally:
            self._news.set()
            self._news = anyio.Event()

    def _take(self, notice: Json) -> None:
        assert notice["prev"] == self.last
        for event in notice["events"]:
            assert event["seq"] == self.last + 1 or (event["seq"] > self.last and not self.whole)
            self.last = event["seq"]
            assert event["type"] not in TOLD_WHEN_DURABLE or event["seq"] <= notice["durable"], event
        assert self.durable <= notice["durable"] <= notice["tail"]
        assert self.last <= notice["tail"]
        assert len(notice["events"]) <= 512
        self.all.append(notice)
        self.events += notice["events"]


class Wire:
    """The subscriptions of one connection, seen from the wire. Takes the place of the client's own."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._open: dict[int, Notices] = {}
        self._over: set[int] = set()
        self.late: list[Json] = []
        client.connection.on_notification("session/events", self._take)

    async def subscribe(self, session: str, after: int | str, **more: Any) -> Notices:
        """event/subscribe; the reply comes before the first notification."""

        def claim(reply: Json) -> None:
            assert reply["subscription"] not in self._open
            notices = Notices(reply["tail"] if after == "tail" else int(after), whole=more.get("chunks", "all") == "all")
            notices.reply = reply
            self._open[reply["subscription"]] = notices

        params = {"session": session, "after": after, **more}
        reply = await self._client.connection.request("event/subscribe", params, claim=claim)
        return self._open[reply["subscription"]]

    async def unsubscribe(self, notices: Notices) -> None:
        """event/unsubscribe; what comes after its reply is `late`."""
        (subscription,) = (number for number, one in self._open.items() if one is notices)

        def claim(reply: Json) -> None:
            self._over.add(subscription)

        await self._client.connection.request("event/unsubscribe", {"subscription": subscription}, claim=claim)

    def _take(self, notice: Json) -> None:
        if notice["subscription"] in self._over:
            self.late.append(notice)
        else:
            self._open[notice["subscription"]].take(notice)
