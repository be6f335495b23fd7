-- What is beside the text of one chat buffer: highlights, and what came of tool calls and questions, as virtual text.
-- Knows places, not text: whoever moves or cuts text says so. What is asked for waits until `set`, when its text is there.

local invisible = require("refold.invisible")
local settings = require("refold.settings")

local api = vim.api

local Marks = {}
Marks.__index = Marks

local KEYS = { { "  gA allow · gS allow for the session · gD deny", "RefoldQuestion" } }
local NAMESPACE = api.nvim_create_namespace("refold")

---@class refold.Note
---@field row integer the line of the call, the first line of the question
---@field last integer? the last line of the question; nil for a call
---@field call integer? seq of the `tool/call`; nil for a question
---@field result integer? seq of the `tool/result`
---@field text string? what came of it
---@field ok boolean?
---@field mark integer? the extmark that says so

---@class refold.Marks
---@field buffer integer
---@field notes table<string, refold.Note> by the id of the call or of the question
---@field private waiting fun()[]
---@field private stretch table? the last highlight, which text behind it of the same kind makes longer

---@param buffer integer
---@return refold.Marks
function Marks.new(buffer)
  local marks = setmetatable({ buffer = buffer }, Marks)
  marks:clear()
  return marks
end

---Remove everything.
function Marks:clear()
  self.notes, self.waiting, self.stretch = {}, {}, nil
  api.nvim_buf_clear_namespace(self.buffer, NAMESPACE, 0, -1)
end

---Highlight the text between two places.
---@param group string
---@param from { row: integer, col: integer }
---@param to { row: integer, col: integer }
function Marks:highlight(group, from, to)
  local stretch = self.stretch
  if not (stretch and stretch.group == group and stretch.to.row == from.row and stretch.to.col == from.col) then
    stretch = { group = group, from = from }
    self.stretch = stretch
  end
  stretch.to = to
  if stretch.waits then
    return
  end
  stretch.waits = true
  table.insert(self.waiting, function()
    stretch.waits = false
    local options = { id = stretch.mark, end_row = stretch.to.row, end_col = stretch.to.col, hl_group = group }
    stretch.mark = api.nvim_buf_set_extmark(self.buffer, NAMESPACE, stretch.from.row, stretch.from.col, options)
  end)
end

---A line is that of a tool call.
---@param id string
---@param row integer
---@param seq integer
function Marks:call(id, row, seq)
  self.notes[id] = { row = row, call = seq }
  self:say(id, {})
end

---These lines are those of a question.
---@param id string
---@param row integer
---@param last integer
function Marks:ask(id, row, last)
  self.notes[id] = { row = row, last = last }
  self:say(id, {})
  table.insert(self.waiting, function()
    self:_reveal(row, last)
  end)
end

---Show the characters that have no shape.
---@param row integer
---@param last integer
function Marks:_reveal(row, last)
  for at, line in ipairs(api.nvim_buf_get_lines(self.buffer, row, last + 1, true)) do
    for _, one in ipairs(invisible.find(line)) do
      local options = { virt_text = { { one[2], "NonText" } }, virt_text_pos = "inline" }
      api.nvim_buf_set_extmark(self.buffer, NAMESPACE, row + at - 1, one[1], options)
    end
  end
end

---Give the open question whose lines a row is one of.
---@param row integer
---@return string? id
---@return refold.Note?
function Marks:question_at(row)
  for id, note in pairs(self.notes) do
    if note.last and not note.text and note.row <= row and row <= note.last then
      return id, note
    end
  end
end

---Give the open question that stands first.
---@return refold.Note?
function Marks:first_question()
  local first
  for _, note in pairs(self.notes) do
    if note.last and not note.text and (not first or note.row < first.row) then
      first = note
    end
  end
  return first
end

---Say beside the line of a call or a question what came of it; nothing yet where `said` has no text.
---@param id string
---@param said { text: string?, ok: boolean?, result: integer? }
---@return { text: string?, ok: boolean?, result: integer? }? before what was said until now; nil for what has no line
function Marks:say(id, said)
  local note = self.notes[id]
  if not note then
    return nil
  end
  local before = { text = note.text, ok = note.ok, result = note.result }
  note.text, note.ok, note.result = said.text, said.ok, said.result
  table.insert(self.waiting, function()
    local icons = settings.get().icons
    local virtual = { "  …", "RefoldRunning" }
    if note.text then
      local sign = note.ok and icons.done or icons.failed
      virtual = { ("  %s %s"):format(sign, note.text), note.ok and "RefoldDone" or "RefoldFailed" }
    end
    local options = { id = note.mark, virt_text = { virtual }, virt_text_pos = "eol" }
    if note.last and not note.text then
      options = { id = note.mark, virt_lines = { KEYS } }
    end
    note.mark = api.nvim_buf_set_extmark(self.buffer, NAMESPACE, note.row, 0, options)
  end)
  return before
end

---Show what was asked for; its text is in the buffer.
function Marks:set()
  local waiting = self.waiting
  self.waiting = {}
  for _, fn in ipairs(waiting) do
    fn()
  end
end

---Forget what begins behind a place, whose text is about to go. Nothing may wait. Gives the highlights, for `restore`.
---@param place { row: integer, col: integer }
---@return table[]
function Marks:cut(place)
  local cut = {}
  local marks = api.nvim_buf_get_extmarks(self.buffer, NAMESPACE, { place.row, place.col }, -1, { details = true })
  for _, mark in ipairs(marks) do
    local id, row, col, more = unpack(mark)
    if more.hl_group then
      table.insert(cut, { more.hl_group, { row = row, col = col }, { row = more.end_row, col = more.end_col } })
    end
    api.nvim_buf_del_extmark(self.buffer, NAMESPACE, id)
  end
  for id, note in pairs(self.notes) do
    if note.row > place.row or (note.row == place.row and place.col == 0) then
      self.notes[id] = nil
    end
  end
  self.stretch = nil
  return cut
end

---Highlight again what was cut; its text comes back.
---@param cut table[]
function Marks:restore(cut)
  for _, highlight in ipairs(cut) do
    self:highlight(unpack(highlight))
  end
end

---Give the call whose line a row is, if it is one.
---@param row integer
---@return refold.Note?
function Marks:call_at(row)
  for _, note in pairs(self.notes) do
    if note.call and note.row == row then
      return note
    end
  end
end

return Marks
