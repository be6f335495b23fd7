"""The end of Neovim is the end of its daemon, however it comes; and what `:checkhealth refold` says."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import pytest

from tests.support.chat_stream import text
from tests.support.daemons import Place
from tests.support.fake_provider import FakeProvider, Gate, answer
from tests.support.neovim import Ending, Neovim


@pytest.mark.parametrize("how", ["quit", "kill"])
def test_no_daemon_is_left_behind_by_an_idle_neovim(place: Place, how: str) -> None:
    with Neovim(place) as nvim:
        nvim.command("Refold")
        nvim.session()
        daemon = Ending(nvim.daemon())
        if how == "quit":
            assert nvim.quit() == 0
        else:
            nvim.popen.kill()
        daemon.wait()


@pytest.mark.parametrize("how", ["quit", "kill"])
def test_no_daemon_is_left_behind_by_a_neovim_whose_turn_runs(place: Place, how: str) -> None:
    with FakeProvider(answer(text("Half"), Gate())) as provider:
        place.provider(provider.base_url)
        with Neovim(place, on_disconnect="cancel") as nvim:
            nvim.command("Refold")
            session = nvim.session()
            nvim.command("RefoldPrompt go")
            nvim.wait_chat("## You\n\ngo\n\n## Reply\n\nHalf")
            daemon = Ending(nvim.daemon())
            if how == "quit":
                assert nvim.quit() == 0
            else:
                nvim.popen.send_signal(signal.SIGKILL)
            daemon.wait()
    recorded = asyncio.run(place.recorded(session))
    assert recorded[-1]["data"]["reason"]["cause"]["kind"] == "disposed"


def test_a_daemon_that_was_stopped_is_not_started_again_before_it_is_needed(place: Place) -> None:
    place.script({"text": "Yes."})
    with Neovim(place) as nvim:
        nvim.command("Refold")
        nvim.session()
        daemon = Ending(nvim.daemon())
        nvim.lua(
            "local start = vim.lsp.start; starts = 0; vim.lsp.start = function(...) starts = starts + 1; return start(...) end"
        )
        nvim.command("RefoldStop")
        daemon.wait()
        nvim.wait("require('refold.sessions').current.state == 'lost'")
        assert nvim.lua("return starts") == 0
        nvim.command("RefoldPrompt go")
        nvim.wait_turn(1)
        assert nvim.chat() == "## You\n\ngo\n\n## Reply\n\nYes."
        assert nvim.notes == []


def report(nvim: Neovim) -> list[str]:
    """Run the health check and give its lines."""
    nvim.command("checkhealth refold")
    return list(nvim.lua("return vim.api.nvim_buf_get_lines(0, 0, -1, true)"))


def test_the_health_check_tells_of_neovim_the_daemon_the_store_and_the_models(place: Place) -> None:
    place.provider("http://127.0.0.1:9/v1", 'key_env = "NO_SUCH_KEY"\n', window=None)
    config: Any = place.config.read_text().replace('model = "fake/small"\nkey_env = "NO_SUCH_KEY"\n', 'model = "fake/small"\n')
    place.configure(config + 'key_env = "NO_SUCH_KEY"\n[models."fake/small"]\ncontext_window = 1000\n')
    with Neovim(place) as nvim:
        lines = report(nvim)
        assert any(line.startswith("- ✅ OK Neovim 0.") for line in lines)
        assert any(line.startswith("- ✅ OK refold 0.1.0, protocol 1, process ") for line in lines)
        assert f"- ✅ OK {place.store}, format 0" in lines
        assert any(line.startswith("- 0 sessions, ") for line in lines)
        assert "- ⚠️ WARNING provider fake (chat-completions), key: missing" in lines
        assert "- model fake/small, window 1000 tokens, the default" in lines
        assert not any("❌" in line for line in lines)
        nvim.wait("#vim.lsp.get_clients({ name = 'refold' }) == 0")


def test_the_health_check_leaves_a_daemon_that_ran_and_tells_of_its_sessions(place: Place) -> None:
    with Neovim(place) as nvim:
        nvim.command("Refold")
        session = nvim.session()
        pid = nvim.daemon()
        assert f"- session {session}: idle, 0 events" in report(nvim)
        assert nvim.daemon() == pid


def test_the_health_check_says_what_is_wrong(place: Place) -> None:
    with Neovim(place, command=("no-such-refold",)) as nvim:
        assert "- ❌ ERROR there is no program no-such-refold" in report(nvim)
    with Neovim(place, command=("false",)) as nvim:
        assert any("❌ ERROR the daemon ended before it was ready (exit code 1)" in line for line in report(nvim))
        nvim.lua("vim.v.errmsg = ''")
    place.configure("modle = 1\n")
    with Neovim(place) as nvim:
        assert any("❌ ERROR" in line and "modle" in line for line in report(nvim))


def test_trouble_of_a_session_is_an_error_of_the_health_check(place: Place) -> None:
    with Neovim(place) as nvim:
        said = nvim.lua(
            """
            local said = {}
            for _, word in ipairs({ 'start', 'ok', 'info', 'warn', 'error' }) do
              vim.health[word] = function(text) table.insert(said, word .. ': ' .. text) end
            end
            local session = { session = 's', status = 'broken', tail = 4, trouble = 'the disk is full' }
            local store = { path = '/store', format = 0, sessions = 1, usedBytes = 0, fileBytes = 0, readers = 0 }
            require('refold.health').tell_store({ store = store, sessions = { session } })
            return said
            """
        )
        assert said[-1] == "error: session s: the disk is full"
