-- The plugin's public face: what commands, key maps and status lines of a user's configuration call.
-- Everything else is loaded with the first call, so that a Neovim that does not use refold pays nothing for it.

local M = {}

---Put settings over the defaults; see :help refold-settings. Need not be called.
---@param settings table?
function M.setup(settings)
  require("refold.settings").set(settings)
end

local function load()
  require("refold.answers")
  require("refold.approvals")
  require("refold.edits")
  require("refold.selection")
  return require("refold.sessions"), require("refold.chat"), require("refold.prompts")
end

---@return string
local function folder()
  return require("refold.settings").folder(vim.api.nvim_get_current_buf())
end

---Call `fn` with the present session; one is begun where there is none.
---@param fn fun(session: refold.Session)
local function with_session(fn)
  load().present(folder(), fn)
end

---Show a session: the one with that id, else the present one, else a new one.
---@param id string?
function M.open(id)
  local sessions, chat = load()
  if id and id ~= "" then
    return sessions.open({ session = id }, chat.show)
  end
  with_session(chat.show)
end

---Begin a session in the folder of the present buffer, and show it.
function M.new()
  local sessions, chat = load()
  sessions.open({ cwd = folder() }, chat.show)
end

---Let a person choose a session: of the present buffer's folder, or with `everywhere` of all folders.
---@param everywhere boolean?
function M.sessions(everywhere)
  load()
  require("refold.picker").pick(not everywhere and folder() or nil)
end

---Send a prompt to the present session and show it. While a turn runs it waits, or with `steer` joins the turn.
---@param text string
---@param steer boolean?
function M.prompt(text, steer)
  local _, chat, prompts = load()
  with_session(function(session)
    chat.show_beside(session)
    prompts.send(session, text, steer)
  end)
end

---Stop the turn of the present session; with `withdraw`, take back what waits behind it.
---@param withdraw boolean?
function M.interrupt(withdraw)
  local sessions, _, prompts = load()
  if sessions.current then
    prompts.interrupt(sessions.current, withdraw)
  end
end

---Offer the inputs that wait since an earlier daemon.
function M.pending()
  local _, _, prompts = load()
  with_session(prompts.pending)
end

---Go to the question that waits longest.
function M.question()
  load()
  require("refold.answers").go()
end

---Answer the question that the cursor is on, in the chat.
---@param kind "allowOnce"|"allowSession"|"deny"
---@param unseen boolean? allow what was not on the screen, too
function M.answer(kind, unseen)
  load()
  require("refold.answers").answer(kind, unseen)
end

---Give a text for a status line: empty without a daemon.
---@return string
function M.status()
  return package.loaded["refold.daemon"] and require("refold.status").line() or ""
end

---Let the daemon see the buffers of this Neovim, and offer its code actions, before anything was asked.
function M.start()
  load()
  require("refold.daemon").start(function(failure)
    if failure then
      vim.notify("refold: " .. failure.message, vim.log.levels.ERROR)
    end
  end)
end

---End the daemon in good order. The next command starts another one, which goes on with the sessions that are shown.
function M.stop()
  require("refold.daemon").stop()
end

return M
