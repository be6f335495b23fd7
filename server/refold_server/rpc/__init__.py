"""The daemon's end of JSON-RPC: descriptors, threads, dispatch. What is said is `refold_protocol.rpc`'s matter."""
