"""Makes plugins of single handlers, and proves a log from a reading that shares nothing with the loop that wrote it."""

from __future__ import annotations

from typing import Any

from refold_protocol.dialects.dialect_table import dialect_named
from refold_protocol.session.codec import decode_event
from refold_protocol.session.events import (
    AssistantMessage,
    CompactStart,
    ContextMessage,
    Event,
    PluginFailed,
    TurnEnd,
    TurnError,
)
from refold_protocol.session.messages import Message, text_content, text_of
from refold_protocol.session.request import rebuild_summary, sent_requests
from refold_server.plugins.hook_table import Hook
from refold_server.plugins.plugin_registry import PluginRegistry, Plugins, registered
from refold_server.sessions.session import Session
from tests.support.loop_host import ScriptedProvider
from tests.support.loops import assert_proven, last


def plugin(*rows: tuple[Hook[Any], Any], name: str = "p", limit_s: float | None = None) -> Plugins:
    """A plugin with one handler at each of some seams; `limit_s` holds where a seam has a limit."""

    def register(registry: PluginRegistry) -> None:
        for seam, handler in rows:
            registry.on(seam, handler, limit_s=None if seam.limit_s is None else limit_s)

    return registered(name, register)


def together(*plugins: Plugins) -> Plugins:
    """Several plugins, in this order."""
    first, *later = plugins
    for one in later:
        first = first.then(one)
    return first


def user(text: str) -> Message:
    """A message of the user."""
    return Message("user", text_content(text))


def assert_rebuilt(session: Session, provider: ScriptedProvider) -> None:
    """The log verifies, and a fresh reading of its lines gives the requests and bytes that the provider was sent."""
    assert_proven(session)
    events = [decode_event(line) for line in session.session_log.handle.lines(0)]
    requests = [request for _, _, request in sent_requests(events)]
    summaries = [event.seq for event in events if isinstance(event.data, CompactStart)]
    requests += [rebuild_summary(events, seq) for seq in summaries]
    requests.sort(key=lambda request: provider.requests.index(request))
    assert requests == provider.requests
    assert [dialect_named(one.header.config.dialect).encode(one, {}) for one in requests] == provider.bodies


def failures(session: Session) -> list[tuple[str, str]]:
    """The plugin and seam of each recorded failure."""
    found = (event.data for event in session.session_log.handle.read())
    return [(data.plugin, data.seam) for data in found if isinstance(data, PluginFailed)]


def said(session: Session) -> list[tuple[str | None, str]]:
    """Source and text of all context in the log."""
    found = (event.data for event in session.session_log.handle.read())
    return [(data.source.name, text_of(data.content)) for data in found if isinstance(data, ContextMessage)]


def spoken(provider: ScriptedProvider, request: int = -1) -> list[str]:
    """The texts of a request's messages, prefix included."""
    return [text_of(message.content) for message in provider.requests[request].messages()]


def of_type(session: Session, kind: type[Any]) -> list[Event]:
    """The events whose data is of a kind."""
    return [event for event in session.session_log.handle.read() if isinstance(event.data, kind)]


def reply(session: Session) -> str:
    """The text of the last reply."""
    message = last(session, AssistantMessage)
    assert isinstance(message, AssistantMessage)
    return text_of(message.content)


def error_of(event: object) -> TurnError:
    """The error that a turn ended with."""
    data = getattr(event, "data", None)
    assert isinstance(data, TurnEnd)
    assert data.reason.error is not None
    return data.reason.error
