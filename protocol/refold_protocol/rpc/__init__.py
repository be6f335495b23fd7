"""JSON-RPC as refold speaks it: frames, messages, the table of methods, errors, the order of life. Pure, both directions."""
