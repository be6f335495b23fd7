-- What happens when a code action of the daemon was chosen: explain, fix or edit a selection.
-- The daemon makes the prompt and the edit; this asks for the instruction, adds what other servers report of the selection,
-- names the session, and tells what came of it.

local chat = require("refold.chat")
local daemon = require("refold.daemon")
local sessions = require("refold.sessions")
local settings = require("refold.settings")

local M = {}

local MAX_DIAGNOSTICS = 20

local function tell(text, level)
  vim.notify("refold: " .. text, level or vim.log.levels.INFO)
end

---Give what is reported of a range of lines, by any server or linter.
---@param buffer integer
---@param range lsp.Range
---@return string[]
function M.diagnostics(buffer, range)
  local said = {}
  for _, one in ipairs(vim.diagnostic.get(buffer)) do
    local last = one.end_lnum or one.lnum
    if one.lnum <= range["end"].line and last >= range.start.line and #said < MAX_DIAGNOSTICS then
      table.insert(said, ("line %d: %s"):format(one.lnum + 1, one.message))
    end
  end
  return said
end

---Say what came of a command that ended, and show a file that was edited on disk as it is now.
---@param buffer integer
---@param outcome table a CommandOutcome
local function told(buffer, outcome)
  if outcome.problem then
    return tell(outcome.problem, vim.log.levels.WARN)
  elseif outcome.edit then
    local path = vim.fn.fnamemodify(outcome.edit.path, ":~:.")
    if not outcome.edit.unsaved and vim.api.nvim_buf_is_loaded(buffer) then
      vim.cmd.checktime(buffer)
    end
    tell(("edited %s%s"):format(path, outcome.edit.unsaved and ", not saved" or ""))
  end
end

---Run a command in a session and wait for the turn's end.
---@param command lsp.Command
---@param argument table a SelectionParams
---@param buffer integer
local function run(command, argument, buffer)
  local function ask(session)
    sessions.current = session
    chat.show_beside(session)
    local given = vim.tbl_extend("force", argument, { session = session.id, wait = true })
    local params = { command = command.command, arguments = { given } }
    daemon.request("workspace/executeCommand", params, function(failure, result)
      if failure then
        return tell(failure.message, vim.log.levels.ERROR)
      end
      told(buffer, result.outcome)
    end)
  end
  local cwd = settings.folder(buffer)
  if sessions.current and sessions.current.holder then -- it can only be read
    return sessions.open({ cwd = cwd }, ask)
  end
  sessions.present(cwd, ask)
end

daemon.on_command("refold.explain", function(command, context)
  run(command, command.arguments[1], context.bufnr)
end)

daemon.on_command("refold.fix", function(command, context)
  local argument = command.arguments[1]
  local reported = M.diagnostics(context.bufnr, argument.range)
  run(command, vim.tbl_extend("force", argument, #reported > 0 and { diagnostics = reported } or {}), context.bufnr)
end)

daemon.on_command("refold.edit", function(command, context)
  vim.ui.input({ prompt = "What to do with the selection: " }, function(instruction)
    if instruction then
      local given = instruction ~= "" and { instruction = instruction } or {}
      run(command, vim.tbl_extend("force", command.arguments[1], given), context.bufnr)
    end
  end)
end)

return M
