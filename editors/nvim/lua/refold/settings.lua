-- Settings: their names, their defaults, and the check that what a user gave has the right shape.
-- Must not know daemons, sessions or windows. A wrong setting stops `setup` with a sentence that names it.

local M = {}

---@class refold.Settings
---@field cmd string[] command that starts the daemon
---@field env table<string,string>? further environment variables of the daemon
---@field model string? `provider/model` for sessions that name none; the daemon's own configuration without it
---@field store string? folder of the sessions' store; the daemon's own configuration without it
---@field on_disconnect "finish"|"cancel" what a running turn does when Neovim goes
---@field root fun(buffer: integer): string? gives the folder that a new session works in; nil: the current one
---@field layout "vertical"|"horizontal"|"tab" where the chat window opens
---@field prompt_height integer lines of the window in which prompts are written
---@field reasoning boolean whether the model's visible thinking is shown
---@field icons table<string,string> signs of tool calls: `call`, `done`, `failed`

local LAYOUTS = { vertical = true, horizontal = true, tab = true }
local ENDINGS = { finish = true, cancel = true }

---@return refold.Settings
local function defaults()
  return {
    cmd = { "refold", "serve" },
    env = nil,
    model = nil,
    store = nil,
    on_disconnect = "finish",
    root = function(buffer)
      return vim.fs.root(buffer, { ".git", ".hg" }) or vim.fn.getcwd()
    end,
    layout = "vertical",
    prompt_height = 4,
    reasoning = true,
    icons = { call = "▸", done = "✓", failed = "✗" },
  }
end

local KNOWN = vim.list_extend(vim.tbl_keys(defaults()), { "env", "model", "store" })

---@type refold.Settings
local current = defaults()

---Give the settings in force.
---@return refold.Settings
function M.get()
  return current
end

---Give the folder that a session begun in a buffer works in.
---@param buffer integer
---@return string
function M.folder(buffer)
  return current.root(buffer) or vim.fn.getcwd()
end

---Put `given` over the defaults. Raises an error that names what is wrong.
---@param given table?
function M.set(given)
  vim.validate("refold.setup", given, "table", true)
  given = given or {}
  for name in pairs(given) do
    if not vim.list_contains(KNOWN, name) then
      error(("refold.setup: there is no setting %q; :help refold-settings lists them"):format(name), 0)
    end
  end
  local wanted = vim.tbl_deep_extend("force", defaults(), given)
  wanted.cmd = given.cmd or wanted.cmd -- a command is replaced, never merged word by word
  M.check(wanted)
  current = wanted
end

---Raise an error that names the first setting with a wrong value.
---@param settings table
function M.check(settings)
  local function need(name, fits, what)
    if not fits then
      error(("refold.setup: %s must be %s, not %s"):format(name, what, vim.inspect(settings[name])), 0)
    end
  end
  local function text_or_nil(name)
    need(name, settings[name] == nil or type(settings[name]) == "string", "a text")
  end
  local cmd = settings.cmd
  local words = type(cmd) == "table"
    and vim.islist(cmd)
    and #cmd > 0
    and vim.iter(cmd):all(function(word)
      return type(word) == "string"
    end)
  need("cmd", words, "a list of texts: the daemon's command and its arguments")
  need("env", settings.env == nil or type(settings.env) == "table", "a table of texts")
  text_or_nil("model")
  text_or_nil("store")
  need("on_disconnect", ENDINGS[settings.on_disconnect], '"finish" or "cancel"')
  need("root", type(settings.root) == "function", "a function of a buffer that gives a folder")
  need("layout", LAYOUTS[settings.layout], '"vertical", "horizontal" or "tab"')
  local height = settings.prompt_height
  need("prompt_height", type(height) == "number" and height >= 1 and height % 1 == 0, "a whole number of lines")
  need("reasoning", type(settings.reasoning) == "boolean", "true or false")
  need("icons", type(settings.icons) == "table", "a table of texts")
end

return M
