"""The session log: its vocabulary, and every pure function that follows from it."""
