"""Requests to models: the log of a session, its model and meters, the one call, and the checks of requests."""
