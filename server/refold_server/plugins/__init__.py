"""Plugins and their hooks: the names that a plugin file needs.

A plugin is a module with one function, `register(registry: PluginRegistry)`. See docs/plugins.md for a worked example.
"""

from refold_server.plugins.hook_table import (
    ASSEMBLE,
    EXECUTE,
    FLUSH,
    HOOKS,
    OBSERVE,
    POST_EXECUTE,
    PRE_EXECUTE,
    PRE_STEP,
    PROMPT_SUBMIT,
    REQUEST,
    SESSION_PREFIX,
    STREAM,
    SUMMARISE,
    TURN_STOP,
    Accept,
    AfterStep,
    Answered,
    Assembled,
    Assembling,
    BeforeStep,
    Block,
    Call,
    ConfigRequest,
    Context,
    Deny,
    Flushed,
    GoOn,
    Hook,
    HookContext,
    Outgoing,
    PrefixRequest,
    Prompt,
    Recorded,
    Stop,
    Submit,
    Summarising,
    Summary,
    context,
)
from refold_server.plugins.plugin_registry import PluginRegistry
from refold_server.plugins.plugin_tools import tool
from refold_server.tools.tool import Proposal, ToolContext, ToolOutput
from refold_server.tools.tool_failure import ToolFailure

# Names that plugin files of version 0.1 import.
Composing = PrefixRequest
Place = HookContext
Routing = ConfigRequest
SEAMS = HOOKS
Seam = Hook
StepAhead = BeforeStep
StepOver = AfterStep

__all__ = [
    "ASSEMBLE",
    "EXECUTE",
    "FLUSH",
    "HOOKS",
    "OBSERVE",
    "POST_EXECUTE",
    "PRE_EXECUTE",
    "PRE_STEP",
    "PROMPT_SUBMIT",
    "REQUEST",
    "SEAMS",
    "SESSION_PREFIX",
    "STREAM",
    "SUMMARISE",
    "TURN_STOP",
    "Accept",
    "AfterStep",
    "Answered",
    "Assembled",
    "Assembling",
    "BeforeStep",
    "Block",
    "Call",
    "Composing",
    "ConfigRequest",
    "Context",
    "Deny",
    "Flushed",
    "GoOn",
    "Hook",
    "HookContext",
    "Outgoing",
    "Place",
    "PluginRegistry",
    "PrefixRequest",
    "Prompt",
    "Proposal",
    "Recorded",
    "Routing",
    "Seam",
    "StepAhead",
    "StepOver",
    "Stop",
    "Submit",
    "Summarising",
    "Summary",
    "ToolContext",
    "ToolFailure",
    "ToolOutput",
    "context",
    "tool",
]
