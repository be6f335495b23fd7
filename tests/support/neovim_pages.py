"""Pages for tests of the Neovim plugin: Lua that tells a log to a page in any way, and a log with all that people see."""

from __future__ import annotations

from typing import Any

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
    if more.virt_text or more.virt_lines then
      table.insert(beside, { mark[2], (more.virt_text or more.virt_lines[1])[1][1] })
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


def log_with_everything() -> list[Json]:
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
    diff = "--- a/a\n+++ b/a\n@@ -1 +1,2 @@\n-one\n+two\n+three\n"
    log.add("approval/asked", id="p1", callId="c1", tool="read_file", subject={"kind": "diff", "text": diff})
    log.add("approval/asked", id="p2", callId="c2", tool="search_text", subject={"kind": "command", "text": "rm -r\n\nx"})
    log.add("approval/decided", id="p1", outcome="allowed", scope="session", by=PERSON)
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

? May read_file run? a (+2 −1)
--- a/a
+++ b/a
@@ -1 +1,2 @@
-one
+two
+three

? May search_text run? rm -r … (3 lines)
rm -r

x

## You, meanwhile

left, please

## Reply

than recorded

*Failed (provider.timeout): Too slow.*

*A prompt was blocked: not here*

*The older part of the history was compacted for the model.*

*The turn ended: x-plugin.*""".replace("XXX", "x" * 132)
"""What a person reads of that log."""
