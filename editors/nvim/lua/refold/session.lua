-- Session that is shown: its buffer, its state, and going on with it in another daemon.
-- Keeps no truth: what the session is stands in its log. Must not know windows, nor which other sessions there are.

local Following = require("refold.following")
local daemon = require("refold.daemon")

---@class refold.SessionHooks
---@field heard fun(session: refold.Session, event: table) a new event, before it is shown
---@field changed fun(session: refold.Session) what it shows, its state or its title may be other ones
---@field replaced fun(session: refold.Session, id: string) it has another id than `id`, its old one
---@field closed fun(session: refold.Session) its buffer is gone

---@class refold.Session
---@field id string
---@field cwd string
---@field buffer integer
---@field following refold.Following
---@field state "lost"|"opening"|"live"|"closed" whether its events come
---@field holder string? why it can only be read
---@field pending table[] inputs of an earlier daemon that nobody has run or withdrawn yet
---@field private waiters { fn: fun(session: refold.Session), failed: fun()? }[] who wants it live
---@field private hooks refold.SessionHooks
local Session = {}
Session.__index = Session

---@param text string
---@param level integer?
local function tell(text, level)
  vim.notify("refold: " .. text, level or vim.log.levels.ERROR)
end

---Ask for a session: for writing, else for reading where another process writes it.
---@param params table
---@param fn fun(failure: refold.Failure?, opened: table?, holder: string?)
function Session.request_open(params, fn)
  daemon.request("session/open", params, function(failure, opened)
    if failure and failure.kind == "session.owned" and params.session then
      return daemon.request("session/open", { session = params.session, mode = "read" }, function(again, read)
        fn(again, read, failure.message)
      end)
    end
    fn(failure, opened)
  end)
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

---Make one that is not followed yet.
---@param id string
---@param hooks refold.SessionHooks
---@return refold.Session
function Session.new(id, hooks)
  local self = setmetatable({ id = id, state = "lost", pending = {}, waiters = {}, hooks = hooks }, Session)
  self.buffer = buffer_of(id)
  self.following = Following.new(self.buffer, function(event)
    hooks.heard(self, event)
  end, function()
    hooks.changed(self)
  end)
  vim.api.nvim_create_autocmd("BufUnload", {
    buffer = self.buffer,
    once = true,
    callback = function()
      self:_close()
    end,
  })
  return self
end

---Call `fn` when the session is live: now, or after the daemon was started again; `failed` where that came to nothing.
---@param fn fun(session: refold.Session)
---@param failed fun()?
function Session:when_live(fn, failed)
  if self.state == "live" then
    return fn(self)
  end
  table.insert(self.waiters, { fn = fn, failed = failed })
  daemon.start(function(failure)
    if failure then
      return self:give_up(failure)
    end
    self:resume()
  end)
end

---The session cannot be gone on with for now: tell the person, and whoever waits for it.
---@param failure refold.Failure
function Session:give_up(failure)
  self.state = "lost"
  local waiters = self.waiters
  self.waiters = {}
  for _, waiter in ipairs(waiters) do
    if waiter.failed then
      waiter.failed()
    end
  end
  tell(failure.message)
end

---Follow the log of the session, which was opened.
---@param opened table the result of `session/open`
---@param holder string?
function Session:begin(opened, holder)
  self.state, self.cwd, self.holder, self.pending = "opening", opened.info.cwd, holder, opened.pendingInputs or {}
  self.following:begin(self.id, function(failure)
    if self.state ~= "opening" then
      return -- its buffer is gone, or the daemon
    elseif failure then
      return self:_failed(failure)
    end
    self.state = "live"
    if holder then
      tell("this session can be read only: " .. holder, vim.log.levels.WARN)
    elseif #self.pending > 0 then
      local count = #self.pending == 1 and "1 prompt waits" or ("%d prompts wait"):format(#self.pending)
      tell(count .. " since before; :RefoldPending", vim.log.levels.INFO)
    end
    local waiters = self.waiters
    self.waiters = {}
    for _, waiter in ipairs(waiters) do
      waiter.fn(self)
    end
    self.hooks.changed(self)
  end)
end

---The daemon is gone: show nothing that is not durable.
function Session:lose()
  self.following:let_go()
  self.state = "lost"
  self.hooks.changed(self)
end

---Go on in a new daemon.
function Session:resume()
  if self.state ~= "lost" then
    return
  end
  self.state = "opening"
  Session.request_open({ session = self.id }, function(failure, opened, holder)
    if self.state ~= "opening" then
      return
    elseif not failure then
      return self:begin(opened, holder)
    end
    if failure.kind == "session.unknown" and self.following.after == -1 then
      self:_replace()
    else
      self:_failed(failure)
    end
  end)
end

---A daemon that is lost is the affair of whoever starts another one.
---@param failure refold.Failure
function Session:_failed(failure)
  if failure.kind == "connection.lost" then
    self.state = "lost"
  else
    self:give_up(failure)
  end
end

---Try to become the one who writes the session, which another process wrote. Gives whether that is so now.
---@param fn fun(claimed: boolean)
function Session:claim(fn)
  daemon.request("session/open", { session = self.id }, function(failure, opened)
    self.holder = failure and failure.message
    self.pending = opened and opened.pendingInputs or self.pending
    self.hooks.changed(self)
    fn(not failure)
  end)
end

---A session without events left no record: another one takes its place.
function Session:_replace()
  Session.request_open({ cwd = self.cwd }, function(failure, opened)
    if self.state ~= "opening" then
      return
    elseif failure then
      return self:_failed(failure)
    end
    local old = self.id
    self.id = opened.session
    vim.api.nvim_buf_set_name(self.buffer, "refold://" .. self.id)
    self.hooks.replaced(self, old)
    self:begin(opened)
  end)
end

---Give the session back: its buffer is gone. A turn that runs goes on, and keeps it open.
function Session:_close()
  local cursor = self.following.cursor
  self.state, self.following.cursor = "closed", nil
  self.hooks.closed(self)
  if cursor and daemon.client() then
    local nothing = function() end
    daemon.request("event/unsubscribe", { subscription = cursor.subscription }, nothing)
    daemon.request("session/close", { session = self.id }, nothing)
  end
end

return Session
