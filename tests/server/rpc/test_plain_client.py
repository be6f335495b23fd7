"""A client that uses nothing but LSP gets only what LSP knows; with its first native request it is native."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from refold_protocol.ids import ApprovalId, CallId, SessionId
from refold_protocol.session.events import ApprovalSubject
from refold_server.rpc.approval_methods import APPROVAL_REQUEST, ApprovalRequestParams, approval_options
from refold_server.rpc.notices import SessionTroubleNotice
from refold_server.rpc.plain_client import MAX_LINES, PlainClient

pytestmark = pytest.mark.anyio


class Peer:
    """What was sent to a client, and what it answers."""

    def __init__(self, answer: object = None) -> None:
        self.told: list[tuple[str, Any]] = []
        self.asked: list[tuple[str, Any]] = []
        self.client = PlainClient(lambda method, params: self.told.append((method, params)), self._answer)
        self._reply = Raw(msgspec.json.encode(answer))

    async def _answer(self, method: str, params: object) -> Raw:
        self.asked.append((method, params))
        return self._reply


def question(text: str) -> ApprovalRequestParams:
    subject = ApprovalSubject("diff", text)
    options = approval_options("edit_file")
    return ApprovalRequestParams(SessionId("s"), ApprovalId("a"), 1, CallId("c"), "edit_file", subject, options, "deny")


async def chosen(peer: Peer, text: str) -> Any:
    return msgspec.json.decode(await peer.client.ask(APPROVAL_REQUEST.name, question(text)))


async def test_a_question_is_a_message_with_its_options_and_the_answer_is_one_of_them() -> None:
    peer = Peer({"title": "Allow this call"})
    assert await chosen(peer, "+one") == {"option": "once"}
    ((method, asked),) = peer.asked
    assert method == "window/showMessageRequest"
    assert asked["message"] == "refold: may edit_file run?\n\n+one"
    assert [one["title"] for one in asked["actions"]] == ["Allow this call", "Allow edit_file for this session", "Deny"]


@pytest.mark.parametrize("answer", [None, {"title": "Something else"}])
async def test_no_answer_denies_and_says_so(answer: object) -> None:
    peer = Peer(answer)
    assert await chosen(peer, "+one") == {"option": "deny"}
    assert [method for method, _ in peer.told] == ["window/showMessage"]


async def test_what_cannot_be_seen_whole_is_not_asked() -> None:
    peer = Peer({"title": "Allow this call"})
    assert await chosen(peer, "+line\n" * MAX_LINES) == {"option": "deny"}
    assert (peer.asked, [method for method, _ in peer.told]) == ([], ["window/showMessage"])


async def test_a_native_client_is_asked_and_told_natively() -> None:
    peer = Peer({"option": "once"})
    trouble = SessionTroubleNotice(SessionId("s"), "log.full", 1, "no space")
    peer.client.notify("sessions/changed", {})
    peer.client.notify("session/trouble", trouble)
    peer.client.native = True
    peer.client.notify("session/trouble", trouble)
    assert [method for method, _ in peer.told] == ["window/showMessage", "session/trouble"]
    assert await chosen(peer, "+line\n" * MAX_LINES) == {"option": "once"}
    assert peer.asked[0][0] == "approval/request"
