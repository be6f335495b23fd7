-- Daemon's edits of buffers (`workspace/applyEdit`): each is one step of its own for undo, and none is made on
-- another text than the one it is for. The making itself is the built-in client's. A file that a tool changed on disk is loaded
-- again where it is shown.

local daemon = require("refold.daemon")
local sessions = require("refold.sessions")

local M = {}

---Say why an edit may not be made; nil where it may. The built-in client drops an edit of an old version in silence, and
---answers that it was applied.
---@param edit table a WorkspaceEdit
---@return string?
local function refusal(edit)
  for _, change in ipairs(edit.documentChanges or {}) do
    local document = change.textDocument
    local buffer = document and vim.uri_to_bufnr(document.uri)
    if buffer and document.version and vim.lsp.util.buf_versions[buffer] ~= document.version then
      return ("%s was changed meanwhile"):format(vim.fn.fnamemodify(vim.api.nvim_buf_get_name(buffer), ":~:."))
    end
    if buffer and not vim.bo[buffer].modifiable then
      return ("%s cannot be modified"):format(vim.fn.fnamemodify(vim.api.nvim_buf_get_name(buffer), ":~:."))
    end
  end
end

---Begin a new undo step in each buffer that is about to be edited.
---@param edit table a WorkspaceEdit
local function break_undo(edit)
  local uris = vim.tbl_keys(edit.changes or {})
  for _, change in ipairs(edit.documentChanges or {}) do
    table.insert(uris, change.textDocument and change.textDocument.uri)
  end
  for _, uri in ipairs(uris) do
    vim.api.nvim_buf_call(vim.uri_to_bufnr(uri), function()
      vim.bo.undolevels = vim.bo.undolevels -- see :help undo-break
    end)
  end
end

---Make an edit; gives the result of `workspace/applyEdit`.
---@param params table
---@param context table
---@return { applied: boolean, failureReason: string? }
function M.apply(params, context)
  local reason = refusal(params.edit)
  if reason then
    return { applied = false, failureReason = reason }
  end
  break_undo(params.edit)
  return vim.lsp.handlers["workspace/applyEdit"](nil, { edit = params.edit }, context)
end

---Look at the disk anew for a file that the daemon says it wrote.
---@param path string
local function written(path)
  local real = vim.uv.fs_realpath(path)
  for _, buffer in ipairs(vim.api.nvim_list_bufs()) do
    local name = vim.api.nvim_buf_get_name(buffer)
    if real and vim.api.nvim_buf_is_loaded(buffer) and name ~= "" and vim.uv.fs_realpath(name) == real then
      vim.cmd.checktime(buffer)
    end
  end
end

daemon.on("workspace/applyEdit", M.apply)

sessions.on_event(function(session, event)
  local meta = event.type == "tool/result" and event.data.meta
  local known, said = pcall(vim.json.decode, meta or "")
  if known and type(said) == "table" and type(said.path) == "string" and said.unsaved == false then
    written(vim.fs.joinpath(session.cwd, said.path))
  end
end)

return M
