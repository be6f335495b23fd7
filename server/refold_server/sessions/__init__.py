"""Live sessions: how they are opened and closed, what they accept, and what is read of them."""
