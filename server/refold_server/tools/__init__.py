"""What tools do: their interface, the table of built-in tools, running a call, and the bounds that hold for all of them.

Knows nothing of sessions, logs, clients or providers: the loop asks `execute` and records the answer.
"""
