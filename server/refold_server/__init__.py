"""What refold does: the daemon, the loop, providers and tools. Imports `refold_protocol` and `refold_storage`."""
