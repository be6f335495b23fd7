"""Live sessions: who owns them, what they know of themselves, how they are opened and closed."""
