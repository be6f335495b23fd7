"""What refold does: the daemon, the loop, providers, tools and the command line."""

__version__ = "0.1.0"
