"""Questions in Neovim: what a call would do is shown, the person chooses, and no choice denies."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.approval_files import change, changed, changing, decisions
from tests.support.daemons import Json, Place
from tests.support.neovim import Neovim

SAY: Json = {"text": "Done."}

CHOOSER = """
    asked = {}
    vim.ui.select = function(options, about, choose)
      local shown = {}
      for _, window in ipairs(vim.api.nvim_list_wins()) do
        if vim.wo[window].winbar:find('would do') then
          table.insert(shown, table.concat(vim.api.nvim_buf_get_lines(vim.api.nvim_win_get_buf(window), 0, -1, true), '\\n'))
        end
      end
      table.insert(asked, { prompt = about.prompt, labels = vim.tbl_map(about.format_item, options), shown = shown })
      choices = { options = options, choose = choose }
    end
"""
"""Note each question and what is shown with it; the test chooses later."""


def asks(place: Place, nvim: Neovim) -> str:
    """Begin a turn whose call is asked about; give the session's id."""
    changing(place, change(), change("two", "c2"), SAY)
    nvim.command("Refold")
    session = nvim.session()
    nvim.lua(CHOOSER)
    nvim.command("RefoldPrompt go")
    nvim.wait("#asked == 1")
    return session


def choose(nvim: Neovim, number: int | None) -> None:
    """Choose an option of the question that is open; None closes it."""
    nvim.lua("local open = choices; open.choose(open.options[...])", 0 if number is None else number)


def subjects(nvim: Neovim) -> Any:
    """How many windows show what a call would do."""
    return nvim.lua(
        "return #vim.tbl_filter(function(one) return vim.wo[one].winbar:find('would do') ~= nil end, vim.api.nvim_list_wins())"
    )


def test_a_person_sees_what_a_call_would_do_and_allows_it(place: Place) -> None:
    with Neovim(place) as nvim:
        session = asks(place, nvim)
        window = nvim.lua("return vim.api.nvim_get_current_win()")
        assert nvim.lua("return asked[1]") == {
            "prompt": "refold: may change run?",
            "labels": ["Allow this call", "Allow change for this session", "Deny"],
            "shown": ['change {"line":"one"}'],
        }
        assert "waiting" in str(nvim.lua("return require('refold').status()"))
        choose(nvim, 2)
        nvim.wait_turn(1)
        assert nvim.lua("return #asked") == 1
        assert (subjects(nvim), nvim.lua("return vim.api.nvim_get_current_win()")) == (0, window)
    assert changed(place) == ["one", "two"]
    assert [row[:2] for row in decisions(asyncio.run(place.recorded(session)))] == [("allowed", "session")] * 2


@pytest.mark.parametrize("number", [3, None])
def test_a_choice_to_deny_and_no_choice_are_the_same(place: Place, number: int | None) -> None:
    with Neovim(place) as nvim:
        session = asks(place, nvim)
        choose(nvim, number)
        nvim.wait("#asked == 2")
        choose(nvim, 1)
        nvim.wait_turn(1)
    assert changed(place) == ["two"]
    assert [row[:2] for row in decisions(asyncio.run(place.recorded(session)))] == [("denied", "once"), ("allowed", "once")]


def test_a_turn_that_is_stopped_takes_the_question_away_and_a_late_choice_counts_for_nothing(place: Place) -> None:
    with Neovim(place) as nvim:
        session = asks(place, nvim)
        nvim.command("RefoldInterrupt")
        nvim.wait_turn(1)
        assert subjects(nvim) == 0
        choose(nvim, 1)
        assert nvim.notes == []
    assert changed(place) == []
    assert [row[0] for row in decisions(asyncio.run(place.recorded(session)))] == ["cancelled"]


def test_a_question_that_is_asked_again_is_still_one_question(place: Place) -> None:
    with Neovim(place) as nvim:
        session = asks(place, nvim)
        nvim.lua(
            """
            again = 0
            local request = require('refold.approvals').request
            require('refold.daemon').on('approval/request', function(params) again = again + 1; return request(params) end)
            """
        )
        nvim.ask("event/subscribe", {"session": session, "after": "tail"})
        nvim.wait("again == 1")
        choose(nvim, 1)
        nvim.wait("#asked == 2")
        choose(nvim, 1)
        nvim.wait_turn(1)
    assert changed(place) == ["one", "two"]


def test_a_diff_is_shown_as_one(place: Place) -> None:
    with Neovim(place) as nvim:
        asks(place, nvim)
        choose(nvim, 3)
        nvim.wait("#asked == 2")
        choose(nvim, 3)
        nvim.wait_turn(1)
        nvim.lua(
            """
            local subject = { kind = 'diff', text = '-a\\n+b\\n' }
            local options = { { id = 'once', label = 'Yes' }, { id = 'deny', label = 'No' } }
            coroutine.wrap(function()
              answer = require('refold.approvals').request({
                approval = 'P9', tool = '100%', subject = subject, options = options, default = 'deny' })
            end)()
            """
        )
        nvim.wait("#asked == 3")
        assert nvim.lua("return asked[3].shown") == ["-a\n+b"]
        shown = "vim.tbl_map(function(one) return vim.bo[vim.api.nvim_win_get_buf(one)].filetype end, vim.api.nvim_list_wins())"
        assert "diff" in nvim.lua(f"return {shown}")
        choose(nvim, 1)
        nvim.wait("answer ~= nil")
        assert nvim.lua("return answer") == {"option": "once"}
        assert subjects(nvim) == 0
