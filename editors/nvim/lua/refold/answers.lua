-- The answers to questions: they count only for the question that the cursor is on, in the chat. Allowing what was not
-- on the screen takes a command of its own.

local approvals = require("refold.approvals")
local chat = require("refold.chat")
local seen = require("refold.seen")
local sessions = require("refold.sessions")

local api = vim.api

local M = {}

local function tell(text, level)
  vim.notify("refold: " .. text, level or vim.log.levels.WARN)
end

---Go to the question that waits longest: of the session that the present window shows, else of any.
function M.go()
  local here = sessions.of_buffer(api.nvim_get_current_buf())
  local question = vim.iter(approvals.waiting):find(function(one)
    return here and one.params.session == here.id
  end) or approvals.waiting[1]
  if not question then
    return tell("no question waits", vim.log.levels.INFO)
  end
  sessions.open({ session = question.params.session }, chat.read)
end

---Give the open question that the cursor is on, and the session that asks it.
---@return refold.Session?, string?, refold.Note?
local function under_cursor()
  local session = sessions.of_buffer(api.nvim_get_current_buf())
  if session then
    local id, note = session.following.page.marks:question_at(api.nvim_win_get_cursor(0)[1] - 1)
    return session, id, note
  end
end

---Answer the question that the cursor is on; where it is on none, go to one and answer nothing.
---@param kind "allowOnce"|"allowSession"|"deny"
---@param anyway boolean? allow what was not on the screen, too
function M.answer(kind, anyway)
  local session, id, note = under_cursor()
  if not session or not id or not note then
    return M.go()
  end
  local question = approvals.find(id)
  if not question then
    return tell("this question is not asked here")
  end
  local doubt = kind ~= "deny" and not anyway and seen.doubt(question, note, session.buffer)
  if doubt then
    return tell(doubt .. (kind == "allowOnce" and ", or :RefoldAllow!" or ", or :RefoldAllowSession!"))
  end
  local option = vim.iter(question.params.options):find(function(one)
    return one.kind == kind
  end)
  if not option then
    return tell("this question does not offer that answer")
  end
  session.following.page.scrolling:leave(api.nvim_get_current_win())
  approvals.settle(question, option.id)
end

return M
