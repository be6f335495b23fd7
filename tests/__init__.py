"""The tests of refold. The tree mirrors the sources; `support/` has what several tests share."""
