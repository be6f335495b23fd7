"""The page of a session: at each event it can be cut back to what is durable, and the log's end looks the same by any way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.daemons import Place
from tests.support.neovim import Neovim
from tests.support.neovim_pages import PAGE, PAGES, Json, log_with_everything, settled_chunks


@pytest.fixture
def nvim(place: Place) -> Iterator[Neovim]:
    with Neovim(place) as one:
        one.lua(PAGES)
        yield one


EVERY_WAY = """
    local events, left_out = ...
    local by_seq = {}
    for seq in pairs(vim.json.decode(left_out)) do by_seq[tonumber(seq)] = true end
    return every_way(vim.json.decode(events), by_seq)
"""


def test_every_way_through_a_log_ends_with_the_same_page(nvim: Neovim) -> None:
    events = log_with_everything()
    whole = "local one = following(); local e = vim.json.decode(...); tell(one, e, 0, #e - 1, #e - 1); return seen(one)"
    lines, _, beside = nvim.lua(whole, json.dumps(events))
    assert "\n".join(lines) == PAGE
    assert [said for _, said in beside] == [
        "  ✓ 1 line",
        "  ✗ TOOL_FAILED",
        "  ✓ allowed for the session (client: Neovim)",
        "  gA allow · gS allow for the session · gD deny",
    ]
    assert nvim.lua(EVERY_WAY, json.dumps(events), "{}") == []
    assert nvim.lua(EVERY_WAY, json.dumps(events), json.dumps(settled_chunks(events))) == []


def test_every_way_through_a_recorded_session_ends_with_the_same_page(place: Place) -> None:
    calls = [{"name": "read_file", "arguments": {"path": "animals.txt"}, "id": "c1"}]
    place.script({"reasoning": "Hm.", "text": "I look.", "calls": calls, "chunk": 3}, {"text": "It\n\nsleeps.", "chunk": 2})
    with Neovim(place) as nvim:
        nvim.lua(PAGES)
        nvim.command("Refold")
        session = nvim.session()
        nvim.command("RefoldPrompt look")
        nvim.wait_turn(1)
        events = asyncio.run(place.recorded(session))
        assert nvim.lua(EVERY_WAY, json.dumps(events), json.dumps(settled_chunks(events))) == []
        whole = "local one = following(); local e = vim.json.decode(...); tell(one, e, 0, #e - 1, #e - 1); return seen(one)[1]"
        assert "\n".join(nvim.lua(whole, json.dumps(events))) == nvim.chat()


@given(pieces=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=20))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=50)
def test_whatever_is_repeated_no_event_is_missing_or_comes_twice(nvim: Neovim, pieces: list[tuple[int, int]]) -> None:
    known, notices = -1, list[Json]()
    for back, length in pieces:
        prev = max(-1, known - back)
        events = [{"type": "toy", "seq": seq} for seq in range(prev + 1, prev + 1 + length)]
        notices.append({"events": events, "prev": prev, "durable": -1})
        known = max(known, prev + length)
    taken = nvim.lua(
        """
        local cursor = require('refold.cursor').new(-1, { subscription = 1, durable = -1 })
        local taken = {}
        for _, notice in ipairs(vim.json.decode(...)) do
          for _, event in ipairs(cursor:take(notice)) do table.insert(taken, event.seq) end
        end
        return taken
        """,
        json.dumps(notices),
    )
    assert taken == list(range(known + 1))


def test_what_came_within_one_turn_of_the_event_loop_is_one_change(nvim: Neovim) -> None:
    changes = nvim.lua(
        """
        local events = vim.json.decode(...)
        local one = following()
        local changes = 0
        vim.api.nvim_buf_attach(one.page.buffer, false, { on_bytes = function() changes = changes + 1 end })
        for seq = 0, 8 do
          one:take({ events = { events[seq + 1] }, prev = seq - 1, durable = seq })
        end
        assert(changes == 0)
        vim.wait(10000, function() return not one.flushing end, 1)
        return changes
        """,
        json.dumps(log_with_everything()),
    )
    assert changes == 1


def test_a_page_that_somebody_wrote_into_is_made_anew_from_the_log(place: Place) -> None:
    place.script({"text": "Yes."}, {"text": "And yes."})
    with Neovim(place) as nvim:
        nvim.command("Refold")
        nvim.session()
        nvim.command("RefoldPrompt a")
        nvim.wait_turn(1)
        nvim.lua(
            """
            local buffer = require('refold.sessions').current.buffer
            vim.bo[buffer].modifiable = true
            vim.api.nvim_buf_set_lines(buffer, 0, 3, true, {})
            """
        )
        nvim.command("RefoldPrompt b")
        nvim.wait_chat("## You\n\na\n\n## Reply\n\nYes.\n\n## You\n\nb\n\n## Reply\n\nAnd yes.")


def test_a_window_follows_the_text_unless_its_cursor_was_moved_up(nvim: Neovim) -> None:
    rows = nvim.lua(
        """
        local events = vim.json.decode(...)
        local one = following()
        local last = function() return vim.api.nvim_buf_line_count(one.page.buffer) end
        vim.api.nvim_win_set_buf(0, one.page.buffer)
        local window = vim.api.nvim_get_current_win()
        vim.cmd.new()
        tell(one, events, 0, 5, 5)
        vim.api.nvim_win_set_cursor(window, { last(), 0 })
        tell(one, events, 6, 8, 8)
        local followed = vim.api.nvim_win_get_cursor(window)[1] == last()
        vim.api.nvim_win_set_cursor(window, { 3, 0 })
        tell(one, events, 9, #events - 1, #events - 1)
        return { followed, vim.api.nvim_win_get_cursor(window)[1] }
        """,
        json.dumps(log_with_everything()),
    )
    assert rows == [True, 3]


def test_a_cursor_at_the_end_goes_to_the_question_that_comes_and_on_when_it_is_over_and_one_that_reads_it_stays(
    nvim: Neovim,
) -> None:
    rows = nvim.lua(
        """
        local function event(kind, data) return { type = kind, seq = 0, time = 0, data = data } end
        local function asked(id)
          return event('approval/asked', { id = id, callId = id, tool = 'x', subject = { kind = 'text', text = 'a\\nb' } })
        end
        local function decided(id)
          return event('approval/decided', { id = id, outcome = 'denied', scope = 'once', by = { kind = 'client' } })
        end
        local one, at, rows = following(), -1, {}
        vim.api.nvim_win_set_buf(0, one.page.buffer)
        local window = vim.api.nvim_get_current_win()
        vim.cmd.new()
        local function come(...)
          local events = { ... }
          for place, each in ipairs(events) do each.seq = at + place end
          one:take({ events = events, prev = at, durable = at + #events })
          one.page:flush()
          at = at + #events
          local line = vim.api.nvim_win_get_cursor(window)[1]
          table.insert(rows, vim.api.nvim_buf_get_lines(one.page.buffer, line - 1, line, true)[1])
        end
        come(event('compact/end', {}))
        come(asked('p1'), asked('p2'))
        come(asked('p3'))
        come(decided('p1'))
        vim.api.nvim_win_set_cursor(window, { vim.api.nvim_win_get_cursor(window)[1] + 1, 0 })
        come(event('compact/end', {}))
        vim.api.nvim_win_set_cursor(window, { vim.api.nvim_buf_line_count(one.page.buffer), 0 })
        come(asked('p5'))
        vim.api.nvim_win_set_cursor(window, { vim.api.nvim_buf_line_count(one.page.buffer), 0 })
        come(event('compact/end', {}))
        come(decided('p2'), decided('p3'), decided('p5'))
        vim.api.nvim_win_set_cursor(window, { vim.api.nvim_buf_line_count(one.page.buffer), 0 })
        come(asked('p4'))
        come(decided('p4'))
        come(event('compact/end', {}))
        return rows
        """
    )
    question, remark = "? May x run? a … (2 lines)", "*The older part of the history was compacted for the model.*"
    assert rows == [remark, question, question, question, "a", question, "b", "b", question, "b", remark]
