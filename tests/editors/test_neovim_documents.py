"""Open files in Neovim: what is unsaved is what the model reads, and the daemon's edits are steps that `u` takes back."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.support.chat_stream import DONE, chunk, text
from tests.support.daemons import Place
from tests.support.fake_provider import FakeProvider, Gate, answer
from tests.support.neovim import Neovim

ACT = """
    local title, first, last, column = ...
    vim.lsp.buf.code_action({
      apply = true,
      filter = function(action) return action.title == 'refold: ' .. title .. ' selection' end,
      range = { start = { first, 0 }, ['end'] = { last, column } },
    })
"""
"""Run the code action of that title on a selection: lines from 1, columns in bytes from 0, both ends inclusive."""


def block(new: str) -> str:
    """Give a reply that puts `new` in the place of the selection."""
    return f"Here it is.\n\n```replacement\n{new}\n```"


def opened(nvim: Neovim) -> None:
    """Start the daemon and wait until it offers code actions for the file that is open."""
    nvim.command("RefoldStart")
    nvim.wait("#vim.lsp.get_clients({ bufnr = 0, method = 'textDocument/codeAction' }) == 1")


def lines(nvim: Neovim) -> list[str]:
    """Give the lines of the buffer of animals.txt."""
    return list(nvim.lua("return vim.api.nvim_buf_get_lines(vim.fn.bufnr('animals.txt'), 0, -1, true)"))


def undo(nvim: Neovim) -> None:
    """Press u in the buffer of animals.txt."""
    nvim.lua("vim.api.nvim_buf_call(vim.fn.bufnr('animals.txt'), function() vim.cmd.normal('u') end)")


def results(place: Place, session: str) -> list[str]:
    """Give the texts of the tool results that were recorded."""
    recorded = asyncio.run(place.recorded(session))
    return [event["data"]["content"][0]["text"] for event in recorded if event["type"] == "tool/result"]


READ: Any = {"calls": [{"name": "read_file", "arguments": {"path": "animals.txt"}}]}


def test_unsaved_text_is_what_read_file_returns(place: Place) -> None:
    place.script(READ, {"text": "Read."}, READ, {"text": "Read."}, READ, {"text": "Read."})
    with Neovim(place, "animals.txt") as nvim:
        nvim.command("Refold")
        session = nvim.session()
        nvim.lua("vim.api.nvim_buf_set_lines(vim.fn.bufnr('animals.txt'), 1, 2, true, { 'the zébra 🦓 runs', 'new' })")
        nvim.command("RefoldPrompt read it")
        nvim.wait_turn(1)
        nvim.lua("vim.api.nvim_buf_set_text(vim.fn.bufnr('animals.txt'), 1, 4, 1, 15, { 'zebra' })")
        nvim.command("RefoldPrompt read it again")
        nvim.wait_turn(2)
        nvim.lua("vim.cmd.bdelete({ 'animals.txt', bang = true })")
        nvim.command("RefoldPrompt and again")
        nvim.wait_turn(3)
    first, second, third = results(place, session)
    assert [line.split("\t")[1] for line in first.split("\n")[:3]] == ["a horse", "the zébra 🦓 runs", "new"]
    assert [line.split("\t")[1] for line in second.split("\n")[:3]] == ["a horse", "the zebra runs", "new"]
    assert [line.split("\t")[1] for line in third.split("\n")[:2]] == ["a horse", "the zebra sleeps"]
    assert (place.workspace / "animals.txt").read_text() == "a horse\nthe zebra sleeps\n"


def test_unsaved_text_is_known_to_the_daemon_that_takes_over(place: Place) -> None:
    place.script(READ, {"text": "Read."})
    with Neovim(place, "animals.txt") as nvim:
        nvim.command("Refold")
        nvim.session()
        nvim.lua("vim.api.nvim_buf_set_lines(vim.fn.bufnr('animals.txt'), 0, 1, true, { 'unsaved' })")
        nvim.lua("vim.uv.kill(..., 9)", nvim.daemon())
        nvim.wait("require('refold.sessions').current.state == 'lost'")
        session = nvim.session()
        nvim.command("RefoldPrompt read it")
        nvim.wait_turn(1)
    assert results(place, session)[0].split("\n")[0].endswith("\tunsaved")


def test_the_edit_of_a_dirty_buffer_is_taken_back_by_one_u(place: Place) -> None:
    place.script({"text": block("the zebra runs")})
    with Neovim(place, "animals.txt") as nvim:
        opened(nvim)
        nvim.lua("vim.ui.input = function(_, fn) fn('let it run') end")
        nvim.keys("gg0iunsaved ")  # and the person goes on to type
        nvim.wait("vim.bo.modified")
        nvim.lua(ACT, "edit", 2, 2, 15)
        nvim.wait("notes[1] == 'refold: edited animals.txt, not saved'")
        nvim.keys("<Esc>")
        nvim.wait("vim.api.nvim_get_mode().mode == 'n'")
        assert lines(nvim) == ["unsaved a horse", "the zebra runs"]
        undo(nvim)
        assert lines(nvim) == ["unsaved a horse", "the zebra sleeps"]
        undo(nvim)
        assert lines(nvim) == ["a horse", "the zebra sleeps"]
        assert "let it run" in nvim.chat()
    assert (place.workspace / "animals.txt").read_text() == "a horse\nthe zebra sleeps\n"


ALLOW = 'permissions.mode = "allow"\n'
EDIT: Any = {"calls": [{"name": "edit_file", "arguments": {"path": "animals.txt", "old": "zebra", "new": "lion 🦁"}}]}
WRITE: Any = {"calls": [{"name": "write_file", "arguments": {"path": "animals.txt", "content": "a horse\nit runs\n"}}]}


def test_a_models_edit_of_a_dirty_buffer_is_taken_back_by_one_u_and_leaves_the_disk_alone(place: Place) -> None:
    place.script(EDIT, READ, {"text": "Edited."}, more=ALLOW)
    with Neovim(place, "animals.txt") as nvim:
        nvim.command("Refold")
        session = nvim.session()
        nvim.lua("vim.api.nvim_buf_set_lines(vim.fn.bufnr('animals.txt'), 0, 1, true, { 'unsaved' })")
        nvim.command("RefoldPrompt edit it")
        nvim.wait_turn(1)
        assert lines(nvim) == ["unsaved", "the lion 🦁 sleeps"]
        assert nvim.lua("return vim.bo[vim.fn.bufnr('animals.txt')].modified")
        undo(nvim)
        assert lines(nvim) == ["unsaved", "the zebra sleeps"]
    edited, read = results(place, session)
    assert edited.startswith("edited animals.txt: line 2\n[it is open in an editor with unsaved changes")
    assert read.startswith("1\tunsaved\n2\tthe lion 🦁 sleeps\n"), "the model sees what it edited"
    assert (place.workspace / "animals.txt").read_text() == "a horse\nthe zebra sleeps\n"


def test_a_models_edit_of_a_clean_buffer_is_on_disk_loaded_again_and_taken_back_by_u(place: Place) -> None:
    place.script(EDIT, READ, WRITE, {"text": "Edited."}, more=ALLOW)
    with Neovim(place, "animals.txt") as nvim:
        nvim.command("Refold")
        session = nvim.session()
        nvim.command("RefoldPrompt edit it")
        nvim.wait_turn(1)
        assert (place.workspace / "animals.txt").read_text() == "a horse\nit runs\n"
        assert results(place, session)[::2] == ["edited animals.txt: line 2", "wrote animals.txt: line 2"]
        nvim.wait("vim.api.nvim_buf_get_lines(vim.fn.bufnr('animals.txt'), 1, 2, true)[1] == 'it runs'")
        assert not nvim.lua("return vim.bo[vim.fn.bufnr('animals.txt')].modified")
        undo(nvim)
        assert lines(nvim)[1] != "it runs"


def test_a_clean_buffer_is_edited_on_disk_and_loaded_again(place: Place) -> None:
    place.script({"text": block("the zebra runs")})
    with Neovim(place, "animals.txt") as nvim:
        opened(nvim)
        nvim.lua(ACT, "fix", 2, 2, 15)
        nvim.wait("notes[1] == 'refold: edited animals.txt'")
        nvim.wait("vim.api.nvim_buf_get_lines(vim.fn.bufnr('animals.txt'), 1, 2, true)[1] == 'the zebra runs'")
        assert not nvim.lua("return vim.bo[vim.fn.bufnr('animals.txt')].modified")
        assert (place.workspace / "animals.txt").read_text() == "a horse\nthe zebra runs\n"
        undo(nvim)
        assert lines(nvim) == ["a horse", "the zebra sleeps"]


def test_an_explanation_streams_into_the_chat_beside_the_file(place: Place) -> None:
    gate = Gate()
    with FakeProvider(answer(text("It is "), gate, text("a zebra."), chunk({}, "stop"), DONE)) as provider:
        place.provider(provider.base_url)
        with Neovim(place, "animals.txt") as nvim:
            opened(nvim)
            nvim.lua("vim.ui.select = function(items, options, fn) offered = #items; fn(items[1]) end")
            nvim.keys("jVgra")
            nvim.session()
            assert nvim.lua("return offered") == 3
            shown = "table.concat(vim.api.nvim_buf_get_lines(require('refold.sessions').current.buffer, 0, -1, true), '\\n')"
            nvim.wait(f"vim.endswith({shown}, '## Reply\\n\\nIt is ')")
            gate.open()
            nvim.wait_turn(1)
            assert nvim.chat().endswith("the zebra sleeps\n```\n\n## Reply\n\nIt is a zebra.")
            assert nvim.lua("return vim.fn.bufname()") == "animals.txt"
            assert nvim.notes == []


def test_what_other_servers_report_of_the_selection_is_told_with_a_fix(place: Place) -> None:
    place.script({"text": "Nothing to do."})
    with Neovim(place, "animals.txt") as nvim:
        opened(nvim)
        nvim.lua(
            """
            local space = vim.api.nvim_create_namespace('linter')
            local function report(line, message) return { lnum = line, col = 0, message = message } end
            vim.diagnostic.set(space, 0, { report(0, 'elsewhere'), report(1, 'asleep') })
            """
        )
        nvim.lua(ACT, "fix", 2, 2, 15)
        nvim.wait("#notes == 1")
        assert "The editor reports:\n- line 2: asleep\n" in nvim.chat()
        assert "elsewhere" not in nvim.chat()
        assert nvim.notes == ["refold: Nothing was changed: the reply has no replacement."]


def test_an_edit_for_another_version_of_the_text_is_refused_and_changes_nothing(place: Place) -> None:
    with Neovim(place, "animals.txt") as nvim:
        opened(nvim)
        answers = nvim.lua(
            """
            local before = vim.lsp.util.buf_versions[vim.api.nvim_get_current_buf()]
            vim.api.nvim_buf_set_lines(0, 0, 0, true, { 'typed meanwhile' })
            local place = { line = 0, character = 0 }
            local function apply(version)
              return require('refold.edits').apply({ edit = { documentChanges = { {
                textDocument = { uri = vim.uri_from_bufnr(0), version = version },
                edits = { { range = { start = place, ['end'] = place }, newText = 'X' } },
              } } } }, { client_id = vim.lsp.get_clients({ name = 'refold' })[1].id })
            end
            local stale = apply(before)
            vim.bo.modifiable = false
            local locked = apply(vim.lsp.util.buf_versions[vim.api.nvim_get_current_buf()])
            vim.bo.modifiable = true
            return { stale, locked, apply(vim.lsp.util.buf_versions[vim.api.nvim_get_current_buf()]) }
            """
        )
        assert answers == [
            {"applied": False, "failureReason": "animals.txt was changed meanwhile"},
            {"applied": False, "failureReason": "animals.txt cannot be modified"},
            {"applied": True},
        ]
        assert lines(nvim) == ["Xtyped meanwhile", "a horse", "the zebra sleeps"]


def test_a_code_action_asks_in_the_session_that_is_open_and_says_when_a_turn_runs_there(place: Place) -> None:
    gate = Gate()
    with FakeProvider(answer(text("A"), gate, chunk({}, "stop"), DONE)) as provider:
        place.provider(provider.base_url)
        with Neovim(place, "animals.txt") as nvim:
            nvim.command("Refold")
            nvim.session()
            nvim.command("RefoldPrompt go")
            nvim.wait_chat("## You\n\ngo\n\n## Reply\n\nA")
            nvim.lua("vim.api.nvim_set_current_win(vim.fn.win_findbuf(vim.fn.bufnr('animals.txt'))[1])")
            nvim.wait("#vim.lsp.get_clients({ bufnr = 0, method = 'textDocument/codeAction' }) == 1")
            nvim.lua(ACT, "explain", 2, 2, 15)
            nvim.wait("#notes == 1")
            gate.open()
            nvim.wait_turn(1)
            assert "turn" in nvim.notes[0]
