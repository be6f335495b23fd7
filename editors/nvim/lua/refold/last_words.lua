-- What a daemon that ended wrote to standard error last: the built-in client puts that into its log, among others'.
-- Must not know daemons. Where the log is turned off there are no last words.

local M = {}

local MAX_BYTES = 65536

---Give the place in the log behind which a daemon that is started now will write.
---@return integer
function M.place()
  local state = vim.uv.fs_stat(vim.lsp.log.get_filename())
  return state and state.size or 0
end

---Give the last line that was written to standard error behind a place; nil where there is none.
---@param place integer
---@return string?
function M.since(place)
  local file = io.open(vim.lsp.log.get_filename(), "rb")
  if not file then
    return nil
  end
  local size = file:seek("end")
  file:seek("set", math.max(place, size - MAX_BYTES))
  local text = file:read("*a")
  file:close()
  local said
  for entry in text:gmatch('"stderr"\t(.-)\n') do
    local whole = entry:sub(2, -2):gsub("\\n", "\n"):gsub("\\(.)", "%1")
    said = vim.trim(whole):match("[^\n]*$")
  end
  return said ~= "" and said or nil
end

return M
