-- Subscription's place in a session's log: the rules of delivery of the protocol, section 3.
-- Pure: knows neither buffers nor processes. Keeps numbers only, never an event.
--
-- Events come in order and at least once; what comes twice is dropped. A seq names an event for ever only up to
-- `durable`: whoever lost the daemon, or hears of another writer, discards what lies behind `safe()` and subscribes
-- after it, naming the writer under which it learnt of that place.

local Cursor = {}
Cursor.__index = Cursor

---@class refold.Cursor
---@field subscription integer the daemon's number for it
---@field writer string? who wrote what was told; nil for a session that nobody wrote yet
---@field last integer seq of the last event that was taken, -1 for none
---@field durable integer seq of the last event that was told to be durable
---@field caught_up boolean whether nothing more waited when the daemon spoke last
---@field phase string? what a running turn waits for, where the daemon said so

---Begin behind `after`, by the reply of `event/subscribe`.
---@param after integer
---@param reply { subscription: integer, writer: string?, durable: integer }
---@return refold.Cursor
function Cursor.new(after, reply)
  return setmetatable({
    subscription = reply.subscription,
    writer = reply.writer,
    last = after,
    durable = reply.durable,
    caught_up = false,
  }, Cursor)
end

---The seq behind which nothing may be relied on: everything up to it was received and will never change.
---@return integer
function Cursor:safe()
  return math.min(self.last, self.durable)
end

---Take a `session/events`. Gives the new events, or nil where one must subscribe anew after `safe()`: another writer
---took over, or something is missing.
---@param notice { events: table[], prev: integer, durable: integer, writer: string?, caughtUp: boolean?, phase: string? }
---@return table[]?
function Cursor:take(notice)
  if self.writer ~= nil and notice.writer ~= self.writer then
    return nil
  end
  if notice.prev > self.last then
    return nil
  end
  self.writer = notice.writer
  local new = {}
  for _, event in ipairs(notice.events) do
    if event.seq > self.last then
      self.last = event.seq
      new[#new + 1] = event
    end
  end
  self.durable = notice.durable
  self.caught_up = notice.caughtUp == true
  self.phase = notice.phase
  return new
end

return Cursor
