"""Params: what belongs together, what a release cannot honour yet, and how they become the log's own types."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from refold_protocol.rpc.wire_errors import WireError
from refold_protocol.session.events import CompactionSettings, LimitSettings, PermissionSettings, SessionSettings
from refold_protocol.session.messages import TextBlock
from refold_server.rpc.method import TextInput, decode_params, input_content
from refold_server.rpc.method_table import METHODS
from refold_server.rpc.session_methods import SessionOpenParams, first_settings

TEXT = [{"type": "text", "text": "hello"}]


def decode(method: str, **given: Any) -> Any:
    return decode_params(METHODS[method], Raw(msgspec.json.encode(given)))


@pytest.mark.parametrize(
    ("method", "given"),
    [
        ("session/open", {"session": "s"}),
        ("session/open", {"session": "s", "mode": "read"}),
        ("session/open", {"cwd": "/w", "title": "t"}),
        ("session/read", {"session": "s", "view": "status", "at": -1}),
        ("turn/start", {"session": "s", "content": TEXT, "ifRunning": "error"}),
        ("turn/start", {"session": "s", "input": "i"}),
        ("turn/wait", {"session": "s", "turn": 1}),
        ("turn/wait", {"session": "s", "input": "i"}),
        ("event/subscribe", {"session": "s", "after": -1, "chunks": "all"}),
        ("event/subscribe", {"session": "s", "after": "tail"}),
        ("log/verify", {"session": "s"}),
        ("session/open", {"cwd": "/w", "compaction": {"auto": False}}),
        ("session/configure", {"session": "s", "patch": {"compaction": {"thresholdRatio": 0.5, "retainTokens": 1}}}),
    ],
)
def test_params_that_belong_together_pass(method: str, given: dict[str, Any]) -> None:
    decode(method, **given)


@pytest.mark.parametrize(
    ("method", "given", "message"),
    [
        ("session/open", {}, "give either `session`"),
        ("session/open", {"session": "s", "cwd": "/w"}, "give either `session`"),
        ("session/open", {"session": "s", "model": "a/b"}, "for a new session only"),
        ("session/open", {"cwd": "/w", "mode": "read"}, "cannot be opened for reading"),
        ("session/open", {"cwd": "/w", "limits": {"steps": 0}}, r"\$\.limits\.steps"),
        ("session/read", {"session": "s", "view": "status", "at": -2}, r"\$\.at"),
        ("turn/start", {"session": "s"}, "give either `content` or `input`"),
        ("turn/start", {"session": "s", "content": TEXT, "input": "i"}, "give either `content` or `input`"),
        ("turn/start", {"session": "s", "content": "hello"}, r"\$\.content"),
        ("turn/wait", {"session": "s"}, "give either `turn` or `input`"),
        ("turn/wait", {"session": "s", "turn": 1, "input": "i"}, "give either `turn` or `input`"),
        ("event/subscribe", {"session": "s"}, r"\$\.after: this parameter is missing"),
        ("event/subscribe", {"session": "s", "after": -2}, r"\$\.after"),
        ("event/subscribe", {"session": "s", "after": "head"}, r"\$\.after"),
        ("request/rebuild", {"session": "s"}, "give either `turn` and `step`, or `compact`"),
        ("request/rebuild", {"session": "s", "turn": 1}, "give either `turn` and `step`, or `compact`"),
        ("request/rebuild", {"session": "s", "turn": 1, "step": 1, "compact": 3}, "or `compact`"),
        ("request/rebuild", {"session": "s", "compact": -1}, r"\$\.compact"),
        ("session/open", {"cwd": "/w", "permissions": {"mode": "all"}}, r"\$.permissions.mode"),
        ("session/open", {"session": "s", "compaction": {"auto": False}}, "for a new session only"),
        ("session/open", {"cwd": "/w", "compaction": {}}, "say what of compaction is set"),
        ("session/open", {"cwd": "/w", "compaction": {"attempts": 1}}, "attempts"),
        ("session/open", {"cwd": "/w", "compaction": {"thresholdRatio": 1}}, r"\$\.compaction\.thresholdRatio"),
        ("session/configure", {"session": "s", "patch": {"compaction": {"thresholdRatio": 0}}}, r"thresholdRatio"),
        ("session/configure", {"session": "s", "patch": {"compaction": {"retainTokens": 0}}}, r"compaction\.retainTokens"),
        ("session/configure", {"session": "s", "patch": {}}, "limits, tools or compaction"),
    ],
)
def test_params_that_cannot_be_honoured_are_refused(method: str, given: dict[str, Any], message: str) -> None:
    with pytest.raises(WireError, match=message):
        decode(method, **given)


def test_the_settings_of_a_new_session_become_those_of_the_log() -> None:
    full = decode("session/open", cwd="/w", model="a/b", permissions={"mode": "ask"}, limits={"steps": 3})
    assert first_settings(full) == SessionSettings("a/b", None, PermissionSettings("ask"), LimitSettings(3))
    spare = decode("session/open", cwd="/w", compaction={"auto": False, "thresholdRatio": 0.5, "retainTokens": 9})
    assert first_settings(spare) == SessionSettings(compaction=CompactionSettings(False, 0.5, 9))
    assert first_settings(SessionOpenParams(cwd="/w")) == SessionSettings()


def test_the_content_of_a_prompt_becomes_that_of_the_log() -> None:
    assert input_content((TextInput("a"), TextInput("b"))) == (TextBlock("a"), TextBlock("b"))
