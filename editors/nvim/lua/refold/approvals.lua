-- Answers to `approval/request`: each question waits beside its session's chat until the person answers it there.
-- A question that is settled elsewhere, or whose daemon is gone, goes away; its answer is the default, which denies.

local daemon = require("refold.daemon")
local questions = require("refold.questions")
local sessions = require("refold.sessions")

local api = vim.api

local M = {}

---Show the questions of sessions whose chats this tab page shows.
function M.show()
  for _, window in ipairs(api.nvim_tabpage_list_wins(0)) do
    local session = sessions.of_buffer(api.nvim_win_get_buf(window))
    if session then
      questions.show(session.id, window)
    end
  end
end

---Give the question that commands are about: the one under the cursor, else the present session's, else any.
---@return refold.Question?
function M.present()
  local buffer = api.nvim_get_current_buf()
  local session = sessions.of_buffer(buffer) or sessions.current
  return questions.of_buffer(buffer) or questions.first(session and session.id) or questions.first()
end

---Answer `approval/request` when the person has answered. A question that is asked again is still the same one.
---@param params table
---@return { option: string }
function M.request(params)
  local thread = coroutine.running()
  local function reply(option)
    vim.schedule(function() -- never before the yield below
      coroutine.resume(thread, { option = option })
    end)
  end
  local known = questions.find(params.approval)
  if known then
    known.reply(params.default) -- its request was cancelled: this is for nobody
    known.reply = reply
  else
    questions.add(params, reply)
    vim.schedule(M.show)
  end
  return coroutine.yield()
end

---@param question refold.Question
local function settle(question)
  questions.remove(question)
  question.reply(question.params.default)
  vim.schedule(M.show)
end

daemon.on("approval/request", M.request)
daemon.on("$/cancelRequest", function() end) -- what it is about is told by `approval/decided`

sessions.on_event(function(_, event)
  local question = event.type == "approval/decided" and questions.find(event.data.id)
  if question then
    settle(question)
    vim.notify(("refold: settled without you (%s): %s"):format(event.data.outcome, question.title))
  end
end)

daemon.on_lost(function()
  local question = questions.first()
  while question do
    settle(question)
    question = questions.first()
  end
end)

api.nvim_create_autocmd("BufWinEnter", {
  group = api.nvim_create_augroup("refold.approvals", { clear = true }),
  pattern = "refold://*",
  callback = function()
    vim.schedule(M.show)
  end,
})

api.nvim_create_autocmd("User", {
  group = "refold.approvals",
  pattern = "RefoldQuestions",
  callback = function()
    vim.schedule(M.show)
  end,
})

return M
