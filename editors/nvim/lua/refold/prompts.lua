-- What a person sends into a session: prompts, the interrupt, and inputs that wait since an earlier daemon.
-- No prompt is lost: one whose fate is unknown when the daemon dies is given back, unless the log turns out to have it.

local daemon = require("refold.daemon")
local sessions = require("refold.sessions")

local M = {}

---@class refold.Sent
---@field text string
---@field unsure boolean whether the daemon died before it answered

local sent = {} ---@type table<refold.Session, refold.Sent[]> what has no answer yet, oldest first
local last_token = 0
local given_back = function(_, _) end ---@type fun(session: refold.Session, text: string)

---Have `fn` called with the text of a prompt that was not accepted, to put it where it can be sent again.
---@param fn fun(session: refold.Session, text: string)
function M.on_given_back(fn)
  given_back = fn
end

local function tell(text, level)
  vim.notify("refold: " .. text, level or vim.log.levels.ERROR)
end

---@param session refold.Session
---@param prompt refold.Sent
local function forget(session, prompt)
  sent[session] = vim.tbl_filter(function(one)
    return one ~= prompt
  end, sent[session] or {})
end

---Send a prompt to a session that this daemon writes.
---@param session refold.Session
---@param text string
---@param steer boolean?
local function start(session, text, steer)
  last_token = last_token + 1
  local prompt = { text = text, unsure = false }
  sent[session] = sent[session] or {}
  table.insert(sent[session], prompt)
  daemon.request("turn/start", {
    session = session.id,
    content = { { type = "text", text = text } },
    ifRunning = steer and "steer" or "queue",
    workDoneToken = ("refold-%d"):format(last_token),
  }, function(failure)
    if failure and failure.kind == "connection.lost" then
      prompt.unsure = true
      return
    end
    forget(session, prompt)
    if failure then
      given_back(session, text)
      tell(failure.message)
    end
  end)
end

---Send a prompt. While a turn runs it waits behind it or, with `steer`, joins it.
---@param session refold.Session
---@param text string
---@param steer boolean?
function M.send(session, text, steer)
  local function give_back()
    given_back(session, text)
  end
  session:when_live(function()
    if not session.holder then
      return start(session, text, steer)
    end
    session:claim(function(claimed)
      if claimed then
        return start(session, text, steer)
      end
      give_back()
      tell("this session can be read only: " .. session.holder)
    end)
  end, give_back)
end

---Stop the turn that runs; with `withdraw`, take back what waits behind it.
---@param session refold.Session
---@param withdraw boolean?
function M.interrupt(session, withdraw)
  local turn = session.following.reading.turn
  if not turn then
    return tell("no turn runs", vim.log.levels.INFO)
  end
  local params = { session = session.id, turn = turn, withdrawQueued = withdraw == true }
  daemon.request("turn/interrupt", params, function(failure)
    if failure and failure.kind ~= "connection.lost" then
      tell(failure.message)
    end
  end)
end

---Join the texts of content.
---@param content table[]
---@return string
local function text_of(content)
  return vim
    .iter(content)
    :map(function(block)
      return block.text
    end)
    :join("\n")
end

---Offer an input that waits since an earlier daemon: to run it, or to take it back.
---@param session refold.Session
function M.pending(session)
  if #session.pending == 0 then
    return tell("nothing waits", vim.log.levels.INFO)
  end
  local choices = {}
  for _, input in ipairs(session.pending) do
    table.insert(choices, { input = input, method = "turn/start", word = "run" })
    table.insert(choices, { input = input, method = "input/withdraw", word = "withdraw" })
  end
  local format = function(choice)
    return ("%s: %s"):format(choice.word, text_of(choice.input.content):gsub("%s+", " "))
  end
  vim.ui.select(choices, { prompt = "Prompts that wait", format_item = format }, function(choice)
    if not choice then
      return
    end
    daemon.request(choice.method, { session = session.id, input = choice.input.input }, function(failure)
      if failure then
        return tell(failure.message)
      end
      session.pending = vim.tbl_filter(function(one)
        return one ~= choice.input
      end, session.pending)
    end)
  end)
end

---The log has it: whatever became of the answer, the prompt was accepted.
sessions.on_event(function(session, event)
  if event.type == "input/accepted" and sent[session] then
    local text = text_of(event.data.content)
    for _, prompt in ipairs(sent[session]) do
      if prompt.text == text then
        return forget(session, prompt)
      end
    end
  end
end)

---Everything that the new daemon knows was told: what is still unsure was never accepted.
sessions.on_change(function(session)
  local cursor = session.following.cursor
  if session.state ~= "live" or not cursor or not cursor.caught_up then
    return
  end
  for _, prompt in ipairs(sent[session] or {}) do
    if prompt.unsure then
      forget(session, prompt)
      given_back(session, prompt.text)
      tell("the daemon ended before it took the prompt; it stands where it was written", vim.log.levels.WARN)
    end
  end
end)

return M
