-- The user commands and the default highlights. Loads nothing else: the plugin comes with the first command.

if vim.g.loaded_refold then
  return
end
vim.g.loaded_refold = true

if vim.fn.has("nvim-0.11") == 0 then
  vim.notify("refold needs Neovim 0.11 or later", vim.log.levels.ERROR)
  return
end

local function command(name, options, fn)
  vim.api.nvim_create_user_command(name, function(given)
    fn(require("refold"), given)
  end, options)
end

command("Refold", { nargs = "?", desc = "Show a session: ID, the present one, or a new one" }, function(refold, given)
  refold.open(given.args)
end)

command("RefoldNew", { desc = "Begin a session" }, function(refold)
  refold.new()
end)

local prompt = { nargs = "+", bang = true, desc = "Send a prompt; with ! it joins the running turn" }
command("RefoldPrompt", prompt, function(refold, given)
  refold.prompt(given.args, given.bang)
end)

command(
  "RefoldInterrupt",
  { bang = true, desc = "Stop the turn; with ! take back what waits, too" },
  function(refold, given)
    refold.interrupt(given.bang)
  end
)

command(
  "RefoldSessions",
  { bang = true, desc = "Choose a session of this folder; with ! of all" },
  function(refold, given)
    refold.sessions(given.bang)
  end
)

command("RefoldPending", { desc = "Run or withdraw a prompt that waits since before" }, function(refold)
  refold.pending()
end)

command("RefoldQuestion", { desc = "Go to the question that waits longest" }, function(refold)
  refold.question()
end)

local ANSWERS = { RefoldAllow = "allowOnce", RefoldAllowSession = "allowSession", RefoldDeny = "deny" }

for name, kind in pairs(ANSWERS) do
  local options = { bang = kind ~= "deny", desc = "Answer the question under the cursor; with ! without having seen it all" }
  command(name, options, function(refold, given)
    refold.answer(kind, given.bang)
  end)
end

command("RefoldStart", { desc = "Start the daemon: code actions are there" }, function(refold)
  refold.start()
end)

command("RefoldStop", { desc = "End the daemon" }, function(refold)
  refold.stop()
end)

local LINKS = {
  RefoldHeading = "Title",
  RefoldRemark = "WarningMsg",
  RefoldReasoning = "Comment",
  RefoldCall = "Function",
  RefoldQuestion = "WarningMsg",
  RefoldAdded = "Added",
  RefoldRemoved = "Removed",
  RefoldRunning = "Comment",
  RefoldDone = "DiagnosticOk",
  RefoldFailed = "DiagnosticError",
}

for group, target in pairs(LINKS) do
  vim.api.nvim_set_hl(0, group, { link = target, default = true })
end

vim.api.nvim_create_autocmd("BufReadCmd", {
  pattern = "refold://*",
  desc = "refold: show the session that a buffer is named after",
  callback = function(event)
    vim.schedule(function()
      require("refold").open(event.match:match("^refold://(.*)$"))
    end)
  end,
})
