-- Where the cursors of the windows go that show a page: one on the last line stays there, or goes to the question that
-- came; from there it goes on when the question is over. One that a person moved stays. Never takes focus.

local api = vim.api

local Scrolling = {}
Scrolling.__index = Scrolling

---@class refold.Scrolling
---@field private buffer integer
---@field private marks refold.Marks
---@field private asked refold.Note? the first question that is not in the buffer yet
---@field private left table<integer, integer> by window: the line on which its cursor waits until a question is over

---@param buffer integer
---@param marks refold.Marks
---@return refold.Scrolling
function Scrolling.new(buffer, marks)
  return setmetatable({ buffer = buffer, marks = marks, left = {} }, Scrolling)
end

---A question comes with the next text.
---@param question refold.Note
function Scrolling:ask(question)
  self.asked = self.asked or question
end

---Give the windows whose cursor moves, each with the question to which it goes; false for the last line. Asked before the
---text comes.
---@param grows boolean whether text comes
---@return table<integer, refold.Note|false>
function Scrolling:followers(grows)
  local asked = self.asked
  local last = api.nvim_buf_line_count(self.buffer)
  local followers = {}
  for _, window in ipairs(vim.fn.win_findbuf(self.buffer)) do
    local line = api.nvim_win_get_cursor(window)[1]
    local _, question = self.marks:question_at(line - 1)
    local stays = question and not (asked and question.row >= asked.row)
    if not stays and self.left[window] == line then
      followers[window] = self.marks:first_question() or false
    elseif not stays and grows and line == last then
      followers[window] = asked or false
    end
  end
  return followers
end

---Move them; the text is there.
---@param followers table<integer, refold.Note|false>
function Scrolling:move(followers)
  for window, goal in pairs(followers) do
    self:go(window, goal)
  end
  self.asked = nil
end

---Put a window's cursor on a question, all of which is shown if it fits; without one on the end of the text.
---@param window integer
---@param question refold.Note|false|nil
function Scrolling:go(window, question)
  self.left[window] = question and question.row + 1 or nil
  if not question then
    local last = api.nvim_buf_line_count(self.buffer)
    return api.nvim_win_set_cursor(window, { last, #api.nvim_buf_get_lines(self.buffer, last - 1, last, true)[1] })
  end
  api.nvim_win_set_cursor(window, { question.last + 1, 0 })
  if vim.fn.line("w0", window) > question.row + 1 then -- more than the window has room for: from its beginning
    api.nvim_win_call(window, function()
      vim.fn.winrestview({ topline = question.row + 1 })
    end)
  end
  api.nvim_win_set_cursor(window, { question.row + 1, 0 })
end

---Put a window's cursor on the open question that stands first, else on the end of the text.
---@param window integer
function Scrolling:bring(window)
  self:go(window, self.marks:first_question())
end

---A window's cursor is on a question that is over in a moment: it goes on then.
---@param window integer
function Scrolling:leave(window)
  self.left[window] = api.nvim_win_get_cursor(window)[1]
end

return Scrolling
