-- Owns the sessions that this Neovim shows: opening them, giving them back, and going on after the daemon was lost.
-- Keeps no truth: what a session is stands in its log. Must not know windows.

local Following = require("refold.following")
local daemon = require("refold.daemon")

local M = {}

---@class refold.Session
---@field id string
---@field cwd string
---@field buffer integer
---@field following refold.Following
---@field state "lost"|"opening"|"live"|"closed" whether its events come
---@field holder string? why it can only be read
---@field pending table[] inputs of an earlier daemon that nobody has run or withdrawn yet
---@field private waiters fun(session: refold.Session)[] who wants it live
local Session = {}
Session.__index = Session

M.all = {} ---@type table<string, refold.Session> by id
M.current = nil ---@type refold.Session? the one that commands are about

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

---@param text string
---@param level integer?
local function tell(text, level)
  vim.notify("refold: " .. text, level or vim.log.levels.ERROR)
end

---Give the buffer that is named after a session; one that was deleted is replaced.
---@param id string
---@return integer
local function buffer_of(id)
  local name = "refold://" .. id
  local buffer = vim.iter(vim.api.nvim_list_bufs()):find(function(one)
    return vim.api.nvim_buf_get_name(one) == name
  end)
  if buffer and not vim.api.nvim_buf_is_loaded(buffer) then
    vim.api.nvim_buf_delete(buffer, { force = true })
    buffer = nil
  end
  if not buffer then
    buffer = vim.api.nvim_create_buf(true, true)
    vim.api.nvim_buf_set_name(buffer, name)
  end
  local options = { buftype = "nofile", bufhidden = "hide", swapfile = false, undolevels = -1, modifiable = false }
  for option, value in pairs(options) do
    vim.bo[buffer][option] = value
  end
  vim.bo[buffer].filetype = "refold"
  return buffer
end

function Session:_changed()
  for _, fn in ipairs(change_listeners) do
    fn(self)
  end
end

---@param opened table the result of `session/open`
---@return refold.Session
local function adopt(opened)
  local self = M.all[opened.session]
  if self then
    return self
  end
  self = setmetatable({ id = opened.session, state = "lost", waiters = {} }, Session)
  self.buffer = buffer_of(self.id)
  self.following = Following.new(self.buffer, function(event)
    for _, fn in ipairs(event_listeners) do
      fn(self, event)
    end
  end, function()
    self:_changed()
  end)
  M.all[self.id] = self
  vim.api.nvim_create_autocmd("BufUnload", {
    buffer = self.buffer,
    once = true,
    callback = function()
      self:_close()
    end,
  })
  return self
end

---Ask for a session: for writing, else for reading where another process writes it.
---@param params table
---@param fn fun(failure: refold.Failure?, opened: table?, holder: string?)
local function request_open(params, fn)
  daemon.request("session/open", params, function(failure, opened)
    if failure and failure.kind == "session.owned" and params.session then
      return daemon.request("session/open", { session = params.session, mode = "read" }, function(again, read)
        fn(again, read, failure.message)
      end)
    end
    fn(failure, opened)
  end)
end

---Open a session, or begin one: `{ session = id }` or `{ cwd = folder }`. `fn` gets it when its events come.
---@param params table
---@param fn fun(session: refold.Session)
function M.open(params, fn)
  local known = params.session and M.all[params.session]
  if known then
    return known:when_live(fn)
  end
  request_open(params, function(failure, opened, holder)
    if failure then
      return tell(failure.message)
    end
    local self = adopt(opened)
    table.insert(self.waiters, fn)
    self:_begin(opened, holder)
  end)
end

---Call `fn` when the session is live: now, or after the daemon was started again.
---@param fn fun(session: refold.Session)
function Session:when_live(fn)
  if self.state == "live" then
    return fn(self)
  end
  table.insert(self.waiters, fn)
  daemon.start(function(failure)
    if failure then
      return tell(failure.message)
    end
    self:_resume()
  end)
end

---Follow the log of a session that was opened.
function Session:_begin(opened, holder)
  self.state, self.cwd, self.holder, self.pending = "opening", opened.info.cwd, holder, opened.pendingInputs or {}
  self.following:begin(self.id, function(failure)
    if self.state ~= "opening" then
      return -- its buffer is gone, or the daemon
    elseif failure then
      self.state = "lost"
      return failure.kind ~= "connection.lost" and tell(failure.message)
    end
    self.state = "live"
    if holder then
      tell("this session can be read only: " .. holder, vim.log.levels.WARN)
    elseif #self.pending > 0 then
      tell(("%d prompts wait since before; :RefoldPending"):format(#self.pending), vim.log.levels.INFO)
    end
    local waiters = self.waiters
    self.waiters = {}
    for _, fn in ipairs(waiters) do
      fn(self)
    end
    self:_changed()
  end)
end

---Go on in a new daemon.
function Session:_resume()
  if self.state ~= "lost" then
    return
  end
  self.state = "opening"
  request_open({ session = self.id }, function(failure, opened, holder)
    if self.state ~= "opening" then
      return
    elseif not failure then
      return self:_begin(opened, holder)
    end
    self.state = "lost"
    if failure.kind == "session.unknown" and self.following.after == -1 then
      self:_replace()
    elseif failure.kind ~= "connection.lost" then
      tell(failure.message)
    end
  end)
end

---A session without events left no record: another one takes its place.
function Session:_replace()
  request_open({ cwd = self.cwd }, function(failure, opened)
    if failure or self.state ~= "lost" then
      return failure and tell(failure.message)
    end
    M.all[self.id] = nil
    self.id = opened.session
    M.all[self.id] = self
    vim.api.nvim_buf_set_name(self.buffer, "refold://" .. self.id)
    self:_begin(opened)
  end)
end

---Give the session back: its buffer is gone. A turn that runs goes on, and keeps it open.
function Session:_close()
  local cursor = self.following.cursor
  self.state, self.following.cursor = "closed", nil
  M.all[self.id] = nil
  if M.current == self then
    M.current = nil
  end
  if cursor and daemon.client() then
    local nothing = function() end
    daemon.request("event/unsubscribe", { subscription = cursor.subscription }, nothing)
    daemon.request("session/close", { session = self.id }, nothing)
  end
end

---Give the session that a buffer shows.
---@param buffer integer
---@return refold.Session?
function M.of_buffer(buffer)
  for _, session in pairs(M.all) do
    if session.buffer == buffer then
      return session
    end
  end
end

daemon.on("session/events", function(notice)
  for _, session in pairs(M.all) do
    local cursor = session.following.cursor
    if cursor and cursor.subscription == notice.subscription then
      return session.following:take(notice)
    end
  end
end)

daemon.on_lost(function()
  for _, session in pairs(M.all) do
    session.following:let_go()
    session.state = "lost"
    session:_changed()
  end
  if next(M.all) then
    daemon.restart(function(failure)
      if failure then
        return tell(failure.message)
      end
      for _, session in pairs(M.all) do
        session:_resume()
      end
    end)
  end
end)

return M
