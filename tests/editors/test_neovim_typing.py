"""A person types on a terminal while questions arrive: every key goes where it was meant to, and none of them answers."""

from __future__ import annotations

import asyncio
import os
import pty
import subprocess
import termios
import threading
from pathlib import Path
from types import TracebackType
from typing import Final

from tests.support.approval_files import decisions
from tests.support.daemons import Json, Place
from tests.support.neovim import Neovim, find_neovim

QUESTIONS: Final = 20
LINES: Final = 41
TIMES: Final = 12
WAITING: Final = "#require('refold.approvals').waiting"

HASTY: Final = ("1", "2", "3", "y", "yes", "a", "s", "d", "q", "n", "gA", "gS", "gD", ":RefoldAllow!", "Allow", " ", "")
"""What somebody could type who is about to answer something; each with a return behind it."""


class Terminal:
    """A terminal on which a Neovim is shown and typed into. All that it shows is read, and forgotten."""

    def __init__(self, address: str, columns: int, lines: int) -> None:
        self._controller, end = pty.openpty()
        termios.tcsetwinsize(end, (lines, columns))
        command = [find_neovim(), "--clean", "--server", address, "--remote-ui"]
        env = os.environ | {"TERM": "xterm-256color"}
        self._process = subprocess.Popen(command, stdin=end, stdout=end, stderr=end, env=env, start_new_session=True)
        os.close(end)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        os.close(self._controller)

    def types(self, keys: str) -> None:
        """Type."""
        data = keys.encode()
        while data:
            data = data[os.write(self._controller, data) :]

    def _read(self) -> None:
        while True:
            try:
                if not os.read(self._controller, 65_536):
                    return
            except OSError:  # nothing runs on it any more
                return


def until(nvim: Neovim, condition: str, *arguments: object) -> None:
    """Wait until a Lua expression is true. What is typed is looked at by Neovim between two requests only."""
    while not nvim.lua(f"local given = {{...}}; vim.wait(5); return {condition}", *arguments):
        pass


def text_of(number: int) -> str:
    """What the model wants to write in the session of that number."""
    return "".join(f"line {line} of {number}\n" for line in range(LINES))


def scripts(place: Place) -> None:
    """Have each session's first turn write a file of its own."""
    calls: list[Json] = [
        {"name": "write_file", "arguments": {"path": f"new{number}.txt", "content": text_of(number)}, "id": f"c{number}"}
        for number in range(QUESTIONS)
    ]
    place.script(*({"text": "I write.", "calls": [call]} for call in calls), *[{"text": "Done."}] * QUESTIONS)


BEGIN: Final = """
    local sessions = require('refold.sessions')
    sessions.open({ cwd = vim.fn.getcwd() }, function(session)
      begun[#begun + 1] = session.id
      require('refold.prompts').send(session, 'go')
    end)
"""

LAYOUT: Final = """
    begun = {}
    local note = vim.notify
    vim.notify = function(text, level)
      note(text, level)
      vim.api.nvim_echo({ { text } }, true, {})
    end
    vim.o.autoindent = false
    vim.cmd('Refold')
    vim.wait(60000, function() return (require('refold.sessions').current or {}).state == 'live' end, 5)
    prompt = vim.api.nvim_get_current_win()
    vim.cmd('wincmd t')
    file = vim.api.nvim_get_current_win()
    vim.cmd('belowright new')
    other = vim.api.nvim_get_current_win()
"""


def typed_meanwhile(nvim: Neovim, terminal: Terminal, number: int) -> list[str]:
    """Begin a session and type until its question is there, in one window after the other. Give what each must have got."""
    hasty = "\r".join(HASTY) + "\r"
    nvim.lua(BEGIN)
    for window in ("file", "other", "prompt"):
        nvim.lua(f"vim.api.nvim_set_current_win({window}); typed = false")
        keys = "" if window == "prompt" else "1\r2\r"  # there a return sends, which is meant
        terminal.types(f"jk0${keys}Go{hasty * TIMES}\x1b/1\r?2\r:lua typed = true\r")
        until(nvim, "typed and vim.api.nvim_get_mode().mode == 'n'")
    until(nvim, f"{WAITING} == given[1]", number + 1)
    return [*HASTY * TIMES, ""]


def written(nvim: Neovim, window: str) -> list[str]:
    """The lines of the buffer that a window shows."""
    return list(nvim.lua(f"return vim.api.nvim_buf_get_lines(vim.api.nvim_win_get_buf({window}), 0, -1, true)"))


AT_QUESTION: Final = """(function()
    local session = require('refold.sessions').of_buffer(vim.api.nvim_get_current_buf())
    local id = session and session.following.page.marks:question_at(vim.fn.line('.') - 1)
    return id == require('refold.approvals').waiting[1].params.approval
end)()"""
"""Whether the cursor is on the question that waits longest."""


def answer_next(nvim: Neovim, terminal: Terminal, left: int) -> int:
    """Go to the question that waits longest and answer it when all of it was seen: an even one is allowed. Give its number."""
    terminal.types(":RefoldQuestion\r")
    until(nvim, AT_QUESTION)
    title = str(nvim.lua("return vim.api.nvim_get_current_line()"))
    number = int(title.removeprefix("? May write_file run? new").partition(".")[0])
    assert title == f"? May write_file run? new{number}.txt (new, +{LINES} −0)"
    terminal.types("gA")
    until(nvim, "notes[#notes]:find('of 45 lines were not shown yet') ~= nil")
    nvim.lua("notes = { '' }")
    assert nvim.lua(f"return {WAITING}") == left
    if number % 2:
        terminal.types("gD")
    else:
        terminal.types("\x06")  # a screen further
        until(nvim, "vim.fn.line('w$') == vim.fn.line('$')")
        terminal.types("gA")
    until(nvim, f"{WAITING} == given[1]", left - 1)
    return number


def test_typing_elsewhere_while_twenty_questions_arrive_answers_none_and_each_is_answered_where_it_belongs(
    place: Place,
) -> None:
    scripts(place)
    with Neovim(place, "animals.txt") as nvim:
        address = str(nvim.lua("return vim.fn.serverstart(...)", str(place.root / "nvim.sock")))
        with Terminal(address, columns=110, lines=36) as terminal:
            until(nvim, "#vim.api.nvim_list_uis() == 1")
            nvim.lua("require('refold.seen').pause = 0")
            nvim.lua(LAYOUT)
            expected = [line for number in range(QUESTIONS) for line in typed_meanwhile(nvim, terminal, number)]
            assert written(nvim, "file")[2:] == expected
            assert written(nvim, "other")[1:] == expected
            assert written(nvim, "prompt")[1:] == expected
            sessions = list(nvim.lua("return begun"))
            recorded = [asyncio.run(place.recorded(session)) for session in sessions]
            assert [sum(event["type"] == "approval/asked" for event in events) for events in recorded] == [1] * QUESTIONS
            assert [decisions(events) for events in recorded] == [[]] * QUESTIONS
            nvim.lua("notes = { '' }")
            answered = [answer_next(nvim, terminal, left) for left in range(QUESTIONS, 0, -1)]
            assert answered == list(range(QUESTIONS))
            is_over = "return require('refold.sessions').all[id].following.reading.ended == 1"
            until(nvim, f"vim.iter(begun):all(function(id) {is_over} end)")
    for number, session in enumerate(sessions):
        events = asyncio.run(place.recorded(session))
        assert [row[:2] for row in decisions(events)] == [("denied" if number % 2 else "allowed", "once")]
        new = Path(place.workspace / f"new{number}.txt")
        assert (new.read_text() if new.exists() else "") == ("" if number % 2 else text_of(number))
