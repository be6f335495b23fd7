-- What is said of sessions in few words: for status lines, window bars and pickers.
-- The words are the protocol's own, as `sessions/changed` tells them. Never asks the daemon for anything.

local approvals = require("refold.approvals")
local daemon = require("refold.daemon")
local sessions = require("refold.sessions")

local M = {}

local words = {} ---@type table<string, string> by session

daemon.on("sessions/changed", function(notice)
  words[notice.session] = notice.status
  vim.api.nvim_exec_autocmds("User", { pattern = "RefoldStatus", modeline = false, data = notice })
  vim.cmd.redrawstatus({ bang = true })
end)

daemon.on_lost(function()
  words = {}
  vim.cmd.redrawstatus({ bang = true })
end)

---Give a session's status: a word of the protocol, or `lost` while there is no daemon for it.
---@param session refold.Session
---@return string
function M.word(session)
  if session.state ~= "live" then
    return session.state == "closed" and "closed" or "lost"
  end
  return words[session.id] or (session.following.reading.turn and "running" or "idle")
end

---@param count integer
---@return string
local function questions(count)
  return count == 1 and "1 question" or ("%d questions"):format(count)
end

---Say what a session is and does, in one line.
---@param session refold.Session
---@return string
function M.describe(session)
  local reading, cursor = session.following.reading, session.following.cursor
  local parts = { reading.title or "refold", M.word(session) }
  if cursor and cursor.phase and reading.turn then
    table.insert(parts, "waits for the " .. cursor.phase)
  end
  if reading.waiting > 0 then
    table.insert(parts, ("%d waiting"):format(reading.waiting))
  end
  if approvals.count(session.id) > 0 then
    table.insert(parts, questions(approvals.count(session.id)))
  end
  if session.holder then
    table.insert(parts, "read only")
  end
  return table.concat(parts, " · ")
end

---For a status line: nothing without a daemon, else the present session's status, how many other ones work, and how many
---questions wait in all.
---@return string
function M.line()
  if not daemon.client() then
    return ""
  end
  local session = sessions.current
  local others = 0
  for id, word in pairs(words) do
    if word ~= "idle" and not (session and session.id == id) then
      others = others + 1
    end
  end
  local text = "refold: " .. (session and M.word(session) or "ready")
  text = others > 0 and ("%s (+%d)"):format(text, others) or text
  return #approvals.waiting > 0 and ("%s · %s"):format(text, questions(#approvals.waiting)) or text
end

return M
