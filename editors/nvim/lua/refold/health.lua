-- `:checkhealth refold`: Neovim, the daemon and its version, the store, the models. Starts the daemon if it must, and
-- ends it again then. Changes nothing else.

local daemon = require("refold.daemon")
local settings = require("refold.settings")

local health = vim.health

local M = {}

local WAIT_MS = 20000

---Ask and wait. Gives the result, or nil and a sentence.
---@param method string
---@return table?, string?
local function ask(method)
  local done, failure, result
  daemon.request(method, vim.empty_dict(), function(reason, given)
    done, failure, result = true, reason, given
  end)
  vim.wait(WAIT_MS, function()
    return done
  end, 5)
  if not done then
    return nil, ("%s was not answered within %d s"):format(method, WAIT_MS / 1000)
  end
  return result, failure and failure.message
end

---@param bytes integer
---@return string
local function size(bytes)
  return ("%.1f MiB"):format(bytes / 1048576)
end

local function check_neovim()
  health.start("Neovim")
  local version = tostring(vim.version())
  if vim.fn.has("nvim-0.11") == 1 then
    health.ok("Neovim " .. version)
  else
    health.error("Neovim " .. version, { "refold needs 0.11 or later" })
  end
end

---@return boolean
local function check_daemon()
  health.start("Daemon")
  local cmd = settings.get().cmd
  local path = vim.fn.exepath(cmd[1])
  if path == "" then
    health.error(
      ("there is no program %s"):format(cmd[1]),
      { ":help refold-install", "or name it: setup{ cmd = { … } }" }
    )
    return false
  end
  health.ok(("command: %s (%s)"):format(table.concat(cmd, " "), path))
  local result, failure = ask("daemon/health")
  local client = daemon.client()
  if failure or not result or not client then
    health.error(failure or "the daemon is gone", { "look at what it says: " .. vim.lsp.log.get_filename() })
    return false
  end
  local experimental = client.server_capabilities.experimental or {}
  local protocol = experimental.refold and experimental.refold.protocol or "?"
  health.ok(("refold %s, protocol %s, process %d"):format(client.server_info.version, protocol, result.pid))
  M.tell_store(result)
  return true
end

---Tell how the store and the open sessions are.
---@param result table of `daemon/health`
function M.tell_store(result)
  health.start("Store")
  local store = result.store
  health.ok(("%s, format %d"):format(store.path, store.format))
  health.info(("%d sessions, %s used of %s"):format(store.sessions, size(store.usedBytes), size(store.fileBytes)))
  for _, session in ipairs(result.sessions) do
    if session.trouble then
      health.error(("session %s: %s"):format(session.session, session.trouble))
    else
      health.info(("session %s: %s, %d events"):format(session.session, session.status, session.tail + 1))
    end
  end
end

---Tell which models are configured, and whether their providers have a key.
---@param result table of `model/list`
function M.tell_models(result)
  for _, provider in ipairs(result.providers) do
    local said = ("provider %s (%s), key: %s"):format(provider.provider, provider.dialect, provider.credentials)
    if provider.credentials == "missing" then
      health.warn(said, { "set the environment variable that the configuration names" })
    else
      health.ok(said)
    end
  end
  for _, model in ipairs(result.models) do
    local window = model.contextWindow and (", window %d tokens"):format(model.contextWindow) or ""
    health.info(("model %s%s%s"):format(model.model, window, model.isDefault and ", the default" or ""))
  end
end

local function check_models()
  health.start("Models")
  local result, failure = ask("model/list")
  if failure or not result then
    return health.error(failure or "no answer")
  end
  M.tell_models(result)
end

---What `:checkhealth refold` runs.
function M.check()
  local ran = daemon.client() ~= nil
  check_neovim()
  if check_daemon() then
    check_models()
  end
  if not ran then
    daemon.stop()
  end
end

return M
