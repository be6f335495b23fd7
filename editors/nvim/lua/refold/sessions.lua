-- Which sessions this Neovim shows, and which of them commands are about; passes to each what the daemon tells of it.
-- Must not know windows.

local Session = require("refold.session")
local daemon = require("refold.daemon")

local M = {}

M.all = {} ---@type table<string, refold.Session> by id
M.current = nil ---@type refold.Session? the one that commands are about

local wanting = {} ---@type fun(session: refold.Session)[] who waits for the session that is being begun
local event_listeners = {} ---@type fun(session: refold.Session, event: table)[]
local change_listeners = {} ---@type fun(session: refold.Session)[]

---Have `fn` called for each new event of each session, in order, before it is shown.
---@param fn fun(session: refold.Session, event: table)
function M.on_event(fn)
  table.insert(event_listeners, fn)
end

---Have `fn` called when something about a session may have changed: what it shows, its state, its title.
---@param fn fun(session: refold.Session)
function M.on_change(fn)
  table.insert(change_listeners, fn)
end

---@param session refold.Session
local function changed(session)
  for _, fn in ipairs(change_listeners) do
    fn(session)
  end
end

---@type refold.SessionHooks
local hooks = {
  heard = function(session, event)
    for _, fn in ipairs(event_listeners) do
      fn(session, event)
    end
  end,
  changed = changed,
  replaced = function(session, old)
    M.all[old] = nil
    M.all[session.id] = session
  end,
  closed = function(session)
    M.all[session.id] = nil
    if M.current == session then
      M.current = nil
    end
    changed(session)
  end,
}

---@param failure refold.Failure
local function tell(failure)
  vim.notify("refold: " .. failure.message, vim.log.levels.ERROR)
end

---Open a session, or begin one: `{ session = id }` or `{ cwd = folder }`. `fn` gets it when its events come; where it cannot
---be opened, the person is told why, and `failed` is called.
---@param params table
---@param fn fun(session: refold.Session)
---@param failed fun()?
function M.open(params, fn, failed)
  local known = params.session and M.all[params.session]
  if known then
    return known:when_live(fn, failed)
  end
  Session.request_open(params, function(failure, opened, holder)
    if failure then
      tell(failure)
      return failed and failed()
    end
    local session = M.all[opened.session]
    if session then -- asked for twice
      return session:when_live(fn, failed)
    end
    session = Session.new(opened.session, hooks)
    M.all[session.id] = session
    session:begin(opened, holder)
    session:when_live(fn, failed)
  end)
end

---Give the present session; where there is none, one is begun in that folder, for all who ask meanwhile.
---@param cwd string
---@param fn fun(session: refold.Session)
function M.present(cwd, fn)
  if M.current then
    return M.current:when_live(fn)
  end
  table.insert(wanting, fn)
  if #wanting > 1 then
    return
  end
  local function begun(session)
    M.current = session
    local told = wanting
    wanting = {}
    for _, one in ipairs(told) do
      one(session)
    end
  end
  M.open({ cwd = cwd }, begun, function()
    wanting = {}
  end)
end

---Give the session that a buffer shows.
---@param buffer integer
---@return refold.Session?
function M.of_buffer(buffer)
  return vim
    .iter(pairs(M.all))
    :map(function(_, session)
      return session
    end)
    :find(function(session)
      return session.buffer == buffer
    end)
end

daemon.on("session/events", function(notice)
  for _, session in pairs(M.all) do
    local cursor = session.following.cursor
    if cursor and cursor.subscription == notice.subscription then
      return session.following:take(notice)
    end
  end
end)

-- A log that cannot be written, or can again, is told to the person; one that cannot be followed any more is let go.
daemon.on("session/trouble", function(notice)
  local session = M.all[notice.session]
  if not session then
    return
  elseif notice.kind == "cleared" then
    return vim.notify("refold: " .. notice.message, vim.log.levels.INFO)
  end
  local cursor = session.following.cursor
  if cursor and notice.subscription == cursor.subscription then
    session:lose()
  end
  tell(notice)
end)

daemon.on_lost(function(failure, again)
  for _, session in pairs(M.all) do
    session:lose()
  end
  if failure and not again and next(M.all) then
    tell(failure)
  elseif again and next(M.all) then
    daemon.restart(function(reason)
      for _, session in pairs(M.all) do
        if reason then
          session:give_up(reason)
        else
          session:resume()
        end
      end
    end)
  end
end)

return M
