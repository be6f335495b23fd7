"""The agent loop: turns, steps, tool calls, and the seams at which others take part. Only appends; never tells."""
