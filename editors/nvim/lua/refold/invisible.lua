-- Characters of a text that have no shape of their own: joiners, fillers, tags, selectors, soft hyphens. Pure.
-- Neovim itself shows control characters and most of those without width.

local M = {}

local RANGES = {
  { 0xAD, 0xAD },
  { 0x34F, 0x34F },
  { 0x61C, 0x61C },
  { 0x115F, 0x1160 },
  { 0x17B4, 0x17B5 },
  { 0x180B, 0x180F },
  { 0x200B, 0x200F },
  { 0x2028, 0x202E },
  { 0x2060, 0x206F },
  { 0x2800, 0x2800 },
  { 0x3164, 0x3164 },
  { 0xFE00, 0xFE0F },
  { 0xFEFF, 0xFEFF },
  { 0xFFA0, 0xFFA0 },
  { 0x1BCA0, 0x1BCA3 },
  { 0x1D173, 0x1D17A },
  { 0xE0000, 0xE0FFF },
}

---@param code integer
---@return boolean
local function is_invisible(code)
  return vim.iter(RANGES):any(function(range)
    return range[1] <= code and code <= range[2]
  end)
end

---Give the characters of a line that Neovim does not make visible: the byte from 0 where each is to be told, which is the end
---of what it combines with on the screen, and its number.
---@param line string
---@return { [1]: integer, [2]: string }[]
function M.find(line)
  local found, at = {}, 0
  if not line:find("[\128-\255]") then
    return found
  end
  for _, cell in ipairs(vim.fn.split(line, "\\zs")) do
    at = at + #cell
    for _, code in ipairs(#cell > 1 and vim.fn.str2list(cell) or {}) do
      local said = ("<%x>"):format(code)
      if is_invisible(code) and not vim.fn.strtrans(cell):find(said, 1, true) then
        table.insert(found, { at, said })
      end
    end
  end
  return found
end

---Give a text with all such characters, and those that Neovim makes visible itself, written out.
---@param text string
---@return string
function M.written_out(text)
  local found = M.find(text)
  for place = #found, 1, -1 do
    local start, said = unpack(found[place])
    text = text:sub(1, start) .. said .. text:sub(start + 1)
  end
  return vim.fn.strtrans(text)
end

return M
