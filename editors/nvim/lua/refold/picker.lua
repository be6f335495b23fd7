-- Choice of a session from the store's list, by vim.ui.select. Pages of the list are asked for as they are wanted.

local chat = require("refold.chat")
local daemon = require("refold.daemon")
local sessions = require("refold.sessions")

local M = {}

M.page = 100 -- so many sessions are offered at once

local UNITS = { { 86400, "d" }, { 3600, "h" }, { 60, "min" } }

---Say how long ago something was.
---@param time integer Unix epoch ms
---@param now integer Unix epoch s
---@return string
function M.ago(time, now)
  local seconds = math.max(0, now - math.floor(time / 1000))
  for _, unit in ipairs(UNITS) do
    if seconds >= unit[1] then
      return ("%d %s ago"):format(seconds / unit[1], unit[2])
    end
  end
  return "just now"
end

---Give the line of a session in the list.
---@param row table a row of `session/list`
---@return string
function M.line(row)
  local turns = row.turns == 1 and "1 turn" or ("%d turns"):format(row.turns)
  local parts = { row.title or row.session, turns, M.ago(row.lastActivity, os.time()) }
  if row.model then
    table.insert(parts, row.model)
  end
  if row.status ~= "idle" then
    table.insert(parts, row.status)
  end
  return table.concat(parts, " · ")
end

---@param params table of `session/list`
local function pick(params)
  daemon.request("session/list", params, function(failure, result)
    if failure then
      return vim.notify("refold: " .. failure.message, vim.log.levels.ERROR)
    end
    local rows = result.sessions
    if #rows == 0 then
      return vim.notify("refold: there are no sessions here; :RefoldNew begins one", vim.log.levels.INFO)
    end
    if result.next then
      table.insert(rows, { next = result.next })
    end
    local format = function(row)
      return row.next and "older ones …" or M.line(row)
    end
    vim.ui.select(rows, { prompt = "Sessions", kind = "refold", format_item = format }, function(row)
      if not row then
        return
      elseif row.next then
        return pick(vim.tbl_extend("force", params, { cursor = row.next }))
      end
      sessions.open({ session = row.session }, chat.show)
    end)
  end)
end

---Let a person choose among the sessions of a folder, or of all folders, the most recent first; the choice is shown.
---@param cwd string? only those of this folder
function M.pick(cwd)
  pick({ limit = M.page, cwd = cwd })
end

return M
