"""How model providers are reached: the seam, HTTP, and the embedded rehearsal. Bodies come in encoded; chunks go out."""
