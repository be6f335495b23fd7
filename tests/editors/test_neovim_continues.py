"""Neovim goes on when its daemon was killed: from the last event that was durable, with no ghost and nothing twice."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from tests.support.chat_stream import DONE, chunk, text
from tests.support.daemons import Place, types
from tests.support.fake_provider import FakeProvider, Gate, answer
from tests.support.neovim import Ending, Neovim

ROOT = Path(__file__).parents[2]

OPENED: Any = {
    "session": "s",
    "tail": -1,
    "durable": -1,
    "info": {"cwd": "/", "createdAt": 0},
    "status": {"status": "idle"},
    "pendingInputs": [],
    "instance": 1,
    "writer": "w0.-1",
}


def kill(nvim: Neovim) -> None:
    """Kill the daemon, and wait until it is no more."""
    pid = nvim.daemon()
    ending = Ending(pid)
    os.kill(pid, signal.SIGKILL)
    ending.wait()


def said(event: Any) -> str:
    """What a recorded reply says."""
    return "".join(block["text"] for block in event["data"]["content"])


def test_a_stream_whose_daemon_is_killed_is_continued_and_equals_the_log(place: Place) -> None:
    gate = Gate()
    answers = answer(text("One"), text(" two"), gate), answer(text("Three"), chunk({}, "stop"), DONE)
    with FakeProvider(*answers) as provider:
        place.provider(provider.base_url)
        with Neovim(place) as nvim:
            nvim.command("Refold")
            session = nvim.session()
            nvim.command("RefoldPrompt go")
            nvim.wait_chat("## You\n\ngo\n\n## Reply\n\nOne two")
            kill(nvim)
            nvim.wait_turn(1)
            assert nvim.session() == session
            ended = nvim.chat()
            nvim.command("RefoldPrompt on")
            nvim.wait_turn(2)
            assert nvim.notes == []
            assert nvim.chat() == f"{ended}\n\n## You\n\non\n\n## Reply\n\nThree"
    recorded = asyncio.run(place.recorded(session))
    partial = [said(event) for event in recorded if event["data"].get("interrupted")]
    kept = f"\n\n## Reply\n\n{partial[0]}" if partial else ""
    assert ended == f"## You\n\ngo{kept}\n\n*The daemon ended during this turn.*"
    assert types(recorded).count("instance/start") == 2


def test_a_session_that_was_never_used_is_replaced(place: Place) -> None:
    place.script({"text": "Yes."})
    with Neovim(place) as nvim:
        nvim.command("Refold")
        first = nvim.session()
        kill(nvim)
        nvim.wait(f"require('refold.sessions').current.id ~= '{first}'")
        nvim.session()
        nvim.command("RefoldPrompt go")
        nvim.wait_turn(1)
        assert nvim.chat() == "## You\n\ngo\n\n## Reply\n\nYes."
        assert nvim.notes == []


def test_a_prompt_that_waited_when_the_daemon_died_is_offered_again(place: Place) -> None:
    gate = Gate()
    with FakeProvider(answer(text("A"), gate), answer(text("B"), chunk({}, "stop"), DONE)) as provider:
        place.provider(provider.base_url)
        with Neovim(place) as nvim:
            nvim.command("Refold")
            nvim.session()
            nvim.command("RefoldPrompt one")
            nvim.wait_chat("## You\n\none\n\n## Reply\n\nA")
            nvim.command("RefoldPrompt two")
            nvim.wait("require('refold.sessions').current.following.reading.waiting == 1")
            kill(nvim)
            nvim.wait_turn(1)
            assert nvim.notes == ["refold: 1 prompt waits since before; :RefoldPending"]
            nvim.lua("vim.ui.select = function(items, how, fn) shown = vim.tbl_map(how.format_item, items); fn(items[1]) end")
            nvim.command("RefoldPending")
            nvim.wait_turn(2)
            assert nvim.lua("return shown") == ["run: two", "withdraw: two"]
            assert nvim.chat().endswith("*The daemon ended during this turn.*\n\n## You\n\ntwo\n\n## Reply\n\nB")
            nvim.command("RefoldPending")
            assert nvim.notes[1:] == ["refold: nothing waits"]


class Lives:
    """A daemon whose lives follow scripts, and a Neovim that talks to it."""

    def __init__(self, place: Place, *lives: Any) -> None:
        self.folder = place.root / "lives"
        self.folder.mkdir()
        (self.folder / "lives.json").write_text(json.dumps(lives))
        command = (sys.executable, "-m", "tests.support.lives_daemon", str(self.folder))
        self.nvim = Neovim(place, command=command, env={"PYTHONPATH": str(ROOT)})

    def heard(self, life: int, method: str) -> list[Any]:
        """Give the params of each such message that a life read, in order."""
        lines = (self.folder / f"life-{life}.jsonl").read_text().split("\n")
        messages = [json.loads(line) for line in lines if line]
        return [message.get("params") for message in messages if message.get("method") == method]


def event(seq: int, kind: str, **data: Any) -> Any:
    """Give an event as a daemon tells it."""
    surface = {"surfaceOp": "append"} if kind in ("user/message", "assistant/message") else {}
    return {"type": kind, "seq": seq, "time": 0, "data": data, **surface}


def delta(seq: int, piece: str) -> Any:
    """Give a chunk with text."""
    return event(seq, "assistant/chunk", turn=1, step=1, attempt=1, chunk={"type": "text-delta", "index": 0, "text": piece})


def told(*events: Any, prev: int, durable: int, writer: str = "w0.-1") -> Any:
    """Give a `session/events`."""
    params = {"subscription": 7, "events": events, "prev": prev, "tail": 99, "durable": durable, "writer": writer}
    return {"method": "session/events", "params": {**params, "caughtUp": True}}


PROMPT = event(0, "user/message", content=[{"type": "text", "text": "go"}], source={"kind": "client"})
SUBSCRIBED = {"subscription": 7, "tail": -1, "durable": -1, "writer": "w0.-1"}
FIRST: Any = {
    "answers": {"session/open": OPENED, "event/subscribe": SUBSCRIBED},
    "then": {
        "event/subscribe": [
            told(PROMPT, event(1, "turn/start", turn=1), delta(2, "kept"), prev=-1, durable=2),
            told(delta(3, " ghost"), delta(4, " text"), prev=2, durable=2),
        ]
    },
}
"""A life that tells more than it makes durable."""


def test_what_was_not_durable_is_off_the_page_before_the_new_daemon_speaks(place: Place) -> None:
    second: Any = {
        "answers": {"session/open": OPENED, "event/subscribe": {**SUBSCRIBED, "writer": "w1.2"}},
        "then": {"tool/list": [told(delta(3, " for good"), prev=2, durable=3, writer="w1.2")]},
    }
    lives = Lives(place, FIRST, second)
    with lives.nvim as nvim:
        nvim.command("Refold")
        nvim.session()
        nvim.wait_chat("## You\n\ngo\n\n## Reply\n\nkept ghost text")
        kill(nvim)
        nvim.wait_chat("## You\n\ngo\n\n## Reply\n\nkept")
        nvim.session()
        assert lives.heard(1, "event/subscribe") == [{"session": "s", "after": 2, "writer": "w0.-1", "chunks": "live"}]
        nvim.ask("tool/list")
        nvim.wait_chat("## You\n\ngo\n\n## Reply\n\nkept for good")


def test_a_log_that_has_not_what_was_promised_is_shown_anew(place: Place) -> None:
    diverged = {"error": {"code": -31000, "message": "gone", "data": {"kind": "cursor.diverged", "durable": 0}}}
    second: Any = {
        "answers": {"session/open": OPENED, "event/subscribe": [diverged, {**SUBSCRIBED, "writer": "w1.0"}]},
        "then": {"tool/list": [told(PROMPT, prev=-1, durable=0, writer="w1.0")]},
    }
    lives = Lives(place, FIRST, second)
    with lives.nvim as nvim:
        nvim.command("Refold")
        nvim.session()
        nvim.wait_chat("## You\n\ngo\n\n## Reply\n\nkept ghost text")
        kill(nvim)
        nvim.wait_chat("")
        nvim.session()
        assert [params["after"] for params in lives.heard(1, "event/subscribe")] == [2, -1]
        nvim.ask("tool/list")
        nvim.wait_chat("## You\n\ngo")


def test_another_writer_on_the_same_connection_makes_it_subscribe_anew(place: Place) -> None:
    life: Any = {
        "answers": {
            "session/open": OPENED,
            "event/subscribe": [SUBSCRIBED, {**SUBSCRIBED, "subscription": 8, "writer": "w1.2"}],
        },
        "then": {**FIRST["then"], "tool/list": [told(delta(3, " other"), prev=2, durable=3, writer="w1.2")]},
    }
    lives = Lives(place, life)
    with lives.nvim as nvim:
        nvim.command("Refold")
        nvim.session()
        nvim.wait_chat("## You\n\ngo\n\n## Reply\n\nkept ghost text")
        nvim.ask("tool/list")
        nvim.wait_chat("## You\n\ngo\n\n## Reply\n\nkept")
        nvim.ask("daemon/health")
        assert [params["after"] for params in lives.heard(0, "event/subscribe")] == [-1, 2]
        assert lives.heard(0, "event/unsubscribe") == [{"subscription": 7}]


def test_a_gap_makes_it_subscribe_anew(place: Place) -> None:
    life: Any = {
        "answers": {"session/open": OPENED, "event/subscribe": [SUBSCRIBED, {**SUBSCRIBED, "subscription": 8}]},
        "then": {**FIRST["then"], "tool/list": [told(delta(7, "later"), prev=6, durable=7)]},
    }
    lives = Lives(place, life)
    with lives.nvim as nvim:
        nvim.command("Refold")
        nvim.session()
        nvim.wait_chat("## You\n\ngo\n\n## Reply\n\nkept ghost text")
        nvim.ask("tool/list")
        nvim.wait_chat("## You\n\ngo\n\n## Reply\n\nkept")
        nvim.ask("daemon/health")
        assert [params["after"] for params in lives.heard(0, "event/subscribe")] == [-1, 2]


def test_a_prompt_that_the_daemon_did_not_live_to_take_is_given_back(place: Place) -> None:
    quiet = told(prev=-1, durable=-1)
    first: Any = {"answers": {"session/open": OPENED, "event/subscribe": SUBSCRIBED, "turn/start": None}}
    second = {"answers": {"session/open": OPENED, "event/subscribe": SUBSCRIBED}, "then": {"event/subscribe": [quiet]}}
    lives = Lives(place, first, second)
    with lives.nvim as nvim:
        nvim.command("Refold")
        nvim.session()
        nvim.keys("iDo it<Esc><CR>")
        nvim.wait("next(vim.api.nvim_buf_get_lines(0, 0, -1, true)) and vim.api.nvim_get_current_line() == ''")
        nvim.ask("daemon/health")
        assert len(lives.heard(0, "turn/start")) == 1
        kill(nvim)
        nvim.wait("#notes == 1")
        assert nvim.lua("return vim.api.nvim_buf_get_lines(0, 0, -1, true)") == ["Do it"]
        assert nvim.notes[0].startswith("refold: the daemon ended before it took the prompt")


def test_a_prompt_that_the_log_has_is_not_given_back(place: Place) -> None:
    accepted = event(0, "input/accepted", input="i", mode="prompt", content=[{"type": "text", "text": "Do it"}])
    first: Any = {"answers": {"session/open": OPENED, "event/subscribe": SUBSCRIBED, "turn/start": None}}
    second = {
        "answers": {"session/open": OPENED, "event/subscribe": SUBSCRIBED},
        "then": {"event/subscribe": [told(accepted, prev=-1, durable=0)]},
    }
    lives = Lives(place, first, second)
    with lives.nvim as nvim:
        nvim.command("Refold")
        nvim.session()
        nvim.command("RefoldPrompt Do it")
        nvim.ask("daemon/health")
        kill(nvim)
        nvim.wait("require('refold.sessions').current.following.reading.waiting == 1")
        nvim.wait("not require('refold.sessions').current.following.flushing")
        assert nvim.lua("return vim.api.nvim_buf_get_lines(0, 0, -1, true)") == [""]
        assert nvim.notes == []


def test_a_daemon_that_dies_again_and_again_is_given_up_until_it_is_asked_for(place: Place) -> None:
    place.script({"text": "Yes."})
    with Neovim(place) as nvim:
        nvim.command("Refold")
        nvim.session()
        nvim.lua("local real = require('refold.settings').get(); good = real.cmd; real.cmd = { 'false' }")
        kill(nvim)
        nvim.wait("#notes == 1")
        assert nvim.notes == ["refold: the daemon ended 5 times in a minute; :Refold tries again"]
        nvim.lua("require('refold.settings').get().cmd = good")
        nvim.command("RefoldPrompt go")
        nvim.wait_turn(1)
        assert nvim.chat() == "## You\n\ngo\n\n## Reply\n\nYes."


def test_a_daemon_whose_configuration_is_wrong_is_not_started_again_and_again(place: Place) -> None:
    with Neovim(place) as nvim:
        nvim.command("Refold")
        nvim.session()
        place.configure("modle = 1\n")
        kill(nvim)
        nvim.wait("#notes == 1")
        assert nvim.notes[0].startswith("refold: the daemon ended (exit code 2: refold: config.invalid: modle: ")
        assert nvim.lua("return #vim.lsp.get_clients({ name = 'refold', _uninitialized = true })") == 0
