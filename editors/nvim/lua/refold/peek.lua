-- Look at one tool call: its arguments and its result, in a floating window. They are read from the log each time.

local daemon = require("refold.daemon")

local M = {}

---Read one event.
---@param session refold.Session
---@param seq integer
---@param fn fun(event: table)
local function read(session, seq, fn)
  local page = { after = seq - 1, limit = 1 }
  daemon.request("session/read", { session = session.id, view = "events", page = page }, function(failure, result)
    if failure then
      return vim.notify("refold: " .. failure.message, vim.log.levels.ERROR)
    end
    if result.events[1] then
      fn(result.events[1])
    end
  end)
end

---@param lines string[]
local function float(lines)
  vim.lsp.util.open_floating_preview(
    lines,
    "",
    { focus_id = "refold", border = "rounded", max_width = 100, max_height = 30 }
  )
end

---@param call table a `tool/call`
---@param result table? its `tool/result`
---@return string[]
function M.lines(call, result)
  local lines = { call.data.name }
  vim.list_extend(lines, vim.split(call.data.arguments, "\n", { plain = true }))
  table.insert(lines, "")
  if not result then
    table.insert(lines, "It has no result yet.")
    return lines
  end
  for _, block in ipairs(result.data.content) do
    local text = block.text or ("(%s)"):format(block.type)
    vim.list_extend(lines, vim.split(text, "\n", { plain = true }))
  end
  return lines
end

---Show the call whose line a row of the session's page is; nothing happens on other lines.
---@param session refold.Session
---@param row integer from 0
function M.show(session, row)
  local note = session.following.page.marks:call_at(row)
  if not note then
    return
  end
  read(session, note.call, function(call)
    if not note.result then
      return float(M.lines(call))
    end
    read(session, note.result, function(result)
      float(M.lines(call, result))
    end)
  end)
end

return M
