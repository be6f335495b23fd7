"""Checks of what refold promises: live on each request that is about to leave, offline over a whole log."""
