-- Windows of a chat: one that shows a session's page, and below it one in which prompts are written.
-- Must not know the protocol. Puts nothing into the page's buffer.

local drafts = require("refold.drafts")
local prompts = require("refold.prompts")
local sessions = require("refold.sessions")
local settings = require("refold.settings")
local status = require("refold.status")

local api = vim.api

local M = {}

local WINBAR = "%{%v:lua.require'refold.chat'.winbar()%}"
local OPENERS = { vertical = "botright vsplit", horizontal = "botright split", tab = "tab split" }

local inputs = {} ---@type table<refold.Session, integer> the buffer in which a session's prompts are written

---Give a window of this tab page that shows the buffer.
---@param buffer integer?
---@return integer?
local function window_of(buffer)
  return vim.iter(api.nvim_tabpage_list_wins(0)):find(function(window)
    return buffer ~= nil and api.nvim_win_get_buf(window) == buffer
  end)
end

---Give a window of this tab page that shows any session.
---@return integer?
local function chat_window()
  return vim.iter(api.nvim_tabpage_list_wins(0)):find(function(window)
    return sessions.of_buffer(api.nvim_win_get_buf(window)) ~= nil
  end)
end

---@param session refold.Session
function M.send(session)
  local buffer = M.input_buffer(session)
  local text = table.concat(api.nvim_buf_get_lines(buffer, 0, -1, true), "\n")
  if not text:match("%S") then
    return
  end
  api.nvim_buf_set_lines(buffer, 0, -1, true, {})
  drafts.sent(buffer, session.id)
  prompts.send(session, text)
end

---Give the buffer in which the session's prompts are written.
---@param session refold.Session
---@return integer
function M.input_buffer(session)
  local known = inputs[session]
  if known and api.nvim_buf_is_loaded(known) then
    return known
  end
  local buffer = api.nvim_create_buf(false, true)
  inputs[session] = buffer
  drafts.attach(buffer, session.id)
  vim.bo[buffer].filetype = "refold-prompt"
  local function map(modes, keys, fn, what)
    vim.keymap.set(modes, keys, fn, { buffer = buffer, desc = "refold: " .. what })
  end
  map("n", "<CR>", function()
    M.send(session)
  end, "send the prompt")
  map({ "n", "i" }, "<C-s>", function()
    M.send(session)
  end, "send the prompt")
  map("n", "<C-c>", function()
    prompts.interrupt(session)
  end, "interrupt the turn")
  return buffer
end

---@param session refold.Session
local function map_keys(session)
  local function map(keys, fn, what)
    vim.keymap.set("n", keys, fn, { buffer = session.buffer, desc = "refold: " .. what })
  end
  for _, keys in ipairs({ "i", "a", "o" }) do
    map(keys, function()
      M.write(session)
    end, "write a prompt")
  end
  for _, keys in ipairs({ "K", "<CR>" }) do
    map(keys, function()
      require("refold.peek").show(session, api.nvim_win_get_cursor(0)[1] - 1)
    end, "show the tool call on this line")
  end
  map("<C-c>", function()
    prompts.interrupt(session)
  end, "interrupt the turn")
  for keys, kind in pairs({ gA = "allowOnce", gS = "allowSession", gD = "deny" }) do
    map(keys, function()
      require("refold.answers").answer(kind)
    end, "answer the question under the cursor")
  end
end

---@param window integer
local function dress(window)
  local options = { wrap = true, linebreak = true, number = false, relativenumber = false, signcolumn = "no" }
  options = vim.tbl_extend("error", options, { foldenable = false, conceallevel = 0 }) -- nothing is hidden
  for name, value in pairs(options) do
    api.nvim_set_option_value(name, value, { scope = "local", win = window })
  end
  api.nvim_set_option_value("winbar", WINBAR, { scope = "local", win = window })
end

---Show a session, in the chat window of this tab page if there is one; the cursor goes where prompts are written.
---@param session refold.Session
function M.show(session)
  sessions.current = session
  local window = window_of(session.buffer) or chat_window()
  if not window then
    vim.cmd(OPENERS[settings.get().layout])
    window = api.nvim_get_current_win()
  end
  api.nvim_set_current_win(window)
  if api.nvim_win_get_buf(window) ~= session.buffer then
    api.nvim_win_set_buf(window, session.buffer)
    session.following.page.scrolling:bring(window)
  end
  dress(window)
  map_keys(session)
  M.write(session)
end

---Show a session and go to its page: to the question that waits longest, else to the end.
---@param session refold.Session
function M.read(session)
  M.show(session)
  local window = window_of(session.buffer)
  if window then
    api.nvim_set_current_win(window)
    session.following.page.scrolling:bring(window)
  end
end

---Show a session and stay in the present window.
---@param session refold.Session
function M.show_beside(session)
  local window = api.nvim_get_current_win()
  if window_of(session.buffer) then
    sessions.current = session
    return
  end
  M.show(session)
  api.nvim_set_current_win(window)
end

---Go to the window in which the session's prompts are written.
---@param session refold.Session
function M.write(session)
  local buffer = M.input_buffer(session)
  local window = window_of(buffer)
  if not window then
    local stale = vim.iter(api.nvim_tabpage_list_wins(0)):find(function(one)
      return vim.bo[api.nvim_win_get_buf(one)].filetype == "refold-prompt"
    end)
    if stale then
      window = stale
      api.nvim_win_set_buf(window, buffer)
    else
      local height = settings.get().prompt_height
      window =
        api.nvim_open_win(buffer, true, { split = "below", win = window_of(session.buffer) or 0, height = height })
    end
    dress(window)
    api.nvim_set_option_value("winbar", "  prompt (<CR> sends)", { scope = "local", win = window })
    api.nvim_set_option_value("winfixheight", true, { scope = "local", win = window })
  end
  api.nvim_set_current_win(window)
end

---Give the line above the page: the session's title, its state, what it waits for.
---@return string
function M.winbar()
  local session = sessions.of_buffer(api.nvim_win_get_buf(vim.g.statusline_winid or 0))
  return session and (" " .. status.describe(session):gsub("%%", "%%%%")) or ""
end

---A prompt that was not accepted goes back to where it was written, in front of what stands there.
prompts.on_given_back(function(session, text)
  local buffer = M.input_buffer(session)
  local lines = vim.split(text, "\n", { plain = true })
  local empty = api.nvim_buf_line_count(buffer) == 1 and api.nvim_buf_get_lines(buffer, 0, 1, true)[1] == ""
  api.nvim_buf_set_lines(buffer, 0, empty and -1 or 0, true, lines)
end)

---With a chat's buffer goes the one in which its prompts were written.
sessions.on_change(function(session)
  local buffer = inputs[session]
  if session.state == "closed" and buffer then
    inputs[session] = nil
    vim.schedule(function()
      if api.nvim_buf_is_valid(buffer) then
        api.nvim_buf_delete(buffer, { force = true })
      end
    end)
  end
end)

---When a chat's window is closed, the one below it goes too.
api.nvim_create_autocmd("WinClosed", {
  group = api.nvim_create_augroup("refold.windows", { clear = true }),
  callback = function(event)
    local session = sessions.of_buffer(api.nvim_win_get_buf(tonumber(event.match) or 0))
    local below = session and window_of(inputs[session])
    if below then
      vim.schedule(function()
        if api.nvim_win_is_valid(below) and #api.nvim_tabpage_list_wins(0) > 1 then
          api.nvim_win_close(below, true)
        end
      end)
    end
  end,
})

return M
