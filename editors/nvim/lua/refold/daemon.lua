-- Daemon as a client of the built-in LSP: its start, its end, requests to it, and which buffers it sees.
-- One daemon serves this Neovim. Must not know sessions: whoever cares is told what came, and that it was lost.
-- Every request is answered once: by the daemon, or by `connection.lost`.

local last_words = require("refold.last_words")
local settings = require("refold.settings")

local M = {}

---@class refold.Failure
---@field message string a sentence for a person
---@field kind string a word of the protocol, `connection.lost`, or `rpc` for an error without a word
---@field data table what the daemon told beside it

---@alias refold.Answer fun(failure: refold.Failure?, result: any)

local MAX_STARTS = 5
local WINDOW_MS = 60000
local MISCONFIGURED = 2 -- the exit code for a wrong configuration: another start would end in the same way

local client_id ---@type integer? the client of the daemon that runs or starts
local ready = false
local stopping = false
local leaving = false
local waiting = {} ---@type fun(failure: refold.Failure?)[] who wants a daemon that is starting
local unanswered = {} ---@type table<table, refold.Answer> by a key of each request's own
local handlers = {} ---@type table<string, fun(params: table)>
local commands = {} ---@type table<string, fun(command: lsp.Command, context: table)>
local lost_listeners = {} ---@type fun(failure: refold.Failure?, again: boolean)[]
local log_place = 0 -- where in the log of the built-in client this daemon's words begin
local starts = {} ---@type integer[] times of starts nobody asked for, in ms

---@return vim.lsp.Client?
function M.client()
  return ready and vim.lsp.get_client_by_id(client_id) or nil
end

---Have `fn` called with the params of each notification or request of this method; it may return a request's result.
---@param method string
---@param fn fun(params: table, context: table): any
function M.on(method, fn)
  handlers[method] = function(_, params, context)
    return fn(params, context)
  end
end

---Have `fn` called for a command of the daemon's code actions, in place of the daemon.
---@param name string
---@param fn fun(command: lsp.Command, context: table)
function M.on_command(name, fn)
  commands[name] = fn
end

---Have `fn` called each time that a daemon that was ready ended, when all that it said was handled: with why (nil where it was
---asked to), and whether it makes sense to start another one.
---@param fn fun(failure: refold.Failure?, again: boolean)
function M.on_lost(fn)
  table.insert(lost_listeners, fn)
end

---@param message string
---@param kind string?
---@param data table?
---@return refold.Failure
local function failure(message, kind, data)
  return { message = message, kind = kind or "rpc", data = data or {} }
end

---@param reason refold.Failure?
local function tell_waiting(reason)
  local told = waiting
  waiting = {}
  for _, fn in ipairs(told) do
    fn(reason)
  end
end

---@param buffer integer
---@return boolean
local function is_file(buffer)
  return vim.api.nvim_buf_is_loaded(buffer)
    and vim.bo[buffer].buftype == ""
    and vim.api.nvim_buf_get_name(buffer) ~= ""
    and vim.startswith(vim.uri_from_bufnr(buffer), "file:")
end

---Show the daemon a buffer that is a file, so that its text is known before it is saved.
---@param buffer integer
function M.attach(buffer)
  if ready and client_id and is_file(buffer) then
    vim.lsp.buf_attach_client(buffer, client_id)
  end
end

local function watch_buffers()
  local group = vim.api.nvim_create_augroup("refold.buffers", { clear = true })
  vim.api.nvim_create_autocmd({ "BufReadPost", "BufNewFile", "BufFilePost", "BufWritePost" }, {
    group = group,
    desc = "refold: show the daemon what is open",
    callback = function(event)
      M.attach(event.buf)
    end,
  })
  vim.api.nvim_create_autocmd("VimLeavePre", {
    group = group,
    callback = function()
      leaving = true
    end,
  })
end

local function initialized()
  ready = true
  watch_buffers()
  for _, buffer in ipairs(vim.api.nvim_list_bufs()) do
    M.attach(buffer)
  end
  tell_waiting(nil)
end

---@param id integer
---@param code integer
---@param signal integer
local function ended(id, code, signal)
  if id ~= client_id or leaving then
    return
  end
  local was_ready, asked = ready, stopping
  client_id, ready, stopping = nil, false, false
  local how = signal ~= 0 and ("signal %d"):format(signal) or ("exit code %d"):format(code)
  local words = code ~= 0 and last_words.since(log_place)
  how = words and ("%s: %s"):format(how, words) or how
  local lost = failure(("the daemon ended (%s)"):format(how), "connection.lost")
  local told = unanswered
  unanswered = {}
  for _, answer in pairs(told) do
    answer(lost)
  end
  tell_waiting(failure(("the daemon ended before it was ready (%s)"):format(how), "connection.lost"))
  if was_ready then
    for _, fn in ipairs(lost_listeners) do
      fn(not asked and lost or nil, not asked and code ~= MISCONFIGURED)
    end
  end
end

---@return vim.lsp.ClientConfig
local function client_config()
  local given = settings.get()
  local options = { onDisconnect = given.on_disconnect, model = given.model, store = given.store }
  return {
    name = "refold",
    cmd = given.cmd,
    cmd_env = given.env,
    root_dir = settings.folder(vim.api.nvim_get_current_buf()),
    init_options = options,
    handlers = handlers,
    commands = commands,
    on_init = initialized,
    on_exit = vim.schedule_wrap(function(code, signal, id)
      ended(id, code, signal)
    end),
  }
end

---Start the daemon unless it runs; `fn` is called when it is ready, or with why it is not.
---@param fn fun(failure: refold.Failure?)
function M.start(fn)
  if ready then
    return fn(nil)
  end
  table.insert(waiting, fn)
  if client_id then
    return
  end
  local program = settings.get().cmd[1]
  if vim.fn.executable(program) == 0 then
    return tell_waiting(failure(("there is no program %s; :help refold-install"):format(program), "connection.lost"))
  end
  local alone = function()
    return false -- this daemon is ours, whatever other clients there are
  end
  log_place = last_words.place()
  client_id = vim.lsp.start(client_config(), { attach = false, reuse_client = alone })
  if not client_id then
    tell_waiting(failure(("%s could not be started; :checkhealth refold"):format(program), "connection.lost"))
  end
end

---Start the daemon again after it was lost; given up when it was lost too often of late.
---@param fn fun(failure: refold.Failure?)
function M.restart(fn)
  if not client_id then
    local now = vim.uv.now()
    starts = vim.tbl_filter(function(at)
      return now - at < WINDOW_MS
    end, starts)
    if #starts >= MAX_STARTS then
      return fn(
        failure(("the daemon ended %d times in a minute; :Refold tries again"):format(#starts), "connection.lost")
      )
    end
    table.insert(starts, now)
  end
  M.start(function(reason)
    if reason then
      return M.restart(fn)
    end
    fn(nil)
  end)
end

---Send a request, starting the daemon if need be. Unsent changes of open buffers go before it.
---@param method string
---@param params table an empty one must be `vim.empty_dict()`
---@param answer refold.Answer
function M.request(method, params, answer)
  M.start(function(reason)
    if reason then
      return answer(reason)
    end
    local key = {}
    unanswered[key] = answer
    local function replied(err, result)
      if unanswered[key] then
        unanswered[key] = nil
        local data = err and type(err.data) == "table" and err.data or {}
        answer(err and failure(err.message, data.kind, data), result)
      end
    end
    local client = M.client()
    if not client or not client:request(method, params, replied) then
      replied({ message = "the daemon is gone", data = { kind = "connection.lost" } })
    end
  end)
end

---End the daemon in good order.
function M.stop()
  local client = client_id and vim.lsp.get_client_by_id(client_id)
  if client then
    stopping = true
    client:stop()
  end
end

return M
