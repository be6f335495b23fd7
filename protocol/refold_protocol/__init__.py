"""What refold says: types, pure folds and wire encoders. Nothing here does I/O, reads a clock or draws a random number."""
