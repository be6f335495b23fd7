"""Requests to models: the log of a session, its meters, and the checks of requests."""
