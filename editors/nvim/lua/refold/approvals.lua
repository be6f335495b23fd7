-- The questions that this Neovim is asked: whether calls may run (`approval/request`). They wait, oldest first, until a
-- person answers in the chat or until they are settled elsewhere. Never takes focus, never reads a key. Must not know windows.

local daemon = require("refold.daemon")
local invisible = require("refold.invisible")
local sessions = require("refold.sessions")
local subject = require("refold.subject")

local M = {}

---@class refold.Question
---@field params table of `approval/request`
---@field reply fun(option: string) answers the request that came last for it
---@field seen table<integer, integer> how many bytes of each of its lines were on the screen, from the line's beginning
---@field drawn integer? when something of it was on the screen first, in ms

M.waiting = {} ---@type refold.Question[] oldest first

local unannounced = {} ---@type refold.Question[]

---Give the question with that id, if it waits here.
---@param approval string?
---@return refold.Question?
function M.find(approval)
  return vim.iter(M.waiting):find(function(question)
    return question.params.approval == approval
  end)
end

---Give how many questions wait here, or how many of one session.
---@param session string? its id
---@return integer
function M.count(session)
  return #vim.tbl_filter(function(question)
    return not session or question.params.session == session
  end, M.waiting)
end

---Answer a question, or let go of one that was settled.
---@param question refold.Question
---@param option string
function M.settle(question, option)
  M.waiting = vim.tbl_filter(function(one)
    return one ~= question
  end, M.waiting)
  question.reply(option)
  vim.cmd.redrawstatus({ bang = true })
end

---Give a line that the screen has room for: a longer one would wait for a key.
---@param text string
---@param ending string stays whole
---@return string
local function one_line(text, ending)
  local width = vim.fn.strwidth
  local room = vim.v.echospace - width(ending)
  text = invisible.written_out((text:gsub("%s+", " ")))
  if width(text) <= room then
    return text .. ending
  end
  text = vim.fn.strcharpart(text, 0, math.max(0, room))
  while text ~= "" and width(text) >= room do
    text = vim.fn.strcharpart(text, 0, vim.fn.strcharlen(text) - 1)
  end
  return text .. "…" .. ending
end

---Tell of what came since the last time, in one message: two would wait for a key.
local function announce()
  local new = vim.tbl_filter(function(question)
    return vim.list_contains(M.waiting, question)
  end, unannounced)
  unannounced = {}
  if #new == 0 then
    return
  end
  local text = ("refold: %d calls ask whether they may run"):format(#new)
  if #new == 1 then
    local params = new[1].params
    text = ("refold: may %s run? %s"):format(params.tool, subject.brief(params.subject))
  end
  vim.cmd.redraw() -- the message stands alone
  vim.notify(one_line(text, " :RefoldQuestion"), vim.log.levels.WARN)
end

---Have `approval/request` wait for the person. A question that is asked again is still the same one.
---@param params table
---@return { option: string }
function M.request(params)
  local thread = coroutine.running()
  local function reply(option)
    vim.schedule(function() -- never before the yield below
      coroutine.resume(thread, { option = option })
    end)
  end
  local known = M.find(params.approval)
  if known then
    known.reply(params.default) -- its request was cancelled: this is for nobody
    known.reply = reply
    return coroutine.yield()
  end
  local question = { params = params, reply = reply, seen = {} }
  table.insert(M.waiting, question)
  table.insert(unannounced, question)
  if #unannounced == 1 then
    vim.schedule(announce)
  end
  vim.cmd.redrawstatus({ bang = true })
  return coroutine.yield()
end

daemon.on("approval/request", M.request)
daemon.on("$/cancelRequest", function() end) -- what it is about is told by `approval/decided`

sessions.on_event(function(_, event)
  local question = event.type == "approval/decided" and M.find(event.data.id)
  if question then
    M.settle(question, question.params.default)
  end
end)

daemon.on_lost(function()
  for _, question in ipairs(M.waiting) do
    M.settle(question, question.params.default)
  end
end)

return M
