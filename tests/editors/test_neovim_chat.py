"""The chat in Neovim: what is said is shown exactly, as it comes, without a line that is written twice."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tests.support.chat_stream import DONE, chunk, text
from tests.support.daemons import Place
from tests.support.fake_provider import FakeProvider, Gate, answer
from tests.support.neovim import Neovim

WATCH = """
    changes, notices = {}, 0
    local Following = require('refold.following')
    local take = Following.take
    Following.take = function(self, notice)
      notices = notices + 1
      return take(self, notice)
    end
    vim.api.nvim_buf_attach(require('refold.sessions').current.buffer, false, { on_bytes = function(
      _, _, _, _, _, start, _, _, old, _, _, new) table.insert(changes, { start, old, new }) end })
"""
"""Note each change of the chat's buffer: where, how many bytes were there, how many are. Count the notifications of events."""

END = chunk({}, "stop") + DONE


def begun(nvim: Neovim) -> str:
    """Open the chat; give the session's id. From here on the changes of its buffer are noted."""
    nvim.command("Refold")
    session = nvim.session()
    nvim.lua(WATCH)
    return session


def appended(nvim: Neovim) -> list[Any]:
    """Give the changes, each of which must have added text at the end and nothing else."""
    changes: list[Any] = nvim.lua("return changes")
    length = 0
    for start, old, new in changes:
        assert (start, old) == (length, 0)
        length += new
    return changes


def test_a_reply_is_shown_while_it_streams_and_nothing_is_written_twice(place: Place) -> None:
    before, within = Gate(), Gate()
    with FakeProvider(answer(before, text("Hé"), within, text("llo\n"), text("\n  wörld 🦊"), END)) as provider:
        place.provider(provider.base_url)
        with Neovim(place) as nvim:
            begun(nvim)
            nvim.command("RefoldPrompt Say hello,")
            nvim.wait_chat("## You\n\nSay hello,")
            before.open()
            nvim.wait_chat("## You\n\nSay hello,\n\n## Reply\n\nHé")
            within.open()
            nvim.wait_turn(1)
            assert nvim.chat() == "## You\n\nSay hello,\n\n## Reply\n\nHéllo\n\n  wörld 🦊"
            appended(nvim)


def test_a_flood_of_chunks_makes_at_most_one_change_of_the_buffer_a_notification(place: Place) -> None:
    said = "".join(f"line {number}\n" for number in range(3_000))
    place.script({"text": said, "chunk": 4})
    with Neovim(place) as nvim:
        session = begun(nvim)
        nvim.command("RefoldPrompt go")
        nvim.wait_turn(1)
        assert nvim.chat() == f"## You\n\ngo\n\n## Reply\n\n{said}"
        assert len(appended(nvim)) <= nvim.lua("return notices")
    events = asyncio.run(place.recorded(session))
    assert sum(event["type"] == "assistant/chunk" for event in events) > 5_000


def test_a_tool_call_is_one_line_with_what_came_of_it_beside_it(place: Place) -> None:
    (place.workspace / "two.txt").write_text("first\nsecond\n")
    calls: list[Any] = [
        {"name": "read_file", "arguments": {"path": "two.txt"}, "id": "c1"},
        {"name": "read_file", "arguments": {"path": "none.txt"}, "id": "c2"},
    ]
    place.script({"text": "I look.", "calls": calls}, {"text": "Done."})
    with Neovim(place) as nvim:
        begun(nvim)
        nvim.command("RefoldPrompt look")
        nvim.wait_turn(1)
        lines = ['▸ read_file {"path":"two.txt"}', '▸ read_file {"path":"none.txt"}']
        assert nvim.chat() == "\n".join(["## You\n\nlook\n\n## Reply\n\nI look.\n", *lines, "\nDone."])
        appended(nvim)
        beside = nvim.lua(
            """
            local buffer = require('refold.sessions').current.buffer
            local marks = vim.api.nvim_buf_get_extmarks(buffer, -1, 0, -1, { details = true })
            local said = {}
            for _, mark in ipairs(marks) do
              if mark[4].virt_text then table.insert(said, { mark[2], mark[4].virt_text[1][1] }) end
            end
            return said
            """
        )
        assert beside == [[8, "  ✓ 2 lines"], [9, "  ✗ TOOL_FAILED"]]


def test_a_look_at_a_tool_call_shows_its_arguments_and_its_result(place: Place) -> None:
    place.script({"calls": [{"name": "read_file", "arguments": {"path": "animals.txt"}, "id": "c1"}]}, {"text": "Done."})
    with Neovim(place) as nvim:
        begun(nvim)
        nvim.command("RefoldPrompt look")
        nvim.wait_turn(1)
        nvim.lua("vim.cmd.wincmd('k'); vim.api.nvim_win_set_cursor(0, { 7, 0 })")
        nvim.keys("K")
        nvim.wait("#vim.api.nvim_list_wins() == 4")
        shown = nvim.lua(
            """
            local float = vim.iter(vim.api.nvim_list_wins()):find(function(window)
              return vim.api.nvim_win_get_config(window).relative ~= ''
            end)
            return vim.api.nvim_buf_get_lines(vim.api.nvim_win_get_buf(float), 0, -1, true)
            """
        )
        assert [shown[0], json.loads(shown[1])] == ["read_file", {"path": "animals.txt"}]
        assert "the zebra sleeps" in shown[-1]


def test_thinking_is_shown_apart_from_what_is_said_and_can_be_left_out(place: Place) -> None:
    place.script({"reasoning": "Hm, hm.", "text": "Yes."}, {"reasoning": "Hm.", "text": "No."})
    with Neovim(place) as nvim:
        begun(nvim)
        nvim.command("RefoldPrompt a")
        nvim.wait_turn(1)
        assert nvim.chat() == "## You\n\na\n\n## Reply\n\nHm, hm.\n\nYes."
        appended(nvim)
        nvim.lua("require('refold').setup({ reasoning = false, cmd = require('refold.settings').get().cmd })")
        session = nvim.session()
        nvim.lua("vim.cmd.bdelete({ require('refold.sessions').current.buffer, bang = true })")
        nvim.lua("require('refold').open(...)", session)
        nvim.session()
        nvim.wait_chat("## You\n\na\n\n## Reply\n\nYes.")


def test_a_turn_is_interrupted_and_keeps_what_was_said(place: Place) -> None:
    gate = Gate()
    with FakeProvider(answer(text("Half"), gate)) as provider:
        place.provider(provider.base_url)
        with Neovim(place) as nvim:
            begun(nvim)
            nvim.command("RefoldPrompt go")
            nvim.wait_chat("## You\n\ngo\n\n## Reply\n\nHalf")
            assert nvim.lua("return require('refold').status()") == "refold: running"
            nvim.command("RefoldInterrupt")
            nvim.wait_turn(1)
            assert nvim.chat() == "## You\n\ngo\n\n## Reply\n\nHalf\n\n*Interrupted.*"
            nvim.wait("require('refold').status() == 'refold: idle'")
            appended(nvim)
            nvim.command("RefoldInterrupt")
            assert nvim.notes == ["refold: no turn runs"]


def test_a_prompt_is_written_below_the_chat_and_sent_by_enter(place: Place) -> None:
    place.script({"text": "Yes."})
    with Neovim(place) as nvim:
        begun(nvim)
        assert nvim.lua("return vim.bo.filetype") == "refold-prompt"
        nvim.keys("iTwo<CR>lines<Esc><CR>")
        nvim.wait("require('refold.sessions').current.following.reading.ended == 1")
        nvim.wait_turn(1)
        assert nvim.chat() == "## You\n\nTwo\nlines\n\n## Reply\n\nYes."
        assert nvim.lua("return vim.api.nvim_buf_get_lines(0, 0, -1, true)") == [""]


def test_a_prompt_waits_behind_the_turn_and_one_with_a_bang_joins_it(place: Place) -> None:
    first, call = Gate(), [{"index": 0, "id": "c", "function": {"name": "list_files", "arguments": "{}"}}]
    step = answer(text("A"), first, chunk({"tool_calls": call}), chunk({}, "tool_calls"), DONE)
    with FakeProvider(step, answer(text("B"), END), answer(text("C"), END)) as provider:
        place.provider(provider.base_url)
        with Neovim(place) as nvim:
            begun(nvim)
            nvim.command("RefoldPrompt one")
            nvim.wait_chat("## You\n\none\n\n## Reply\n\nA")
            nvim.command("RefoldPrompt two")
            nvim.wait("require('refold.sessions').current.following.reading.waiting == 1")
            nvim.command("RefoldPrompt! meanwhile")
            nvim.wait("require('refold.sessions').current.following.reading.waiting == 2")
            described = nvim.lua("local s = require('refold.sessions').current; return require('refold.status').describe(s)")
            assert described == "refold · running · 2 waiting"
            first.open()
            nvim.wait_turn(2)
            assert nvim.chat() == (
                "## You\n\none\n\n## Reply\n\nA\n\n▸ list_files {}\n\n## You, meanwhile\n\nmeanwhile\n\n## Reply\n\nB"
                "\n\n## You\n\ntwo\n\n## Reply\n\nC"
            )
            appended(nvim)


def test_a_reply_that_breaks_keeps_what_was_said_and_says_why(place: Place) -> None:
    with FakeProvider(answer(text("Half"), end="reset")) as provider:
        place.provider(provider.base_url)
        with Neovim(place) as nvim:
            begun(nvim)
            nvim.command("RefoldPrompt go")
            nvim.wait_turn(1)
            assert nvim.chat().startswith("## You\n\ngo\n\n## Reply\n\nHalf\n\n*Failed (provider.")
            appended(nvim)
