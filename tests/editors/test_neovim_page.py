"""The page of a session: at each event it can be cut back to what is durable, and the log's end looks the same by any way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.daemons import Place
from tests.support.neovim import Neovim

Json = dict[str, Any]

PAGES = """
local Following = require('refold.following')
local Cursor = require('refold.cursor')

-- Give a following of nothing yet, under whatever buffer.
function following()
  local buffer = vim.api.nvim_create_buf(false, true)
  local one = Following.new(buffer, function() end, function() end)
  one.cursor = Cursor.new(-1, { subscription = 1, durable = -1 })
  return one
end

-- Tell the events from..to, some of which may be left out; flush like the scheduler would.
function tell(one, events, from, to, durable, left_out)
  local told = {}
  for seq = from, to do
    if not (left_out and left_out[seq]) then told[#told + 1] = events[seq + 1] end
  end
  one:take({ events = told, prev = one.cursor.last, durable = durable })
  one.page:flush()
end

-- Give all that a person sees: the lines, what is highlighted (stretches that touch as one), what stands beside lines.
function seen(one)
  local marks = vim.api.nvim_buf_get_extmarks(one.page.buffer, -1, 0, -1, { details = true })
  local stretches, beside = {}, {}
  for _, mark in ipairs(marks) do
    local more = mark[4]
    if more.virt_text then
      table.insert(beside, { mark[2], more.virt_text[1][1] })
    else
      local last = stretches[#stretches]
      if last and last[1] == more.hl_group and last[4] == mark[2] and last[5] == mark[3] then
        last[4], last[5] = more.end_row, more.end_col
      else
        table.insert(stretches, { more.hl_group, mark[2], mark[3], more.end_row, more.end_col })
      end
    end
  end
  return { vim.api.nvim_buf_get_lines(one.page.buffer, 0, -1, true), stretches, beside }
end

-- Go every way through a log: up to an event, back to one that was durable then, on to the end.
function every_way(events, left_out)
  local last = #events - 1
  local short = {}
  for seq = 0, last do
    local one = following()
    tell(one, events, 0, seq, seq)
    short[seq] = seen(one)
    vim.api.nvim_buf_delete(one.page.buffer, { force = true })
  end
  for seq = 0, last do
    for durable = 0, seq do
      local one = following()
      for at = 0, seq do tell(one, events, at, at, math.min(at, durable)) end
      local what = ('%d, durable %d'):format(seq, durable)
      if not vim.deep_equal(seen(one), short[seq]) then return { what, 'told one by one', seen(one), short[seq] } end
      one:let_go()
      if one.after ~= durable then return { what, 'after', one.after } end
      if not vim.deep_equal(seen(one), short[durable]) then return { what, 'taken back', seen(one), short[durable] } end
      one.cursor = Cursor.new(durable, { subscription = 1, durable = durable })
      tell(one, events, durable + 1, last, last, left_out)
      if not vim.deep_equal(seen(one), short[last]) then return { what, 'told on', seen(one), short[last] } end
      vim.api.nvim_buf_delete(one.page.buffer, { force = true })
    end
  end
  return {}
end
"""

PERSON: Json = {"kind": "client", "name": "Neovim"}


class Log:
    """Writes down events with their seqs."""

    def __init__(self) -> None:
        self.events: list[Json] = []

    def add(self, kind: str, surface: Any = None, **data: Any) -> None:
        """Add one."""
        more = {} if surface is None else {"surfaceOp": surface}
        self.events.append({"type": kind, "seq": len(self.events), "time": 0, "data": data, **more})

    def chunk(self, kind: str, index: int, piece: str) -> None:
        """Add a chunk with text."""
        self.add("assistant/chunk", turn=1, step=1, attempt=1, chunk={"type": kind, "index": index, "text": piece})

    def reply(self, *blocks: tuple[str, str]) -> None:
        """Add a reply with blocks of these types and texts."""
        content = [{"type": kind, "text": said} for kind, said in blocks]
        self.add("assistant/message", "append", turn=1, step=1, content=content)

    def message(self, kind: str, said: str, **more: Any) -> None:
        """Add a message that is not the model's."""
        self.add(kind, "append", content=[{"type": "text", "text": said}], source=PERSON, **more)

    def call(self, call_id: str, name: str, arguments: str) -> None:
        """Add a call."""
        self.add("tool/call", turn=1, step=1, callId=call_id, name=name, arguments=arguments)

    def result(self, call_id: str, said: str, **error: Any) -> None:
        """Add a result."""
        content = [{"type": "text", "text": said}]
        self.add("tool/result", "append", turn=1, step=1, callId=call_id, content=content, isError=bool(error), **error)


def a_log_with_everything() -> list[Json]:
    """Give a log with all that a person sees, odd ends of text and all."""
    log = Log()
    log.add("instance/start", instance=1, reason="new")
    log.add("session/title", title="A title", by=PERSON)
    log.add("input/accepted", input="i1", mode="prompt", content=[{"type": "text", "text": "go\n"}], source=PERSON)
    log.add("turn/start", turn=1, trigger={"kind": "message", "source": PERSON, "input": "i1"})
    log.message("user/message", "go\n", input="i1")
    log.message("context/message", "Mind the gap.", envelope="context")
    log.add("step/start", turn=1, step=1)
    log.chunk("reasoning-delta", 0, "Hm")
    log.chunk("reasoning-delta", 0, ", hm.\n")
    log.chunk("text-delta", 1, "Wro")
    log.chunk("text-delta", 1, "ng\nagain")
    log.add("llm/retry", turn=1, step=1, attempt=1, code="provider.timeout", delayMs=1)
    log.chunk("text-delta", 0, "Rig")
    log.chunk("text-delta", 0, "ht 🦊")
    log.chunk("text-delta", 1, "")
    log.chunk("text-delta", 2, "and more\n\n\n")
    log.reply(("text", "Right 🦊"), ("text", "and more\n\n\n"))
    log.call("c1", "read_file", '{"path":\n"a"}')
    log.call("c2", "search_text", '{"pattern": "' + "x" * 400 + '"}')
    log.result("c1", "one line")
    log.result("c2", "no such file", error={"code": "TOOL_FAILED", "name": "ToolError"})
    log.add("step/end", turn=1, step=1)
    log.message("steering/message", "left, please", turn=1)
    log.add("step/start", turn=1, step=2)
    log.chunk("text-delta", 0, "streamed differently")
    log.reply(("text", "than recorded"))
    log.chunk("text-delta", 0, "what came to nothing")
    log.add("step/end", turn=1, step=2, outcome="error")
    log.add("turn/end", turn=1, reason={"kind": "error", "error": {"kind": "provider.timeout", "message": "Too\nslow."}})
    log.add("input/accepted", input="i2", mode="prompt", content=[{"type": "text", "text": "no"}], source=PERSON)
    log.add("input/settled", input="i2", how="blocked", reason="not here")
    log.add("user/message", {"op": "replace", "start": 4, "end": 5}, content=[{"type": "text", "text": "sum"}], source=PERSON)
    log.add("compact/end")
    log.add("x-plugin/event", anything=[1, 2])
    log.add("turn/start", turn=2, trigger={"kind": "injection", "source": PERSON})
    log.add("turn/end", turn=2, reason={"kind": "x-plugin"})
    return log.events


def settled_chunks(events: list[Json]) -> Json:
    """Give the seqs of the chunks that a daemon leaves out where the reply is there: those before the last one."""
    last = max(event["seq"] for event in events if event["type"] == "assistant/message")
    return {event["seq"]: True for event in events if event["type"] == "assistant/chunk" and event["seq"] < last}


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


PAGE = """\
## You

go

## Context (client, Neovim)

Mind the gap.

## Reply

Right 🦊

and more


▸ read_file {"path": "a"}
▸ search_text {"pattern": "XXX…

## You, meanwhile

left, please

## Reply

than recorded

*Failed (provider.timeout): Too slow.*

*A prompt was blocked: not here*

*The history up to here was compacted for the model.*

*The turn ended: x-plugin.*""".replace("XXX", "x" * 132)
"""What a person reads of that log."""


def test_every_way_through_a_log_ends_with_the_same_page(nvim: Neovim) -> None:
    events = a_log_with_everything()
    whole = "local one = following(); local e = vim.json.decode(...); tell(one, e, 0, #e - 1, #e - 1); return seen(one)"
    lines, _, beside = nvim.lua(whole, json.dumps(events))
    assert "\n".join(lines) == PAGE
    assert [said for _, said in beside] == ["  ✓ 1 line", "  ✗ TOOL_FAILED"]
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
        json.dumps(a_log_with_everything()),
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
        json.dumps(a_log_with_everything()),
    )
    assert rows == [True, 3]
