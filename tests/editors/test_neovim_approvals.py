"""Questions in Neovim: they wait in the chat with all that a call would do, and are answered there, by whoever saw it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.approval_files import change, changed, changing, decisions
from tests.support.daemons import Json, Place
from tests.support.neovim import Neovim

SAY: Json = {"text": "Done."}

AT_ONCE = "require('refold.seen').pause = 0"
"""An answer counts as soon as all of the question was drawn."""

WAITING = "#require('refold.approvals').waiting"


def begun(nvim: Neovim) -> str:
    """Begin a session and its first turn; give the session's id."""
    nvim.command("Refold")
    session = nvim.session()
    nvim.lua(AT_ONCE)
    nvim.command("RefoldPrompt go")
    return session


def asks(place: Place, nvim: Neovim) -> str:
    """Begin a turn with two calls, one after the other, that are asked about; give the session's id."""
    changing(place, change(), change("two", "c2"), SAY)
    session = begun(nvim)
    wait_question(nvim, 'May change run? change {"line":"one"}')
    return session


def wait_question(nvim: Neovim, title: str) -> None:
    """Wait until exactly one question waits, which stands in the chat and begins so."""
    nvim.wait(f"{WAITING} == 1")
    nvim.wait(
        "(require('refold.sessions').current.following.page.marks:first_question() or {}).row == vim.fn.index("
        "vim.api.nvim_buf_get_lines(require('refold.sessions').current.buffer, 0, -1, true), '? ' .. given[1])",
        title,
    )


def press(nvim: Neovim, keys: str) -> None:
    """Go to the question, have the screen drawn, and press keys there."""
    nvim.command("RefoldQuestion")
    nvim.command("redraw")
    nvim.lua("vim.api.nvim_feedkeys(vim.keycode(...), 'xt', false)", keys)


def beside(nvim: Neovim) -> list[str]:
    """What is said beside the questions of the chat, in order: the keys, or how it was settled."""
    return list(
        nvim.lua(
            """
            local buffer = require('refold.sessions').current.buffer
            local marks = vim.api.nvim_buf_get_extmarks(buffer, -1, 0, -1, { details = true })
            local said = {}
            for _, mark in ipairs(marks) do
              local line = vim.api.nvim_buf_get_lines(buffer, mark[2], mark[2] + 1, true)[1]
              local chunks = mark[4].virt_text or (mark[4].virt_lines or {})[1]
              if chunks and vim.startswith(line, '? ') then table.insert(said, vim.trim(chunks[1][1])) end
            end
            return said
            """
        )
    )


def outcomes(place: Place, session: str) -> list[tuple[str, str]]:
    """Outcome and scope of every decision that is on disk."""
    return [row[:2] for row in decisions(asyncio.run(place.recorded(session)))]


def writes(place: Place, text: str, path: str = "new.txt") -> None:
    """Have the model write a file."""
    call = {"name": "write_file", "arguments": {"path": path, "content": text}, "id": "c1"}
    place.script({"text": "I write.", "calls": [call]}, SAY)


def numbered(count: int) -> str:
    """Give a text of so many lines."""
    return "".join(f"line {number}\n" for number in range(count))


@pytest.mark.parametrize(
    ("answers", "done", "recorded"),
    [
        (("gA", "gD"), ["one"], [("allowed", "once"), ("denied", "once")]),
        (("gD", "gA"), ["two"], [("denied", "once"), ("allowed", "once")]),
        ((":RefoldAllow<CR>", ":RefoldDeny<CR>"), ["one"], [("allowed", "once"), ("denied", "once")]),
        (("gS",), ["one", "two"], [("allowed", "session")] * 2),
        ((":RefoldAllowSession<CR>",), ["one", "two"], [("allowed", "session")] * 2),
    ],
)
def test_a_question_is_answered_in_the_chat(
    place: Place, answers: tuple[str, ...], done: list[str], recorded: list[tuple[str, str]]
) -> None:
    with Neovim(place) as nvim:
        session = asks(place, nvim)
        press(nvim, answers[0])
        for answer in answers[1:]:
            wait_question(nvim, 'May change run? change {"line":"two"}')
            press(nvim, answer)
        nvim.wait_turn(1)
        said = beside(nvim)
    assert changed(place) == done
    assert outcomes(place, session) == recorded
    assert [one.split()[1] for one in said] == [outcome for outcome, _ in recorded]


def test_a_question_takes_no_focus_and_is_told_by_a_message_the_status_line_and_the_chat(place: Place) -> None:
    changing(place, change(), SAY)
    with Neovim(place, "animals.txt") as nvim:
        nvim.command("Refold")
        nvim.session()
        nvim.command("wincmd t")
        window = nvim.lua("return vim.api.nvim_get_current_win()")
        nvim.command("RefoldPrompt go")
        wait_question(nvim, 'May change run? change {"line":"one"}')
        assert nvim.lua("return { vim.api.nvim_get_current_win(), vim.api.nvim_get_mode() }") == [
            window,
            {"mode": "n", "blocking": False},
        ]
        nvim.wait("#notes == 1")
        assert nvim.notes == ['refold: may change run? change {"line":"one"} :RefoldQuestion']
        assert str(nvim.lua("return require('refold').status()")).endswith(" · 1 question")
        assert beside(nvim) == ["gA allow · gS allow for the session · gD deny"]
        for keys in ("gA", "gS", "gD"):
            nvim.lua("vim.api.nvim_feedkeys(vim.keycode(...), 'xt', false)", keys)
        assert nvim.lua(f"return {WAITING}") == 1
        nvim.command("RefoldDeny")  # only goes there
        assert nvim.lua(f"return {WAITING}") == 1
        assert nvim.lua("return vim.api.nvim_get_current_line()") == '? May change run? change {"line":"one"}'


def test_a_message_has_room_in_one_line(place: Place) -> None:
    path = "a" * 100 + "/" + "界" * 50
    writes(place, "x\n", path)
    with Neovim(place) as nvim:
        begun(nvim)
        nvim.wait("#notes == 1")
        assert nvim.lua("return vim.fn.strwidth(notes[1]) <= vim.v.echospace")
        assert nvim.notes[0].endswith("… :RefoldQuestion")


def test_a_new_file_is_shown_whole_as_a_diff_with_its_name_and_counts(place: Place) -> None:
    writes(place, numbered(41), ".envrc")
    with Neovim(place) as nvim:
        begun(nvim)
        wait_question(nvim, "May write_file run? .envrc (new, +41 −0)")
        shown = nvim.chat()
    diff = "--- /dev/null\n+++ b/.envrc\n@@ -0,0 +1,41 @@\n" + "".join(f"+line {number}\n" for number in range(41))
    assert shown.endswith(f"? May write_file run? .envrc (new, +41 −0)\n{diff}".removesuffix("\n"))


def test_a_question_that_fits_is_on_the_screen_with_all_its_lines_as_it_comes(place: Place) -> None:
    call = {"name": "write_file", "arguments": {"path": "new.txt", "content": numbered(6)}, "id": "c1"}
    place.script({"text": numbered(60), "calls": [call]}, SAY)
    with Neovim(place) as nvim:
        session = begun(nvim)
        wait_question(nvim, "May write_file run? new.txt (new, +6 −0)")
        nvim.command("redraw")
        nvim.command("wincmd k")
        assert str(nvim.lua("return vim.api.nvim_get_current_line()")).startswith("? May")
        nvim.lua("vim.api.nvim_feedkeys('gA', 'xt', false)")
        nvim.wait_turn(1)
    assert outcomes(place, session) == [("allowed", "once")]


@pytest.mark.parametrize(
    "code",
    [0xAD, 0x34F, 0x61C, 0x115F, 0x180B, 0x200B, 0x200D, 0x202E, 0x2066, 0x2800, 0x3164, 0xFE0F, 0xFEFF, 0xFFA0, 0xE0041],
)
def test_a_character_without_a_shape_is_made_visible(place: Place, code: int) -> None:
    writes(place, f"héa{chr(code)}b\n", f"x{chr(code)}y.txt")
    with Neovim(place) as nvim:
        begun(nvim)
        nvim.wait(f"{WAITING} == 1")
        nvim.wait("require('refold.sessions').current.following.page.marks:first_question()")
        nvim.command("RefoldQuestion")
        nvim.command("redraw")
        shown = nvim.lua(
            """
            local text = ''
            for row = 1, vim.o.lines do
              for column = 1, vim.o.columns do text = text .. vim.fn.screenstring(row, column) end
              text = text .. '\\n'
            end
            return text
            """
        )
        told = nvim.notes[0]
    without = shown.replace(chr(code), "")
    assert f"+héa<{code:02x}>b" in without
    assert f"May write_file run? x<{code:02x}>y.txt" in without
    assert f"<{code:02x}>" in told


def test_what_was_not_on_the_screen_is_not_allowed_unless_a_command_says_so(place: Place) -> None:
    writes(place, numbered(41))
    with Neovim(place) as nvim:
        session = begun(nvim)
        wait_question(nvim, "May write_file run? new.txt (new, +41 −0)")
        press(nvim, "gA")
        assert " of 45 lines were not shown yet" in nvim.notes[-1]
        press(nvim, "gS")
        assert nvim.notes[-1].endswith(", or :RefoldAllowSession!")
        assert nvim.lua(f"return {WAITING}") == 1
        press(nvim, ":RefoldAllow!<CR>")
        nvim.wait_turn(1)
    assert outcomes(place, session) == [("allowed", "once")]


def test_a_change_that_was_scrolled_through_is_allowed_wherever_the_cursor_is_on_it(place: Place) -> None:
    writes(place, numbered(41))
    with Neovim(place) as nvim:
        session = begun(nvim)
        wait_question(nvim, "May write_file run? new.txt (new, +41 −0)")
        nvim.command("RefoldQuestion")
        for _ in range(10):
            nvim.command("redraw")
            nvim.lua("vim.api.nvim_feedkeys(vim.keycode('<C-e><C-e><C-e><C-e><C-e>'), 'xt', false)")
        nvim.command("?+line 5$")
        nvim.lua("vim.api.nvim_feedkeys('gA', 'xt', false)")
        nvim.wait_turn(1)
        nvim.wait("vim.api.nvim_win_get_cursor(0)[1] == vim.fn.line('$')")  # it follows the text again
    assert outcomes(place, session) == [("allowed", "once")]


def test_what_scrolled_by_between_two_redraws_and_what_is_folded_was_not_on_the_screen(place: Place) -> None:
    writes(place, numbered(41))
    with Neovim(place) as nvim:
        begun(nvim)
        wait_question(nvim, "May write_file run? new.txt (new, +41 −0)")
        press(nvim, "G")
        nvim.command("redraw")
        nvim.lua("vim.api.nvim_feedkeys('gA', 'xt', false)")
        assert " of 45 lines " in nvim.notes[-1]
        nvim.command("setlocal foldenable foldmethod=manual")
        nvim.command("/line 3/,/line 38/fold")
        nvim.command("redraw")
        nvim.lua("notes = {}; vim.api.nvim_feedkeys('gA', 'xt', false)")
        assert " of 45 lines " in nvim.notes[-1]


def test_the_middle_of_a_line_that_is_longer_than_the_screen_counts(place: Place) -> None:
    writes(place, "x" * 9_000 + "\n")
    with Neovim(place) as nvim:
        session = begun(nvim)
        wait_question(nvim, "May write_file run? new.txt (new, +1 −0)")
        nvim.command("RefoldQuestion")
        nvim.lua("vim.api.nvim_feedkeys(vim.keycode('4j'), 'xt', false)")
        for keys in ("0", "$", "0"):
            nvim.lua("vim.api.nvim_feedkeys(..., 'xt', false)", keys)
            nvim.command("redraw")
        nvim.lua("vim.api.nvim_feedkeys('gA', 'xt', false)")
        assert nvim.notes[-1].startswith("refold: 1 of 5 lines ")
        nvim.command("setlocal smoothscroll")
        for _ in range(400):
            nvim.lua("vim.api.nvim_feedkeys(vim.keycode('<C-e>'), 'xt', false)")
            nvim.command("redraw")
        nvim.lua("vim.api.nvim_feedkeys('gA', 'xt', false)")
        nvim.wait_turn(1)
    assert outcomes(place, session) == [("allowed", "once")]


def test_an_answer_that_was_typed_before_the_question_could_be_read_does_not_count(place: Place) -> None:
    with Neovim(place) as nvim:
        asks(place, nvim)
        nvim.lua("require('refold.seen').pause = 1e9")
        press(nvim, "gA")
        assert nvim.notes[-1].startswith("refold: it appeared only now")
        press(nvim, "gS")
        assert nvim.lua(f"return {WAITING}") == 1
        nvim.lua(AT_ONCE)
        press(nvim, "gA")
        wait_question(nvim, 'May change run? change {"line":"two"}')
    assert changed(place) == ["one"]


def test_an_answer_beside_the_question_only_goes_there(place: Place) -> None:
    with Neovim(place) as nvim:
        asks(place, nvim)
        nvim.command("RefoldQuestion")
        nvim.command("redraw")
        for keys in ("gggA", "gggS", "gggD"):
            nvim.lua("vim.api.nvim_feedkeys(..., 'xt', false)", keys)
            assert nvim.lua(f"return {WAITING}") == 1
            assert nvim.lua("return vim.api.nvim_get_current_line()") == '? May change run? change {"line":"one"}'


def test_the_questions_of_two_sessions_are_each_answered_in_their_own_chat(place: Place) -> None:
    changing(place, change(), change("two", "c2"), SAY, SAY)
    with Neovim(place) as nvim:
        first = begun(nvim)
        nvim.wait(f"{WAITING} == 1")
        nvim.command("RefoldNew")
        nvim.wait("(require('refold.sessions').current or {}).id ~= given[1]", first)
        second = nvim.session()
        nvim.command("RefoldPrompt go")
        nvim.wait(f"{WAITING} == 2")
        wait = "vim.api.nvim_buf_get_name(0) == 'refold://' .. given[1]"
        nvim.command(f"Refold {second}")
        nvim.wait("(require('refold.sessions').current or {}).id == given[1]", second)
        nvim.command("wincmd k")
        nvim.wait("vim.api.nvim_get_current_line():match('May change run')")
        press(nvim, "gD")
        nvim.wait_turn(1)
        assert nvim.lua(f"return {WAITING}") == 1
        nvim.command("RefoldQuestion")
        nvim.wait(wait, first)
        press(nvim, "gA")
        nvim.wait_turn(1)
    assert changed(place) == ["one"]
    assert (outcomes(place, first), outcomes(place, second)) == ([("allowed", "once")], [("denied", "once")])


def test_a_turn_that_is_stopped_marks_the_question_and_a_late_answer_counts_for_nothing(place: Place) -> None:
    with Neovim(place) as nvim:
        session = asks(place, nvim)
        nvim.command("RefoldInterrupt")
        nvim.wait_turn(1)
        assert [one.split()[1] for one in beside(nvim)] == ["cancelled"]
        press(nvim, "gA")
        assert nvim.notes[-1] == "refold: no question waits"
        assert str(nvim.lua("return require('refold').status()")).endswith("idle")
    assert changed(place) == []
    assert [outcome for outcome, _ in outcomes(place, session)] == ["cancelled"]


def test_a_question_that_was_settled_elsewhere_is_marked_so(place: Place) -> None:
    with Neovim(place) as nvim:
        session = asks(place, nvim)
        approval = nvim.lua("return require('refold.approvals').waiting[1].params.approval")
        nvim.ask("approval/answer", {"session": session, "approval": approval, "outcome": "denied"})
        wait_question(nvim, 'May change run? change {"line":"two"}')
        said = beside(nvim)
    assert said[0].startswith("✗ denied (client")
    assert said[1:] == ["gA allow · gS allow for the session · gD deny"]


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
        assert nvim.lua(f"return {WAITING}") == 1
        press(nvim, "gA")
        wait_question(nvim, 'May change run? change {"line":"two"}')
        press(nvim, "gA")
        nvim.wait_turn(1)
    assert changed(place) == ["one", "two"]


BRIEF = "return require('refold.subject').brief({ kind = ..., text = select(2, ...) })"


@pytest.mark.parametrize(
    ("kind", "text", "brief"),
    [
        ("diff", "--- a/a b.txt\t\n+++ b/a b.txt\t\n@@ -1,2 +1 @@\n--- x\n-y\n+++ z\n", "a b.txt (+1 −2)"),
        ("diff", "--- a/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-y\n", "x (+0 −1)"),
        ("diff", "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-y\n+z\n--- a/b\n+++ b/b\n@@ -0,0 +1 @@\n+z\n", "x, b (+2 −1)"),
        ("diff", "[This diff has 200,000 …]\n--- a/x\n+++ b/x\n", "x (+0 −0, too long to be shown whole)"),
        ("command", "rm -r build", "rm -r build"),
        ("command", "cat <<E\nx\nE\n", "cat <<E … (3 lines)"),
    ],
)
def test_what_a_call_would_do_is_said_in_few_words(place: Place, kind: str, text: str, brief: str) -> None:
    with Neovim(place) as nvim:
        said: Any = nvim.lua(BRIEF, kind, text)
    assert said == brief
