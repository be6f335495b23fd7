-- What was typed into a prompt and not sent: kept while Neovim runs, and beyond where it is written by `:w`.
-- A buffer with a draft counts as modified, so Neovim warns before it goes.

local api = vim.api

local M = {}

local kept = {} ---@type table<string, string[]> lines by session, of buffers that are gone

---@param id string
---@return string
local function file_of(id)
  return vim.fs.joinpath(vim.fn.stdpath("state") --[[@as string]], "refold", "drafts", id .. ".md")
end

---@param buffer integer
---@return string[]
local function lines_of(buffer)
  return api.nvim_buf_get_lines(buffer, 0, -1, true)
end

---@param lines string[]
---@return boolean
local function is_blank(lines)
  return not table.concat(lines):find("%S")
end

---Give the draft of a session and forget it: the one of a buffer that is gone, else the one that was written.
---@param id string
---@return string[]?
local function take(id)
  local lines = kept[id]
  kept[id] = nil
  if lines then
    return lines
  end
  local found, written = pcall(vim.fn.readfile, file_of(id))
  return found and not is_blank(written) and written or nil
end

---Keep the draft beyond the end of Neovim; an empty one leaves nothing.
---@param buffer integer
---@param id string
local function write(buffer, id)
  local file, lines = file_of(id), lines_of(buffer)
  if is_blank(lines) then
    vim.fn.delete(file)
  else
    vim.fn.mkdir(vim.fs.dirname(file), "p", "0700")
    if vim.fn.writefile(lines, file) ~= 0 then
      return vim.notify("refold: the draft could not be written to " .. file, vim.log.levels.ERROR)
    end
  end
  vim.bo[buffer].modified = false
end

---Have a buffer keep what is typed into it as the draft of a session, and begin with the one that there is.
---@param buffer integer
---@param id string
function M.attach(buffer, id)
  local name = "refold://prompt/" .. id
  local old = vim.fn.bufnr("^" .. vim.fn.escape(name, "\\.*[]~?") .. "$")
  if old > 0 and old ~= buffer then
    api.nvim_buf_delete(old, { force = true })
  end
  api.nvim_buf_set_name(buffer, name)
  vim.bo[buffer].buftype = "acwrite"
  vim.bo[buffer].bufhidden = "hide"
  local lines = take(id)
  if lines then
    api.nvim_buf_set_lines(buffer, 0, -1, true, lines)
  end
  vim.bo[buffer].modified = lines ~= nil
  api.nvim_create_autocmd("BufWriteCmd", {
    buffer = buffer,
    callback = function()
      write(buffer, id)
    end,
  })
  api.nvim_create_autocmd("BufUnload", {
    buffer = buffer,
    callback = function()
      local left = lines_of(buffer)
      kept[id] = not is_blank(left) and left or nil
    end,
  })
end

---What was in the buffer was sent: there is no draft any more.
---@param buffer integer
---@param id string
function M.sent(buffer, id)
  vim.bo[buffer].modified = false
  kept[id] = nil
  vim.fn.delete(file_of(id))
end

return M
