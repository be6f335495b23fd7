"""What was typed and not sent: it outlives windows, buffers and, once it is written, Neovim."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.daemons import Place
from tests.support.neovim import Neovim

PROMPT = """
    for _, buffer in ipairs(vim.api.nvim_list_bufs()) do
      if vim.api.nvim_buf_is_loaded(buffer) and vim.bo[buffer].filetype == "refold-prompt" then return buffer end
    end
"""
TYPED = f"vim.api.nvim_buf_set_lines((function() {PROMPT} end)(), 0, -1, true, vim.split(..., ' ', {{ plain = true }}))"
SEEN = f"return table.concat(vim.api.nvim_buf_get_lines((function() {PROMPT} end)(), 0, -1, true), ' ')"
IS_MODIFIED = f"return vim.bo[(function() {PROMPT} end)()].modified"
ATTACHED = """
    local buffer = vim.api.nvim_create_buf(false, true)
    require("refold.drafts").attach(buffer, ...)
    vim.bo[buffer].filetype = "refold-prompt"
"""
REFUSED = "return not pcall(vim.cmd, ...)"


@pytest.fixture
def nvim(place: Place) -> Iterator[Neovim]:
    place.script({"text": "It sleeps."}, {"text": "It sleeps."})
    with Neovim(place) as one:
        one.command("Refold")
        one.session()
        yield one


def test_a_draft_counts_as_modified_and_neovim_warns_before_it_goes(nvim: Neovim) -> None:
    assert not nvim.lua(IS_MODIFIED)
    nvim.lua(TYPED, "half an hour")
    assert nvim.lua(IS_MODIFIED)
    assert nvim.lua(REFUSED, "qall")


def test_a_draft_outlives_its_buffer(nvim: Neovim) -> None:
    nvim.lua(TYPED, "half an hour")
    nvim.lua(f"vim.api.nvim_buf_delete((function() {PROMPT} end)(), {{ force = true }})")
    nvim.command("Refold")
    assert nvim.lua(SEEN) == "half an hour"


def test_a_draft_that_was_written_is_there_the_next_time_and_gone_once_it_was_sent(place: Place, nvim: Neovim) -> None:
    session = nvim.session()
    nvim.lua(TYPED, "half an hour")
    nvim.lua(f"vim.api.nvim_buf_call((function() {PROMPT} end)(), vim.cmd.write)")
    assert not nvim.lua(IS_MODIFIED)
    with Neovim(place) as other:
        other.lua(ATTACHED, session)
        assert other.lua(SEEN) == "half an hour"
    nvim.keys("<CR>")
    nvim.wait(f"vim.api.nvim_buf_get_lines((function() {PROMPT} end)(), 0, -1, true)[1] == ''")
    assert nvim.lua(SEEN) == ""
    assert not nvim.lua(IS_MODIFIED)
