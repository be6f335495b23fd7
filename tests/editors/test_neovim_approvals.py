"""Questions in Neovim: they wait beside the chat, show all that a call would do, and are answered there or by a command.

No typing elsewhere answers one, nothing takes the focus, and what was not on the screen is not allowed by the way.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from tests.support.approval_files import change, changed, changing, decisions
from tests.support.daemons import Json, Place
from tests.support.neovim import Neovim

SAY: Json = {"text": "Done."}

QUESTION = """
    for _, window in ipairs(vim.api.nvim_list_wins()) do
      local question = require('refold.questions').of_buffer(vim.api.nvim_win_get_buf(window))
      if question then
        vim.g.statusline_winid = window
        local bar = require('refold.questions').winbar()
        vim.g.statusline_winid = nil
        return {
          title = question.title, lines = vim.api.nvim_buf_get_lines(question.buffer, 0, -1, true),
          bar = bar, filetype = vim.bo[question.buffer].filetype,
          focused = window == vim.api.nvim_get_current_win(),
        }
      end
    end
"""


def count(nvim: Neovim) -> int:
    """How many questions wait."""
    return int(nvim.lua("return require('refold.questions').count()"))


def shown(nvim: Neovim) -> Any:
    """The question that a window shows; None where none does."""
    return nvim.lua(QUESTION)


def scroll(nvim: Neovim) -> None:
    """Look at all of the window that has the focus, page by page."""
    for _ in range(12):
        nvim.lua("vim.cmd('normal! \\6'); vim.cmd.redraw()")


def asks(place: Place, nvim: Neovim) -> str:
    """Begin a turn whose call is asked about; give the session's id."""
    changing(place, change(), change("two", "c2"), SAY)
    nvim.command("Refold")
    session = nvim.session()
    nvim.command("RefoldPrompt go")
    nvim.wait("require('refold.questions').count() == 1")
    return session


def again(nvim: Neovim, line: str) -> None:
    """Wait until the question about another line is shown."""
    nvim.wait(f"require('refold.questions').count() == 1 and require('refold.questions').first().lines[1]:find('{line}')")


def ask(nvim: Neovim, name: str, subject: Json) -> None:
    """Have a question come that no daemon asks; its answer becomes `answers[name]`."""
    nvim.lua(
        """
        local name, subject, session = ...
        answers = answers or {}
        local options = {
          { id = 'once', kind = 'allowOnce', label = 'Allow' }, { id = 'all', kind = 'allowSession', label = 'Allow all' },
          { id = 'no', kind = 'deny', label = 'Deny' },
        }
        coroutine.wrap(function()
          local asked = { session = session, approval = name, tool = 'edit_file', options = options, default = 'no' }
          asked.subject = subject
          answers[name] = require('refold.approvals').request(asked).option
        end)()
        """,
        name,
        subject,
        nvim.session(),
    )


def diff(lines: int, file: str = "notes/new.txt") -> Json:
    """The diff of a new file."""
    added = "".join(f"+line {number}\n" for number in range(1, lines + 1))
    return {"kind": "diff", "text": f"--- /dev/null\n+++ b/{file}\n@@ -0,0 +1,{lines} @@\n{added}"}


def test_a_person_sees_what_a_call_would_do_and_allows_it(place: Place) -> None:
    with Neovim(place) as nvim:
        session = asks(place, nvim)
        window = nvim.lua("return vim.api.nvim_get_current_win()")
        nvim.wait("#vim.api.nvim_list_wins() == 4")
        question = shown(nvim)
        assert (question["title"], question["lines"]) == ("may change run?", ['change {"line":"one"}'])
        assert question["bar"] == ("refold: may change run? · gA Allow this call · gS Allow change for this session · gD Deny")
        assert "1 to answer" in str(nvim.lua("return require('refold').status()"))
        assert nvim.notes == ["refold: may change run? :RefoldQuestion shows it"]
        assert nvim.lua("return vim.api.nvim_get_current_win()") == window
        nvim.command("RefoldAllowSession")
        nvim.wait_turn(1)
        assert (shown(nvim), nvim.lua("return vim.api.nvim_get_current_win()")) == (None, window)
    assert changed(place) == ["one", "two"]
    assert [row[:2] for row in decisions(asyncio.run(place.recorded(session)))] == [("allowed", "session")] * 2


def test_a_question_is_answered_by_the_keys_of_its_window(place: Place) -> None:
    with Neovim(place) as nvim:
        session = asks(place, nvim)
        nvim.command("RefoldQuestion")
        assert shown(nvim)["focused"]
        nvim.lua("vim.api.nvim_feedkeys('gD', 'xt', true)")
        again(nvim, "two")
        nvim.command("RefoldQuestion")
        nvim.lua("vim.api.nvim_feedkeys('gA', 'xt', true)")
        nvim.wait_turn(1)
    assert changed(place) == ["two"]
    assert [row[:2] for row in decisions(asyncio.run(place.recorded(session)))] == [("denied", "once"), ("allowed", "once")]


def test_a_turn_that_is_stopped_takes_the_question_away_and_says_so(place: Place) -> None:
    with Neovim(place) as nvim:
        session = asks(place, nvim)
        nvim.command("RefoldInterrupt")
        nvim.wait_turn(1)
        assert (count(nvim), shown(nvim)) == (0, None)
        nvim.command("RefoldAllow")
        assert nvim.notes[1:] == ["refold: settled without you (cancelled): may change run?", "refold: no question waits"]
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
        assert count(nvim) == 1
        nvim.command("RefoldAllow")
        again(nvim, "two")
        nvim.command("RefoldAllow")
        nvim.wait_turn(1)
    assert changed(place) == ["one", "two"]


def test_a_change_is_shown_whole_with_its_file_and_counts_and_is_not_allowed_unseen(place: Place) -> None:
    with Neovim(place) as nvim:
        nvim.command("Refold")
        ask(nvim, "q", diff(41))
        nvim.wait("#vim.api.nvim_list_wins() == 4")
        question = shown(nvim)
        assert question["title"] == "may edit_file change notes/new.txt (+41 −0)?"
        assert (len(question["lines"]), question["lines"][-1], question["filetype"]) == (44, "+line 41", "diff")
        assert "of 44 lines not shown yet" in question["bar"]
        nvim.command("RefoldAllow")
        assert "lines were not shown yet" in nvim.notes[-1]
        assert count(nvim) == 1
        nvim.command("RefoldQuestion")
        scroll(nvim)
        assert "not shown" not in shown(nvim)["bar"]
        nvim.command("RefoldAllow")
        nvim.wait("answers.q == 'once'")


def test_what_was_not_shown_is_allowed_by_a_second_and_clear_answer_and_denied_at_once(place: Place) -> None:
    with Neovim(place) as nvim:
        nvim.command("Refold")
        ask(nvim, "one", diff(200))
        nvim.command("RefoldAllow!")
        nvim.wait("answers.one == 'once'")
        ask(nvim, "two", diff(200))
        nvim.command("RefoldDeny")
        nvim.wait("answers.two == 'no'")


def test_what_the_counts_are_of_is_the_change_and_not_its_looks(place: Place) -> None:
    with Neovim(place) as nvim:
        nvim.command("Refold")
        text = "--- a/a.sql\n+++ b/a.sql\n@@ -1,3 +1,3 @@\n--- a comment\n+++ i\n x\n"
        ask(nvim, "q", {"kind": "diff", "text": text})
        assert nvim.lua("return require('refold.questions').first().title") == "may edit_file change a.sql (+1 −1)?"
        nvim.command("RefoldDeny")


def test_a_question_without_a_chat_waits_until_somebody_goes_to_it(place: Place) -> None:
    with Neovim(place) as nvim:
        nvim.command("Refold")
        session = nvim.session()
        nvim.command("tabnew")
        windows = nvim.lua("return #vim.api.nvim_tabpage_list_wins(0)")
        ask(nvim, "q", diff(3))
        nvim.lua("vim.wait(50)")
        assert nvim.lua("return #vim.api.nvim_tabpage_list_wins(0)") == windows
        assert session
        nvim.command("RefoldQuestion")
        assert shown(nvim)["focused"]
        nvim.command("close")
        assert count(nvim) == 1, "closing its window is no answer"
        nvim.command("RefoldQuestion")
        nvim.lua("vim.api.nvim_feedkeys('gS', 'xt', true)")
        nvim.wait("answers.q == 'all'")


@pytest.mark.parametrize("seed", [1, 2])
def test_whatever_is_typed_elsewhere_answers_no_question_and_each_is_seen_and_answered_where_it_belongs(
    place: Place, seed: int
) -> None:
    """Invariant: In Neovim no typing outside of a question answers it, and no question takes the focus."""
    draw = random.Random(seed)
    keys = [*"123yngadoAiO:/?gGdw", "<CR>", "<Esc>", "<Space>", "gd", "gs", "ga", "ZZ", "<C-w>w", ":w<CR>", "2<CR>", "<Tab>"]
    with Neovim(place) as nvim:
        nvim.command("Refold")
        nvim.session()
        nvim.command("topleft vsplit | enew | setlocal buftype=nofile bufhidden=hide | topleft split | enew")
        home = nvim.lua("return vim.api.nvim_get_current_win()")
        for number in range(20):
            nvim.lua("vim.api.nvim_set_current_win(...)", home)
            ask(nvim, f"q{number}", diff(draw.choice((2, 30)), f"file{number}"))
            for _ in range(25):
                typed = draw.choice(keys)
                stays = typed in ("<C-w>w", "ZZ")
                nvim.lua("vim.api.nvim_feedkeys(vim.keycode(...), 'xt', true)", "" if stays else typed)
                nvim.lua("if vim.fn.mode() ~= 'n' then vim.cmd.stopinsert() end")
                assert nvim.lua("return vim.api.nvim_get_current_win()") == home, typed
        assert count(nvim) == 20
        assert nvim.lua("return next(answers) == nil")
        for number in range(20):
            nvim.command("RefoldQuestion")
            assert f"file{number} " in shown(nvim)["title"], "the oldest first"
            scroll(nvim)
            nvim.lua("vim.api.nvim_feedkeys(..., 'xt', true)", "gA" if number % 2 else "gD")
            nvim.wait("answers[given[1]] == given[2]", f"q{number}", "once" if number % 2 else "no")
        assert count(nvim) == 0
        nvim.lua("vim.v.errmsg = ''")  # what was typed was no command everywhere
        assert len([note for note in nvim.notes if "shows it" in note]) == 20
