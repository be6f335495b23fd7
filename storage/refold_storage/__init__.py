"""What refold keeps: session logs in LMDB, one environment per store. Imports `refold_protocol` and never the server."""
