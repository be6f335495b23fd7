-- Owns asking the person whether calls may run (`approval/request`): one question at a time, with all that it is about in a
-- window of its own. No answer is the question's default, which denies. Must not know the chat.

local daemon = require("refold.daemon")
local sessions = require("refold.sessions")

local M = {}

local MAX_HEIGHT = 15 -- lines of the window that shows what a call would do

---@class refold.Question
---@field params table of `approval/request`
---@field reply fun(option: string) answers the request that came last for it
---@field close fun()? takes away what is shown

local waiting = {} ---@type refold.Question[] oldest first; the first one is the one that is asked
local asking = false -- whether a choice is open: another question must not open a second one over it

---Show what a call would do; gives what takes it away again.
---@param params table
---@return fun()
local function show(params)
  local lines = vim.split((params.subject.text:gsub("\n$", "")), "\n")
  local buffer = vim.api.nvim_create_buf(false, true)
  vim.api.nvim_buf_set_lines(buffer, 0, -1, true, lines)
  vim.bo[buffer].bufhidden = "wipe"
  vim.bo[buffer].modifiable = false
  vim.bo[buffer].filetype = params.subject.kind == "diff" and "diff" or ""
  local height = math.min(#lines, MAX_HEIGHT)
  local window = vim.api.nvim_open_win(buffer, false, { split = "below", win = -1, height = height, style = "minimal" })
  vim.wo[window].winbar = ("refold: what %s would do"):format((params.tool:gsub("%%", "%%%%")))
  vim.cmd.redraw()
  return function()
    if vim.api.nvim_win_is_valid(window) then
      vim.api.nvim_win_close(window, true)
    end
  end
end

---@param question refold.Question
---@param option string
local function settle(question, option)
  for place, one in ipairs(waiting) do
    if one == question then
      table.remove(waiting, place)
    end
  end
  if question.close then
    question.close()
  end
  question.reply(option)
end

---Ask what waits longest, unless something is being asked.
local function ask_next()
  local question = waiting[1]
  if asking or not question then
    return
  end
  asking = true
  local params = question.params
  question.close = show(params)
  local options = {
    kind = "refold_approval",
    prompt = ("refold: may %s run?"):format(params.tool),
    format_item = function(option)
      return option.label
    end,
  }
  vim.ui.select(params.options, options, function(choice)
    asking = false
    if vim.list_contains(waiting, question) then -- else it was settled meanwhile
      settle(question, choice and choice.id or params.default)
    end
    vim.schedule(ask_next)
  end)
end

---@param approval string
---@return refold.Question?
local function find(approval)
  return vim.iter(waiting):find(function(question)
    return question.params.approval == approval
  end)
end

---Answer `approval/request` when the person has chosen. A question that is asked again is still the same one.
---@param params table
---@return { option: string }
function M.request(params)
  local thread = coroutine.running()
  local function reply(option)
    vim.schedule(function() -- never before the yield below
      coroutine.resume(thread, { option = option })
    end)
  end
  local known = find(params.approval)
  if known then
    known.reply(params.default) -- its request was cancelled: this is for nobody
    known.reply = reply
  else
    table.insert(waiting, { params = params, reply = reply })
    vim.schedule(ask_next)
  end
  return coroutine.yield()
end

daemon.on("approval/request", M.request)
daemon.on("$/cancelRequest", function() end) -- what it is about is told by `approval/decided`

sessions.on_event(function(_, event)
  local question = event.type == "approval/decided" and find(event.data.id)
  if question then
    settle(question, question.params.default)
  end
end)

daemon.on_lost(function()
  for _, question in ipairs(vim.list_extend({}, waiting)) do
    settle(question, question.params.default)
  end
end)

return M
