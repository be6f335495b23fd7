"""The agent loop: turns, steps and tool calls, and the hooks at which plugins take part. It only appends."""
