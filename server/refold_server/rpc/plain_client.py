"""Client that has used nothing but LSP so far: it gets only what LSP knows.

Native notifications are left out for it, troubles become messages, and a question becomes `window/showMessageRequest`. What
does not fit into a message is not asked, since nobody could see it whole: it is denied, and the person is told. With its first
native request a client is native for good.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import msgspec
from msgspec import Raw, Struct

from refold_server.rpc.approval_methods import ApprovalRequestParams
from refold_server.rpc.notices import SessionTroubleNotice

Notify: TypeAlias = Callable[[str, object], None]
Request: TypeAlias = Callable[[str, object], Awaitable[Raw]]

MAX_LINES: Final = 40
MAX_CHARACTERS: Final = 4_000
"""How much of a question a message shows; no client scrolls through more."""

_WARNING: Final = 2
_INFORMATION: Final = 3


class _Action(Struct, frozen=True):
    title: str


class PlainClient:
    """One client; `native` once it used a native method."""

    def __init__(self, notify: Notify, request: Request) -> None:
        self.native = False
        self._notify = notify
        self._request = request

    def notify(self, method: str, params: object = None) -> None:
        """Send a native notification, to a client that knows it."""
        if self.native:
            self._notify(method, params)
        elif isinstance(params, SessionTroubleNotice):
            self._show(params.message)

    async def ask(self, method: str, params: object = None) -> Raw:
        """Ask `approval/request`, or in its place a message with the options as its actions; give the reply in the native form.
        Raises PeerError and PeerGoneError."""
        if self.native or not isinstance(params, ApprovalRequestParams):
            return await self._request(method, params)
        text = params.subject.text
        if len(text) > MAX_CHARACTERS or text.count("\n") >= MAX_LINES:
            self._show(
                f"A call of {params.tool} was denied: what it would do does not fit into a message. "
                "Allow such calls in the configuration, or go on with the session in a client that shows it."
            )
            return _chosen(params.default)
        actions = [{"title": option.label} for option in params.options]
        message = f"refold: may {params.tool} run?\n\n{text}"
        asked = {"type": _WARNING, "message": message, "actions": actions}
        chosen = msgspec.json.decode(await self._request("window/showMessageRequest", asked), type=_Action | None)
        option = next((one.id for one in params.options if chosen is not None and one.label == chosen.title), None)
        if option is None:
            self._show(f"A call of {params.tool} was denied: nobody chose an answer.")
        return _chosen(option or params.default)

    def tell(self, text: str) -> None:
        """Show what a native client learns from events, to one that does not."""
        if not self.native:
            self._show(text, _INFORMATION)

    def _show(self, text: str, kind: int = _WARNING) -> None:
        self._notify("window/showMessage", {"type": kind, "message": f"refold: {text}"})


def _chosen(option: str) -> Raw:
    return Raw(msgspec.json.encode({"option": option}))
