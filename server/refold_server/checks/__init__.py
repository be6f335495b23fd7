"""Checks of what refold promises: offline over a whole log (live ones come with a later release)."""
