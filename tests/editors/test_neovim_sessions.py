"""Sessions in Neovim: begun, chosen from a list, shared with other processes, given back; and the words of a status line."""

from __future__ import annotations

import os
import resource
from typing import Any

import pytest

from tests.support.chat_stream import DONE, chunk, text
from tests.support.daemons import Place
from tests.support.fake_provider import FakeProvider, Gate, answer
from tests.support.neovim import Ending, Neovim, NeovimError

NOISE = os.urandom(150_000).hex()
"""Text that is longer than the store's free pages."""

BY = {"source": {"kind": "client"}}

SELECT = """
    local index = ...
    vim.ui.select = function(items, options, fn)
      shown = vim.tbl_map(options.format_item, items)
      fn(items[index])
    end
"""
"""Choose the entry with that number, and remember what was offered."""


def test_the_picker_lists_sessions_and_shows_the_one_that_is_chosen(place: Place) -> None:
    place.script({"text": "One."}, {"text": "Two."}, {"text": "Three."})
    with Neovim(place) as nvim:
        nvim.command("Refold")
        first = nvim.session()
        nvim.command("RefoldPrompt first")
        nvim.wait_turn(1)
        nvim.ask("session/rename", {"session": first, "title": "The first"})
        nvim.command("RefoldNew")
        nvim.wait(f"require('refold.sessions').current.id ~= '{first}'")
        nvim.command("RefoldPrompt second")
        nvim.wait_turn(1)
        nvim.lua(SELECT, 2)
        nvim.command("RefoldSessions")
        nvim.wait("shown and require('refold.sessions').current.id == given[1]", first)
        assert nvim.lua("return shown") == [
            "second · 1 turn · just now · rehearsal/workspace",
            "The first · 1 turn · just now · rehearsal/workspace",
        ]
        assert nvim.chat() == "## You\n\nfirst\n\n## Reply\n\nOne."
        nvim.command("RefoldPrompt again")
        nvim.wait_turn(2)
        assert nvim.chat().endswith("## You\n\nagain\n\n## Reply\n\nThree.")


def test_a_log_that_cannot_be_written_is_told_and_so_is_that_it_can_be_again(place: Place) -> None:
    place.script({"text": "One."}, {"text": "Two."})
    with Neovim(place) as nvim:
        nvim.command("Refold")
        session = nvim.session()
        nvim.command("RefoldPrompt first")
        nvim.wait_turn(1)
        size, limits = (place.store / "data.mdb").stat().st_size, resource.prlimit(nvim.daemon(), resource.RLIMIT_FSIZE)
        resource.prlimit(nvim.daemon(), resource.RLIMIT_FSIZE, (size, limits[1]))
        with pytest.raises(AssertionError, match=r"^log\.full"):
            nvim.ask("session/inject", {"session": session, "content": [{"type": "text", "text": NOISE}], **BY})
        nvim.wait("vim.tbl_contains(notes, function(note) return note:find('no space') end, { predicate = true })")
        resource.prlimit(nvim.daemon(), resource.RLIMIT_FSIZE, limits)
        nvim.command("RefoldPrompt second")
        nvim.wait_turn(2)
        assert nvim.notes[-1] == "refold: The log can be written again."


def test_a_session_that_is_deleted_elsewhere_is_told_and_let_go(place: Place) -> None:
    place.script({"text": "One."})
    with Neovim(place) as nvim:
        nvim.command("Refold")
        session = nvim.session()
        nvim.command("RefoldPrompt first")
        nvim.wait_turn(1)
        nvim.ask("session/delete", {"session": session})
        nvim.wait("require('refold.sessions').current.state == 'lost'")
        assert nvim.notes[-1] == f"refold: there is no session {session}"


def test_a_session_of_an_earlier_neovim_is_shown_whole_and_goes_on(place: Place) -> None:
    place.script({"reasoning": "Hm.", "text": "One."})
    with Neovim(place) as nvim:
        nvim.command("Refold")
        nvim.command("RefoldPrompt first")
        session = nvim.session()
        nvim.wait_turn(1)
        shown = nvim.chat()
        assert nvim.quit() == 0
    place.script({"text": "Two."})
    with Neovim(place) as nvim:
        nvim.lua(SELECT, 1)
        nvim.command("RefoldSessions!")
        assert nvim.session() == session
        nvim.wait_chat(shown)
        nvim.command("RefoldPrompt second")
        nvim.wait_turn(2)
        assert nvim.chat() == f"{shown}\n\n## You\n\nsecond\n\n## Reply\n\nTwo."


def test_only_the_sessions_of_the_folder_are_offered_unless_all_are_asked_for(place: Place) -> None:
    place.script({"text": "One."})
    with Neovim(place) as nvim:
        nvim.command("Refold")
        nvim.session()
        nvim.command("RefoldPrompt first")
        nvim.wait_turn(1)
        nvim.lua(SELECT, 99)
        nvim.command(f"cd {place.root}")
        nvim.command("enew")
        nvim.command("RefoldSessions")
        nvim.wait("#notes == 1")
        assert nvim.notes == ["refold: there are no sessions here; :RefoldNew begins one"]
        nvim.command("RefoldSessions!")
        nvim.wait("shown and #shown == 1")


def test_a_long_list_goes_on_with_older_sessions(place: Place) -> None:
    place.script({"text": "One."}, {"text": "Two."})
    with Neovim(place) as nvim:
        for prompt in ("a", "b"):
            nvim.command("RefoldNew")
            nvim.wait("require('refold.sessions').current and require('refold.sessions').current.following.reading.ended == 0")
            nvim.command(f"RefoldPrompt {prompt}")
            nvim.wait_turn(1)
        nvim.lua(
            """
            offered = {}
            vim.ui.select = function(items, options, fn)
              table.insert(offered, vim.tbl_map(options.format_item, items))
              fn(items[2])
            end
            require('refold.picker').page = 1
            """
        )
        nvim.command("RefoldSessions")
        nvim.wait("#offered == 2")
        assert [len(page) for page in nvim.lua("return offered")] == [2, 1]
        assert nvim.lua("return offered[1][2]") == "older ones …"


def test_a_session_that_another_neovim_writes_is_followed_and_cannot_be_prompted(place: Place) -> None:
    gate = Gate()
    with FakeProvider(answer(text("A"), gate, text("B"), chunk({}, "stop"), DONE)) as provider:
        place.provider(provider.base_url)
        with Neovim(place) as writer, Neovim(place) as reader:
            writer.command("Refold")
            session = writer.session()
            writer.command("RefoldPrompt go")
            writer.wait_chat("## You\n\ngo\n\n## Reply\n\nA")
            reader.command(f"Refold {session}")
            reader.session()
            reader.wait_chat("## You\n\ngo\n\n## Reply\n\nA")
            gate.open()
            reader.wait_chat("## You\n\ngo\n\n## Reply\n\nAB")
            assert reader.notes[0].startswith("refold: this session can be read only: ")
            reader.command("RefoldPrompt me too")
            reader.wait("#notes == 2")
            assert reader.notes[1] == reader.notes[0]
            assert reader.lua("return vim.api.nvim_buf_get_lines(0, 0, -1, true)") == ["me too"]
            writer.wait_turn(1)


def test_a_session_can_be_prompted_once_the_other_neovim_has_ended(place: Place) -> None:
    place.script({"text": "One."})
    with Neovim(place) as reader:
        with Neovim(place) as writer:
            writer.command("Refold")
            session = writer.session()
            writer.command("RefoldPrompt go")
            writer.wait_turn(1)
            reader.command(f"Refold {session}")
            reader.session()
            reader.wait_chat("## You\n\ngo\n\n## Reply\n\nOne.")
            daemon = Ending(writer.daemon())
            assert writer.quit() == 0
        daemon.wait()
        reader.command("RefoldPrompt me too")
        reader.wait_turn(2)
        assert reader.chat() == "## You\n\ngo\n\n## Reply\n\nOne.\n\n## You\n\nme too\n\n## Reply\n\nOne."


def test_a_buffer_that_is_deleted_gives_its_session_back(place: Place) -> None:
    place.script({"text": "One."})
    with Neovim(place) as first, Neovim(place) as second:
        first.command("Refold")
        session = first.session()
        first.command("RefoldPrompt go")
        first.wait_turn(1)
        first.lua("vim.cmd.bwipeout({ require('refold.sessions').current.buffer, bang = true })")
        while first.ask("daemon/health")["sessions"]:
            pass  # it is being closed
        second.command(f"Refold {session}")
        second.session()
        second.wait_chat("## You\n\ngo\n\n## Reply\n\nOne.")
        assert second.notes == []


def test_a_chat_whose_buffer_is_read_again_is_shown_again(place: Place) -> None:
    place.script({"text": "One."})
    with Neovim(place) as nvim:
        nvim.command("Refold")
        session = nvim.session()
        nvim.command("RefoldPrompt go")
        nvim.wait_turn(1)
        shown = nvim.chat()
        nvim.lua("vim.cmd.wincmd('k'); vim.cmd.edit()")
        assert nvim.session() == session
        nvim.wait_chat(shown)


def test_the_status_line_says_what_the_session_does_and_how_many_others_work(place: Place) -> None:
    gates = Gate(), Gate()
    end = text("A"), chunk({}, "stop"), DONE
    with FakeProvider(answer(gates[0], *end), answer(gates[1], *end)) as provider:
        place.provider(provider.base_url)
        with Neovim(place) as nvim:
            nvim.lua("heard = {}")
            nvim.lua(
                "vim.api.nvim_create_autocmd('User', { pattern = 'RefoldStatus', "
                "callback = function(event) table.insert(heard, event.data.status) end })"
            )
            assert nvim.lua("return require('refold').status()") == ""
            nvim.command("RefoldPrompt go")
            nvim.wait("require('refold').status() == 'refold: running'")
            nvim.command("RefoldNew")
            nvim.wait("require('refold').status() == 'refold: idle (+1)'")
            nvim.command("RefoldPrompt go")
            nvim.wait("require('refold').status() == 'refold: running (+1)'")
            for gate in gates:
                gate.open()
            nvim.wait("require('refold').status() == 'refold: idle'")
            assert nvim.lua("return heard") == ["running", "running", "idle", "idle"]
            nvim.command("RefoldStop")
            nvim.wait("require('refold').status() == ''")


def test_the_window_bar_names_the_session_and_what_it_waits_for(place: Place) -> None:
    place.script({"text": "One."})
    with Neovim(place) as nvim:
        nvim.command("Refold")
        session = nvim.session()
        nvim.command("RefoldPrompt go")
        nvim.wait_turn(1)
        nvim.ask("session/rename", {"session": session, "title": "100% done"})
        nvim.wait("require('refold.sessions').current.following.reading.title ~= nil")
        bar = nvim.lua(
            """
            vim.cmd.wincmd('k')
            return vim.api.nvim_eval_statusline(vim.wo.winbar, { winid = 0, use_winbar = true }).str
            """
        )
        assert bar == " 100% done · idle"


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"cmd": "refold serve"}, "refold.setup: cmd must be a list of texts"),
        ({"modle": "x/y"}, 'refold.setup: there is no setting "modle"'),
        ({"layout": "floating"}, 'refold.setup: layout must be "vertical", "horizontal" or "tab", not "floating"'),
        ({"on_disconnect": "panic"}, 'refold.setup: on_disconnect must be "finish" or "cancel"'),
        ({"prompt_height": 0.5}, "refold.setup: prompt_height must be a whole number of lines"),
    ],
)
def test_a_wrong_setting_is_named(place: Place, settings: Any, complaint: str) -> None:
    with Neovim(place) as nvim, pytest.raises(NeovimError, match=complaint.replace(".", r"\.")):
        nvim.lua("require('refold').setup(...)", settings)


def test_a_daemon_that_cannot_be_started_is_told_with_what_to_do(place: Place) -> None:
    with Neovim(place, command=("no-such-refold",)) as nvim:
        nvim.command("Refold")
        assert nvim.notes == ["refold: there is no program no-such-refold; :help refold-install"]


def test_a_prompt_for_which_no_daemon_can_be_started_is_given_back(place: Place) -> None:
    place.script({"text": "One."})
    with Neovim(place) as nvim:
        nvim.command("Refold")
        nvim.session()
        nvim.command("RefoldStop")
        nvim.wait("require('refold.sessions').current.state == 'lost'")
        nvim.lua("good = require('refold.settings').get().cmd; require('refold.settings').get().cmd = { 'no-such-refold' }")
        nvim.keys("igo<Esc><CR>")
        nvim.wait("#notes == 1")
        assert nvim.lua("return vim.api.nvim_buf_get_lines(0, 0, -1, true)") == ["go"]
        nvim.lua("require('refold.settings').get().cmd = good")
        nvim.keys("<CR>")
        nvim.wait_turn(1)
        assert nvim.chat() == "## You\n\ngo\n\n## Reply\n\nOne."


@pytest.mark.parametrize(("layout", "shape"), [("vertical", "row"), ("horizontal", "col")])
def test_the_chat_opens_where_the_settings_say_and_closes_with_its_prompt(place: Place, layout: str, shape: str) -> None:
    with Neovim(place, "animals.txt", layout=layout) as nvim:
        nvim.command("Refold")
        nvim.session()
        assert nvim.lua("return vim.fn.winlayout()[1]") == shape
        assert nvim.lua("return #vim.api.nvim_list_wins()") == 3
        nvim.command("Refold")
        assert nvim.lua("return #vim.api.nvim_list_wins()") == 3
        nvim.lua("vim.cmd.wincmd('k'); vim.cmd.close()")
        nvim.wait("#vim.api.nvim_list_wins() == 1")
        nvim.command("Refold")
        assert nvim.lua("return #vim.api.nvim_list_wins()") == 3
