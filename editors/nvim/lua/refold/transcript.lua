-- What a person reads of a session: from events to pieces of text, one event at a time.
-- Pure: a state, an empty state, a step; states are never changed, so an older one can be gone back to.
-- Must not know buffers. Knows the vocabulary of the log as far as people see it; other types say nothing.
--
-- A step gives operations for the page, in order:
--   { "gap", n }               end the text so far with at least n line breaks
--   { "write", text, group? }  put text behind it, highlighted as `group`
--   { "begin" }                a reply begins here, if none did
--   { "settle", parts }        the reply is exactly these parts { text, group? }, whatever streamed; it is over
--   { "drop" }                 nothing of the reply that streamed stays; it is over
--   { "call", id, text, seq }  a line of its own for a tool call
--   { "ask", id, title, lines }  a question, and lines { text, group? } of all that the call would do
--   { "note", id, text, ok, seq }  what came of that call or question, beside its line

local sentences = require("refold.sentences")
local subject = require("refold.subject")

local M = {}

---@class refold.Reading
---@field section string? under whose heading the text stands: `you`, `reply` or `context`
---@field streamed boolean whether something of the present reply was shown while it streamed
---@field kind string? what streamed last: `text` or `reasoning`
---@field index integer? the block that streamed last
---@field tool boolean whether the last line is that of a tool call
---@field turn integer? the turn that runs
---@field ended integer the last turn that ended, 0 for none
---@field waiting integer inputs that were accepted and did not become messages yet
---@field title string?
---@field reasoning boolean whether thinking is shown
---@field sign string what stands before a tool call

local REASONING = "RefoldReasoning"
local HEADINGS = { you = "## You", steering = "## You, meanwhile", reply = "## Reply" }
local MAX_CALL = 160

---Give the state of a session without events.
---@param options { reasoning: boolean, sign: string }
---@return refold.Reading
function M.empty(options)
  return { streamed = false, tool = false, ended = 0, waiting = 0, reasoning = options.reasoning, sign = options.sign }
end

---@param state refold.Reading
---@param changes table
---@return refold.Reading
local function with(state, changes)
  local new = {}
  for name, value in pairs(state) do
    new[name] = value
  end
  for name, value in pairs(changes) do
    new[name] = value ~= vim.NIL and value or nil
  end
  return new
end

---Join the text blocks of a message's content.
---@param content table[]
---@return string
local function text_of(content)
  local parts = {}
  for _, block in ipairs(content) do
    if block.type == "text" then
      parts[#parts + 1] = block.text
    end
  end
  return table.concat(parts, "\n")
end

---Open a section unless it is open; a heading stands on a line of its own between empty lines.
local function under(state, section, ops, heading)
  if state.section == section and not heading then
    return state
  end
  vim.list_extend(ops, { { "gap", 2 }, { "write", heading or HEADINGS[section], "RefoldHeading" }, { "gap", 2 } })
  return with(state, { section = section, tool = false })
end

---Write something of refold's own on a line of its own.
local function remark(state, text, ops)
  vim.list_extend(ops, { { "gap", 2 }, { "write", ("*%s*"):format(text:gsub("%s+", " ")), "RefoldRemark" } })
  return with(state, { section = vim.NIL, tool = false })
end

local function said_by_person(state, event, heading)
  local ops = {}
  state = under(state, "you", ops, heading)
  ops[#ops + 1] = { "write", text_of(event.data.content) }
  return with(state, { section = vim.NIL, waiting = math.max(0, state.waiting - (event.data.input and 1 or 0)) }), ops
end

local function context(state, event)
  local source = event.data.source
  local name = source.name and ("%s, %s"):format(source.kind, source.name) or source.kind
  return said_by_person(state, event, ("## Context (%s)"):format(name))
end

local function chunk(state, event)
  local piece = event.data.chunk
  local kind = ({ ["text-delta"] = "text", ["reasoning-delta"] = "reasoning" })[piece.type]
  if not kind or piece.text == "" or (kind == "reasoning" and not state.reasoning) then
    return state, {}
  end
  local write = { "write", piece.text, kind == "reasoning" and REASONING or nil }
  if state.streamed and state.index == piece.index and state.kind == kind then
    return state, { write }
  end
  local ops = {}
  state = under(state, "reply", ops)
  ops[#ops + 1] = { "gap", 2 }
  ops[#ops + 1] = state.streamed and write or { "begin" }
  if not state.streamed then
    ops[#ops + 1] = write
  end
  return with(state, { streamed = true, index = piece.index, kind = kind, tool = false }), ops
end

---Give the parts of a reply as they stand on the page: blocks with an empty line between them.
local function parts_of(content, reasoning)
  local parts = {}
  local behind = ""
  for _, block in ipairs(content) do
    local shown = block.type == "text" or (block.type == "reasoning" and reasoning)
    if shown and block.text ~= "" then
      local breaks = #behind:sub(-2):match("\n*$")
      parts[#parts + 1] = { (behind == "" and "" or ("\n"):rep(2 - breaks)) }
      parts[#parts + 1] = { block.text, block.type == "reasoning" and REASONING or nil }
      behind = behind .. block.text
    end
  end
  return parts
end

local function reply(state, event)
  local ops = {}
  local parts = parts_of(event.data.content, state.reasoning)
  if not state.streamed and #parts > 0 then
    state = under(state, "reply", ops)
    vim.list_extend(ops, { { "gap", 2 }, { "begin" } })
    state = with(state, { tool = false })
  end
  ops[#ops + 1] = { "settle", parts }
  return with(state, { streamed = false, index = vim.NIL, kind = vim.NIL }), ops
end

local function call(state, event)
  local ops = {}
  state = under(state, "reply", ops)
  ops[#ops + 1] = { "gap", state.tool and 1 or 2 }
  local line = ("%s %s %s"):format(state.sign, event.data.name, event.data.arguments):gsub("%s+", " ")
  if #line > MAX_CALL then
    line = vim.fn.strcharpart(line, 0, MAX_CALL - 1) .. "…"
  end
  ops[#ops + 1] = { "call", event.data.callId, line, event.seq }
  return with(state, { tool = true }), ops
end

local function result(state, event)
  local data = event.data
  local said = data.error and data.error.code or "failed"
  if not data.isError then
    local lines = #vim.split(text_of(data.content), "\n", { plain = true })
    said = lines == 1 and "1 line" or ("%d lines"):format(lines)
  end
  return state, { { "note", data.callId, said, not data.isError, event.seq } }
end

local function asked(state, event)
  local data, ops = event.data, {}
  state = under(state, "reply", ops)
  vim.list_extend(ops, { { "gap", 2 }, { "ask", data.id, subject.title(data), subject.parts(data.subject) } })
  return with(state, { tool = false }), ops
end

local function decided(state, event)
  return state, { { "note", event.data.id, sentences.decision(event.data), event.data.outcome == "allowed" } }
end

---What streamed and became no message was nothing that stays.
local function over(state)
  local ops = state.streamed and { { "drop" } } or {}
  return with(state, { streamed = false, index = vim.NIL, kind = vim.NIL }), ops
end

local function turn_end(state, event)
  local said = sentences.ending(event.data.reason)
  local ops = {}
  state = said and remark(state, said, ops) or state
  return with(state, { turn = vim.NIL, ended = event.data.turn, section = vim.NIL, tool = false }), ops
end

local function settled(state, event)
  local ops = {}
  if event.data.how == "blocked" then
    state = remark(state, "A prompt was blocked: " .. (event.data.reason or "no reason was given"), ops)
  end
  return with(state, { waiting = math.max(0, state.waiting - 1) }), ops
end

---@type table<string, fun(state: refold.Reading, event: table): refold.Reading, table[]>
local STEPS = {
  ["input/accepted"] = function(state)
    return with(state, { waiting = state.waiting + 1 }), {}
  end,
  ["input/settled"] = settled,
  ["turn/start"] = function(state, event)
    return with(state, { turn = event.data.turn }), {}
  end,
  ["turn/end"] = turn_end,
  ["user/message"] = said_by_person,
  ["steering/message"] = function(state, event)
    return said_by_person(state, event, HEADINGS.steering)
  end,
  ["context/message"] = context,
  ["assistant/chunk"] = chunk,
  ["assistant/message"] = reply,
  ["llm/retry"] = over,
  ["step/end"] = over,
  ["tool/call"] = call,
  ["tool/result"] = result,
  ["approval/asked"] = asked,
  ["approval/decided"] = decided,
  ["compact/end"] = function(state, event)
    local ops = {}
    return event.data.error and state or remark(state, "The older part of the history was compacted for the model.", ops), ops
  end,
  ["session/title"] = function(state, event)
    return with(state, { title = event.data.title }), {}
  end,
}

---Fold one event. One that replaces earlier ones is for the model; people keep reading the originals.
---@param state refold.Reading
---@param event table
---@return refold.Reading state
---@return table[] operations
function M.step(state, event)
  local step = STEPS[event.type]
  if not step or type(event.surfaceOp) == "table" then
    return state, {}
  end
  return step(state, event)
end

return M
