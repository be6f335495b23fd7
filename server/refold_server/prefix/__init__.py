"""What stands before the history: the system text, and the built-in contributors to the session prefix.

A contributor says what the model should know before a session's first word. It is asked once per instance, and what it says
is part of every request of that instance, so it may say only what the workspace says: no time, no process, no absolute
path, nothing in an order that varies. Without anything to say it says nothing. What changes while a session runs goes into
the history instead (`agent/pre-step`, `tools/post-execute`, `session/inject`), where it is paid for once.
"""
