-- What of each question was on the screen. A line counts as far as it was drawn, from its beginning without a gap, in a
-- window of the tab page that is shown. What scrolled by between two redraws was not on the screen.

local approvals = require("refold.approvals")
local sessions = require("refold.sessions")
local subject = require("refold.subject")

local api = vim.api

local M = {}

M.pause = 500 -- ms: an answer that is typed sooner after a question appeared was not meant for it

local function now()
  return math.floor(vim.uv.hrtime() / 1e6)
end

---Give how far a line is on the screen: the last byte that is, where the byte `from` is; else nil.
---@param window integer
---@param line integer from 1
---@param from integer from 1
---@param length integer in bytes
---@return integer?
local function drawn_to(window, line, from, length)
  local function is_drawn(column)
    return vim.fn.screenpos(window, line, column).row > 0
  end
  if not is_drawn(from) then
    return nil
  end
  local first, last = from, math.max(from, length)
  if is_drawn(last) then
    return last
  end
  while first < last do
    local middle = math.ceil((first + last) / 2)
    if is_drawn(middle) then
      first = middle
    else
      last = middle - 1
    end
  end
  return first
end

---@param window integer
---@param line integer from 1
---@return boolean
local function is_folded(window, line)
  return vim.wo[window].foldenable
    and api.nvim_win_call(window, function()
      return vim.fn.foldclosed(line) ~= -1
    end)
end

---Note what of a question one window shows.
---@param question refold.Question
---@param note refold.Note
---@param window integer
local function look(question, note, window)
  local buffer = api.nvim_win_get_buf(window)
  local first, last = vim.fn.line("w0", window), vim.fn.line("w$", window)
  for line = math.max(first, note.row + 1), math.min(last, note.last + 1) do
    local at = line - note.row
    local length = #api.nvim_buf_get_lines(buffer, line - 1, line, true)[1]
    local before = question.seen[at]
    if not (before and before >= length) and not is_folded(window, line) then
      question.seen[at] = drawn_to(window, line, (before or 0) + 1, length) or before
      question.drawn = question.drawn or now()
    end
  end
end

---Note what is on the screen now, which was just drawn.
function M.look()
  for _, question in ipairs(approvals.waiting) do
    local session = sessions.all[question.params.session]
    local note = session and session.following.page.marks.notes[question.params.approval]
    for _, window in ipairs(note and api.nvim_tabpage_list_wins(0) or {}) do
      if api.nvim_win_get_buf(window) == session.buffer then
        look(question, note, window)
      end
    end
  end
end

---Count the lines of a question of which a part was never on the screen, and all of them.
---@param question refold.Question
---@param note refold.Note
---@param buffer integer
---@return integer unseen
---@return integer lines
function M.unseen(question, note, buffer)
  local unseen = 0
  local lines = api.nvim_buf_get_lines(buffer, note.row, note.last + 1, true)
  for at, line in ipairs(lines) do
    unseen = unseen + ((question.seen[at] or -1) < #line and 1 or 0)
  end
  return unseen, #lines
end

---Say why a person cannot know yet what they would allow; nil where they can.
---@param question refold.Question
---@param note refold.Note
---@param buffer integer
---@return string?
function M.doubt(question, note, buffer)
  local unseen, lines = M.unseen(question, note, buffer)
  if unseen > 0 then
    return ("%d of %d lines were not shown yet: scroll"):format(unseen, lines)
  elseif subject.is_cut(question.params.subject) then
    return "too long to be shown whole"
  elseif now() - question.drawn < M.pause then
    return "it appeared only now"
  end
end

api.nvim_set_decoration_provider(api.nvim_create_namespace("refold.seen"), {
  on_end = function()
    if #approvals.waiting > 0 then
      M.look()
    end
  end,
})

return M
