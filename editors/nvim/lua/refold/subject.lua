-- What can be said in few words of what a call would do: which file, how many lines come and go, and how lines are
-- highlighted. Pure: texts in, texts out. The text itself is always shown whole, as the daemon gave it.

local M = {}

local GROUPS = { ["+"] = "RefoldAdded", ["-"] = "RefoldRemoved", ["@"] = "RefoldReasoning" }

---@param subject table `subject` of a question
---@return string[]
local function lines_of(subject)
  return vim.split((subject.text:gsub("\n$", "")), "\n", { plain = true })
end

---Give the lines of what a call would do, each with its highlight.
---@param subject table
---@return { [1]: string, [2]: string? }[]
function M.parts(subject)
  return vim.tbl_map(function(line)
    return { line, subject.kind == "diff" and GROUPS[line:sub(1, 1)] or nil }
  end, lines_of(subject))
end

---Whether the daemon left out a part of a diff that is too long to be sent.
---@param subject table
---@return boolean
function M.is_cut(subject)
  return subject.kind == "diff" and vim.startswith(subject.text, "[This diff has ")
end

---@param line string
---@return string? path nil for a file that is not there
local function path_of(line)
  local path = line:sub(5):gsub("\t.*$", "")
  return path ~= "/dev/null" and path:gsub("^[ab]/", "") or nil
end

---Count by the sizes that the heads of hunks give: a line of a file may look like a line of a head.
---@param lines string[]
---@return table counts { files: string[], added: integer, removed: integer, new: boolean }
local function count(lines)
  local counts = { files = {}, added = 0, removed = 0, new = false }
  local old, new = 0, 0 -- lines of each side that the hunk still has
  local before
  for _, line in ipairs(lines) do
    local sign = line:sub(1, 1)
    if old > 0 or new > 0 then
      old = old - ((sign == "-" or sign == " ") and 1 or 0)
      new = new - ((sign == "+" or sign == " ") and 1 or 0)
      counts.added = counts.added + (sign == "+" and 1 or 0)
      counts.removed = counts.removed + (sign == "-" and 1 or 0)
    elseif sign == "@" then
      local removed, added = line:match("^@@ %-%d+(,?%d*) %+%d+(,?%d*) @@")
      old, new = tonumber((removed or ",0"):sub(2)) or 1, tonumber((added or ",0"):sub(2)) or 1
    elseif vim.startswith(line, "--- ") then
      before = path_of(line)
    elseif vim.startswith(line, "+++ ") then
      counts.new = counts.new or before == nil
      table.insert(counts.files, path_of(line) or before)
    end
  end
  return counts
end

---Say what a call would do: the files and the counts of a diff, the beginning of anything else.
---@param subject table
---@return string
function M.brief(subject)
  local lines = lines_of(subject)
  if subject.kind ~= "diff" then
    local more = #lines > 1 and (" … (%d lines)"):format(#lines) or ""
    return lines[1] .. more
  end
  local counts = count(lines)
  local new = counts.new and "new, " or ""
  local cut = M.is_cut(subject) and ", too long to be shown whole" or ""
  local files = #counts.files > 0 and table.concat(counts.files, ", ") or "a change"
  return ("%s (%s+%d −%d%s)"):format(files, new, counts.added, counts.removed, cut)
end

---Give the first line of a question.
---@param asked table data of an `approval/asked`
---@return string
function M.title(asked)
  return (("? May %s run? %s"):format(asked.tool, M.brief(asked.subject)):gsub("%s+", " "))
end

return M
