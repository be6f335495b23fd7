-- The sentences about what is over: how a turn ended, how a question was settled. Pure.

local M = {}

local ENDS = {
  interrupted = "The daemon ended during this turn.",
  ["max-tokens"] = "The reply was cut: it reached the limit of tokens.",
  ["max-steps"] = "The turn ended: it reached the limit of steps.",
}

---Say how a turn ended; nil where there is nothing to say.
---@param reason table of a `turn/end`
---@return string?
function M.ending(reason)
  if reason.kind == "aborted" then
    return reason.cause and reason.cause.kind == "user" and "Interrupted." or "The turn was stopped."
  elseif reason.kind == "error" then
    return ("Failed (%s): %s"):format(reason.error.kind, reason.error.message)
  elseif reason.kind ~= "completed" then
    return ENDS[reason.kind] or ("The turn ended: %s."):format(reason.kind)
  end
end

---Say how a question was settled, and by whom.
---@param decided table data of an `approval/decided`
---@return string
function M.decision(decided)
  local reach = decided.scope == "session" and " for the session" or ""
  local by = decided.by.name and ("%s: %s"):format(decided.by.kind, decided.by.name) or decided.by.kind
  return ("%s%s (%s)"):format(decided.outcome, reach, by)
end

return M
