-- Text of one chat buffer: it grows at its end, and can be taken back to any event that is not durable yet.
-- Text is only ever added or cut there, by nvim_buf_set_text; no line that stands is written again, so nothing flickers.
-- Must not know events, daemons or windows, except that it says when their cursors may have to move.
--
-- Operations are those of transcript.lua. They wait in memory until `flush`, which makes one change of them.

local Marks = require("refold.marks")
local Scrolling = require("refold.scrolling")

local api = vim.api

local Page = {}
Page.__index = Page

---@class refold.Place
---@field row integer from 0
---@field col integer in bytes
---@field breaks integer line breaks before it, at most 2; 2 at the beginning

---@class refold.Page
---@field buffer integer
---@field marks refold.Marks
---@field scrolling refold.Scrolling
---@field private stand refold.Place where the text ends, waiting text included
---@field private shown refold.Place where the text in the buffer ends
---@field private reply refold.Place? where the reply that streams began
---@field private waiting string[] text that is not in the buffer yet
---@field private journal table[] for each event that is not durable: how to take it back
---@field private floor integer the page can go back to any event from here on, to none before

---@param buffer integer
---@return refold.Page
function Page.new(buffer)
  local marks = Marks.new(buffer)
  local page = setmetatable({ buffer = buffer, marks = marks, scrolling = Scrolling.new(buffer, marks) }, Page)
  page:clear()
  return page
end

---Begin anew, without text.
function Page:clear()
  self.stand = { row = 0, col = 0, breaks = 2 }
  self.shown, self.reply = self.stand, nil
  self.waiting, self.journal, self.floor = {}, {}, -1
  self.marks:clear()
  local last = api.nvim_buf_line_count(self.buffer) - 1
  self:_change(self.stand, { row = last, col = #api.nvim_buf_get_lines(self.buffer, last, last + 1, true)[1] }, "")
end

---Whether the buffer ends where this left it: a person can change any buffer if they insist.
---@return boolean
function Page:is_intact()
  local last = api.nvim_buf_line_count(self.buffer) - 1
  return last == self.shown.row and #api.nvim_buf_get_lines(self.buffer, last, last + 1, true)[1] == self.shown.col
end

---Take operations; nothing is shown before `flush`, but a reply that must be cut.
---@param operations table[]
function Page:apply(operations)
  for _, operation in ipairs(operations) do
    self["_" .. operation[1]](self, unpack(operation, 2, 5))
  end
end

---Remember how to go back before the event `seq`, whose operations come next. `state` comes back from `revert`.
---@param seq integer
---@param state any
function Page:remember(seq, state)
  table.insert(self.journal, { seq = seq, state = state, stand = self.stand, reply = self.reply, notes = {} })
end

---Forget how to go back before events up to `seq`: they are durable.
---@param seq integer
function Page:forget(seq)
  self.floor = math.max(self.floor, seq)
  local middle = self.journal[math.ceil(#self.journal / 2)]
  if middle and middle.seq <= seq then -- half of it, so that each entry is looked at a few times only
    self.journal = vim.tbl_filter(function(entry)
      return entry.seq > seq
    end, self.journal)
  end
end

---Take back every event behind `seq`. Gives whether that can be done, and the state that was remembered before the first
---of them; nil where there was none.
---@param seq integer
---@return boolean, any
function Page:revert(seq)
  if seq < self.floor or not self:is_intact() then
    return false
  end
  local state
  self:flush()
  while #self.journal > 0 and self.journal[#self.journal].seq > seq do
    local entry = table.remove(self.journal)
    state = entry.state
    self:_cut(entry.removed and entry.removed.from or entry.stand)
    if entry.removed then
      self:_write(entry.removed.text)
      self.marks:restore(entry.removed.highlights)
    end
    for id, before in pairs(entry.notes) do
      self.marks:say(id, before)
    end
    self:flush()
    self.stand, self.shown, self.reply = entry.stand, entry.stand, entry.reply
  end
  return true, state
end

---Put what waits into the buffer, by one change.
function Page:flush()
  local text = table.concat(self.waiting)
  self.waiting = {}
  if not self:is_intact() then
    return -- whoever follows the log sees it as well, and begins anew
  end
  local followers = self.scrolling:followers(text ~= "")
  if text ~= "" then
    self:_change(self.shown, self.shown, text)
    self.shown = self.stand
  end
  self.marks:set()
  self.scrolling:move(followers)
end

---@param text string
---@param group string?
function Page:_write(text, group)
  if text == "" then
    return
  end
  local before = self.stand
  local _, breaks = text:gsub("\n", "")
  local ending = #text:match("\n*$")
  self.stand = {
    row = before.row + breaks,
    col = breaks > 0 and #text:match("[^\n]*$") or before.col + #text,
    breaks = math.min(2, ending == #text and before.breaks + ending or ending),
  }
  table.insert(self.waiting, text)
  if group then
    self.marks:highlight(group, before, self.stand)
  end
end

function Page:_gap(breaks)
  self:_write(("\n"):rep(breaks - self.stand.breaks))
end

function Page:_begin()
  self.reply = self.stand
end

---A question: its first line, and below it all that the call would do.
function Page:_ask(id, title, lines)
  local first = self.stand.row
  self:_write(title, "RefoldQuestion")
  for _, line in ipairs(lines) do
    self:_write("\n" .. line[1], line[2])
  end
  self.marks:ask(id, first, self.stand.row)
  self.scrolling:ask(self.marks.notes[id])
end

---@param parts table[]
function Page:_settle(parts)
  local streamed = self:_streamed()
  local texts = vim.tbl_map(function(part)
    return part[1]
  end, parts)
  local done = #streamed
  if not vim.startswith(table.concat(texts), streamed) then
    self:_remove(streamed)
    done = 0
  end
  self.reply = nil
  for _, part in ipairs(parts) do
    self:_write(part[1]:sub(done + 1), part[2])
    done = math.max(0, done - #part[1])
  end
end

function Page:_drop()
  self:_remove(self:_streamed())
  self.reply = nil
end

function Page:_call(id, text, seq)
  self:_write(text, "RefoldCall")
  self.marks:call(id, self.stand.row, seq)
end

function Page:_note(id, text, ok, seq)
  local before = self.marks:say(id, { text = text, ok = ok, result = seq })
  local entry = self.journal[#self.journal]
  if before and entry then
    entry.notes[id] = before
  end
end

---Give what was shown of the reply that streams, "" where none does.
---@return string
function Page:_streamed()
  local from, to = self.reply, self.stand
  if not from or (from.row == to.row and from.col == to.col) then
    return ""
  end
  self:flush()
  return table.concat(api.nvim_buf_get_text(self.buffer, from.row, from.col, to.row, to.col, {}), "\n")
end

---Cut what was shown of the reply; the journal keeps it, as it may have to come back.
---@param streamed string
function Page:_remove(streamed)
  local entry = self.journal[#self.journal]
  if streamed ~= "" then
    local from = self.reply
    local highlights = self:_cut(from)
    if entry then
      entry.removed = { text = streamed, from = from, highlights = highlights }
    end
  end
end

---Cut the text behind a place. Nothing may wait. Gives the highlights that went.
---@param place refold.Place
---@return table[]
function Page:_cut(place)
  if place.row == self.stand.row and place.col == self.stand.col then
    return {}
  end
  local highlights = self.marks:cut(place)
  self:_change(place, self.stand, "")
  self.stand, self.shown = place, place
  return highlights
end

---@param from refold.Place
---@param to { row: integer, col: integer }
---@param text string
function Page:_change(from, to, text)
  local lines = vim.split(text, "\n", { plain = true })
  vim.bo[self.buffer].modifiable = true
  api.nvim_buf_set_text(self.buffer, from.row, from.col, to.row, to.col, lines)
  vim.bo[self.buffer].modifiable = false
end

return Page
