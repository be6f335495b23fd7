"""What stands before the history: the system text, and (in a later release) the session prefix's contributors."""
