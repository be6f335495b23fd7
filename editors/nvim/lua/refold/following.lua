-- Following of one session's log: a cursor, the state of the fold, and the page that shows it.
-- Keeps no history. What the log may not keep (the daemon died, another writer took over) is taken off the page before
-- anything else happens. Must not know windows, nor how sessions are opened.

local Cursor = require("refold.cursor")
local Page = require("refold.page")
local daemon = require("refold.daemon")
local settings = require("refold.settings")
local transcript = require("refold.transcript")

local Following = {}
Following.__index = Following

---@class refold.Following
---@field page refold.Page
---@field reading refold.Reading
---@field cursor refold.Cursor? while it is subscribed
---@field after integer where to go on when it is not: what stands up to there is durable
---@field writer string? under which `after` was learnt
---@field private hears fun(event: table) is told each new event before it is shown
---@field private shows fun() is told when the page was brought up to date
---@field private flushing boolean whether a flush is about to happen

---@return refold.Reading
local function nothing_read()
  local given = settings.get()
  return transcript.empty({ reasoning = given.reasoning, sign = given.icons.call })
end

---@param buffer integer
---@param hears fun(event: table)
---@param shows fun()
---@return refold.Following
function Following.new(buffer, hears, shows)
  local self = { page = Page.new(buffer), reading = nothing_read(), after = -1, hears = hears, shows = shows }
  return setmetatable(self, Following)
end

---Subscribe behind `after`. Of what is shown, that is taken back first which the log does not have any more.
---@param session string
---@param fn fun(failure: refold.Failure?)
function Following:begin(session, fn)
  self.session = session
  local params = { session = session, after = self.after, writer = self.writer, chunks = "live" }
  daemon.request("event/subscribe", params, function(failure, reply)
    if failure then
      local known = failure.data.durable or failure.data.tail
      if vim.startswith(failure.kind, "cursor.") and known < self.after then
        self:take_back(known)
        return self:begin(session, fn)
      end
      return fn(failure)
    end
    self.cursor = Cursor.new(self.after, reply)
    fn(nil)
  end)
end

---Take a `session/events` of this subscription.
---@param notice table
function Following:take(notice)
  if not self.page:is_intact() then -- somebody wrote into the buffer; the log has it all
    return self:_begin_anew(true)
  end
  local before = self.cursor.last
  local events = self.cursor:take(notice)
  if not events then -- another writer, or a gap: only what was durable counts
    return self:_begin_anew(false)
  end
  self.page:forget(math.min(notice.durable, before))
  for _, event in ipairs(events) do
    if event.seq > notice.durable then
      self.page:remember(event.seq, self.reading)
    end
    self.hears(event)
    local reading, operations = transcript.step(self.reading, event)
    self.reading = reading
    self.page:apply(operations)
  end
  self.page:forget(self.cursor:safe())
  self:_flush_soon()
end

---Forget the subscription, with nothing left on the page that is not durable.
function Following:let_go()
  local cursor = self.cursor
  if cursor then
    self.cursor, self.writer = nil, cursor.writer
    self:take_back(cursor:safe())
  end
end

---Show nothing that stands behind `seq`, and go on from there; where that is not known any more, from the first event.
---@param seq integer
function Following:take_back(seq)
  local done, reading = self.page:revert(seq)
  if done then
    self.after, self.reading = seq, reading or self.reading
  else
    self:_start_over()
  end
end

function Following:_start_over()
  self.page:clear()
  self.reading, self.after, self.writer = nothing_read(), -1, nil
end

---End the subscription and begin another: behind what is durable, or with the first event.
---@param first boolean
function Following:_begin_anew(first)
  local subscription = self.cursor.subscription
  if first then
    self.cursor = nil
    self:_start_over()
  else
    self:let_go()
  end
  daemon.request("event/unsubscribe", { subscription = subscription }, function() end)
  self:begin(self.session, function(failure)
    if failure and failure.kind ~= "connection.lost" then
      vim.notify("refold: " .. failure.message, vim.log.levels.ERROR)
    end
  end)
end

---Show what came: once for all notifications that came meanwhile.
function Following:_flush_soon()
  if self.flushing then
    return
  end
  self.flushing = true
  vim.schedule(function()
    self.flushing = false
    if vim.api.nvim_buf_is_loaded(self.page.buffer) then
      self.page:flush()
      self.shows()
    end
  end)
end

return Following
