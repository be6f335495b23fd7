-- Questions whether calls may run, one list for each session, and the window in which the first of them waits.
--
-- A question never takes the focus, and no plain typing answers it: it stands beside its session's chat, and is answered by
-- the keys of its own window or by a command. What was not on the screen yet is not allowed by the way.

local api = vim.api

local M = {}

local KEYS = { allowOnce = "gA", allowSession = "gS", deny = "gD" }
local GROUP = api.nvim_create_augroup("refold.questions", { clear = true })

---@class refold.Question
---@field params table of `approval/request`
---@field reply fun(option: string) answers the request that came last for it
---@field title string what is asked, in one line
---@field lines string[] all that the call would do
---@field buffer integer? shows the lines
---@field seen table<integer, true> the lines that were on the screen

local waiting = {} ---@type refold.Question[] oldest first

---Say what a diff is about: the file, and how many lines come and go.
---@param text string
---@return string?
local function diff_title(text)
  local file, added, removed, head = nil, 0, 0, true
  for _, line in ipairs(vim.split(text, "\n", { plain = true })) do
    head = head and not vim.startswith(line, "@@")
    if head then
      file = line:match("^%+%+%+ b?/?(.+)$") or file
    elseif vim.startswith(line, "+") then
      added = added + 1
    elseif vim.startswith(line, "-") then
      removed = removed + 1
    end
  end
  return file and ("%s (+%d −%d)"):format(file, added, removed)
end

---@param params table
---@return string
local function title_of(params)
  local about = params.subject.kind == "diff" and diff_title(params.subject.text)
  return about and ("may %s change %s?"):format(params.tool, about) or ("may %s run?"):format(params.tool)
end

---Give the question that waits longest in a session; without one, in any.
---@param session string?
---@return refold.Question?
function M.first(session)
  return vim.iter(waiting):find(function(question)
    return not session or question.params.session == session
  end)
end

---Give the question that a buffer shows.
---@param buffer integer
---@return refold.Question?
function M.of_buffer(buffer)
  return vim.iter(waiting):find(function(question)
    return question.buffer == buffer
  end)
end

---@param approval string
---@return refold.Question?
function M.find(approval)
  return vim.iter(waiting):find(function(question)
    return question.params.approval == approval
  end)
end

---Say how many questions wait, of one session or of all.
---@param session string?
---@return integer
function M.count(session)
  return #vim.tbl_filter(function(question)
    return not session or question.params.session == session
  end, waiting)
end

---Windows of this tab page that show a question.
---@param question refold.Question
---@return integer[]
local function windows_of(question)
  return vim.tbl_filter(function(window)
    return question.buffer ~= nil and api.nvim_win_get_buf(window) == question.buffer
  end, api.nvim_tabpage_list_wins(0))
end

---Say how many lines were not on the screen yet.
---@param question refold.Question
---@return integer
function M.unseen(question)
  for _, window in ipairs(windows_of(question)) do
    for line = vim.fn.line("w0", window), vim.fn.line("w$", window) do
      question.seen[line] = true
    end
  end
  return #question.lines - vim.tbl_count(question.seen)
end

---Give the line above a question: what is asked, how it is answered, and what was not shown yet.
---@return string
function M.winbar()
  local question = M.of_buffer(api.nvim_win_get_buf(vim.g.statusline_winid or 0))
  if not question then
    return ""
  end
  local parts = { "refold: " .. question.title }
  local more = M.count(question.params.session) - 1
  if more > 0 then
    table.insert(parts, ("%d more"):format(more))
  end
  for _, option in ipairs(question.params.options) do
    if KEYS[option.kind] then
      table.insert(parts, ("%s %s"):format(KEYS[option.kind], option.label))
    end
  end
  local unseen = M.unseen(question)
  if unseen > 0 then
    table.insert(parts, ("%d of %d lines not shown yet"):format(unseen, #question.lines))
  end
  return (table.concat(parts, " · "):gsub("%%", "%%%%"))
end

---@param question refold.Question
---@return integer
local function buffer_of(question)
  if question.buffer and api.nvim_buf_is_valid(question.buffer) then
    return question.buffer
  end
  local buffer = api.nvim_create_buf(false, true)
  question.buffer = buffer
  api.nvim_buf_set_lines(buffer, 0, -1, true, question.lines)
  vim.bo[buffer].modifiable = false
  vim.bo[buffer].filetype = question.params.subject.kind == "diff" and "diff" or ""
  for kind, keys in pairs(KEYS) do
    vim.keymap.set("n", keys, function()
      M.answer(kind, question)
    end, { buffer = buffer, nowait = true, desc = "refold: answer the question" })
  end
  return buffer
end

---Show a question below a window. Goes nowhere.
---@param question refold.Question
---@param above integer a window
local function open(question, above)
  local height = math.max(3, math.min(#question.lines + 1, math.floor(api.nvim_win_get_height(above) * 2 / 3)))
  local window = api.nvim_open_win(buffer_of(question), false, { split = "below", win = above, height = height })
  local options = { wrap = true, number = false, relativenumber = false, signcolumn = "no", winfixheight = true }
  options.winbar = "%{%v:lua.require'refold.questions'.winbar()%}"
  for name, value in pairs(options) do
    api.nvim_set_option_value(name, value, { scope = "local", win = window })
  end
  M.unseen(question)
end

---Show a session's first question below a window that shows its chat, where no window shows it yet.
---@param session string
---@param chat integer a window
function M.show(session, chat)
  local question = M.first(session)
  if question and #windows_of(question) == 0 then
    open(question, chat)
  end
end

---Go to a question; where no window shows it, one is opened below the present one.
---@param question refold.Question
function M.enter(question)
  if #windows_of(question) == 0 then
    open(question, api.nvim_get_current_win())
  end
  api.nvim_set_current_win(windows_of(question)[1])
end

---Take a question away, answered or not. Gives false for one that is not there any more.
---@param question refold.Question
---@return boolean
function M.remove(question)
  for place, one in ipairs(waiting) do
    if one == question then
      table.remove(waiting, place)
      if question.buffer and api.nvim_buf_is_valid(question.buffer) then
        api.nvim_buf_delete(question.buffer, { force = true })
      end
      api.nvim_exec_autocmds("User", { pattern = "RefoldQuestions", modeline = false })
      vim.cmd.redrawstatus({ bang = true })
      return true
    end
  end
  return false
end

---Add a question and announce it.
---@param params table
---@param reply fun(option: string)
function M.add(params, reply)
  local lines = vim.split((params.subject.text:gsub("\n$", "")), "\n", { plain = true })
  table.insert(waiting, { params = params, reply = reply, title = title_of(params), lines = lines, seen = {} })
  vim.notify(("refold: %s :RefoldQuestion shows it"):format(title_of(params)))
  api.nvim_exec_autocmds("User", { pattern = "RefoldQuestions", modeline = false })
  vim.cmd.redrawstatus({ bang = true })
end

---Answer a question by the option of a kind. To allow what was not all on the screen needs `anyway`.
---@param kind "allowOnce"|"allowSession"|"deny"
---@param question refold.Question
---@param anyway boolean?
function M.answer(kind, question, anyway)
  local option = vim.iter(question.params.options):find(function(one)
    return one.kind == kind
  end)
  if not option then
    return vim.notify("refold: this question has no such answer", vim.log.levels.WARN)
  end
  local unseen = kind ~= "deny" and not anyway and M.unseen(question) or 0
  if unseen > 0 then
    local text = "refold: %d of %d lines were not shown yet: scroll through them, or answer with !, as in :RefoldAllow!"
    return vim.notify(text:format(unseen, #question.lines), vim.log.levels.WARN)
  end
  if M.remove(question) then
    question.reply(option.id)
  end
end

api.nvim_create_autocmd({ "WinScrolled", "CursorMoved", "WinResized", "TabEnter", "WinEnter" }, {
  group = GROUP,
  callback = function()
    vim.iter(waiting):each(M.unseen)
  end,
})

return M
